//! What native code adds to tables: the records of a burst, and where they go.

use std::sync::Arc;

use weir_abi::{Addition, AdditionCounts, BURST_MAX, burst};
use weir_state::tables::{AdditionRings, ByRules, Replay, TableError};

use crate::{EngineError, FrameBurst};

/// The additions of one filter.
pub(crate) struct AdditionBuffer {
    /// Room for the additions of a burst.
    records: Box<[Addition]>,
    count: u64,
    sink: Sink,
}

/// Where additions go after each burst.
enum Sink {
    /// To the thread that changes tables.
    Queue(Arc<AdditionRings>),
    /// To the tables of this replay, at the end of the tick.
    Replay(Box<Replay>),
}

impl AdditionBuffer {
    /// The buffer for a filter of a program whose packets add at most `additions_max` addresses each. `None` if its
    /// tables change by requests only.
    pub fn new(additions_max: usize, by_rules: &ByRules) -> Option<Self> {
        let sink = match by_rules {
            ByRules::Never => return None,
            ByRules::Queued(additions, adders) => Sink::Queue(additions.queue(adders)),
            ByRules::Replayed(tables) => Sink::Replay(Box::new(Replay::new(tables.clone()))),
        };
        let records = vec![Addition::default(); BURST_MAX * additions_max].into();
        Some(AdditionBuffer { records, count: 0, sink })
    }

    /// The records for a burst of the program.
    pub fn as_c(&mut self) -> burst::Additions {
        self.count = 0;
        burst::Additions { records: self.records.as_mut_ptr(), count: &raw mut self.count }
    }

    /// Hands over the records of the last burst.
    pub fn take(&mut self) {
        let records = &mut self.records[..self.count as usize];
        match &mut self.sink {
            Sink::Queue(ring) => records.iter().for_each(|addition| ring.push(addition)),
            Sink::Replay(replay) => {
                // A burst is decided rule by rule. The tick needs the order of packets.
                records.sort_by_key(|addition| addition.packet);
                replay.add(records);
            }
        }
    }

    /// The replay, if additions do not go to a queue.
    pub fn replay(&mut self) -> Option<&mut Replay> {
        match &mut self.sink {
            Sink::Queue(_) => None,
            Sink::Replay(replay) => Some(replay),
        }
    }

    /// What additions of the replay did.
    pub fn counts(&self) -> AdditionCounts {
        match &self.sink {
            Sink::Queue(_) => AdditionCounts::default(),
            Sink::Replay(replay) => replay.counts(),
        }
    }
}

/// The tick of the first packets of a burst, and the number of packets in it.
pub(crate) fn first_tick(replay: &Replay, burst: &FrameBurst<'_>) -> (u64, usize) {
    let tick = replay.tick_of(burst.time_ns(0));
    let ends = (1..burst.len()).find(|&index| replay.tick_of(burst.time_ns(index)) > tick);
    (tick, ends.unwrap_or(burst.len()))
}

/// The error of a replay whose listed entries have no place.
pub(crate) fn failed(error: TableError) -> EngineError {
    EngineError::Image { table: "with a timeout".to_owned(), problem: error.to_string() }
}
