//! New flows in memory: connections that are opened, SYNs without an answer, and how many flows a table takes.

use super::filters::policy;
use super::segments::Segment;
use crate::row::Row;
use std::sync::Arc;
use weir_abi::{BURST_MAX, Reason, Verdict, flow};
use weir_command::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::{Filter, NativeFilter, tsc};
use weir_state::flows::FlowTable;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of flows of the table.
    pub size: u32,
    /// Number of turns. One more warms up.
    pub rounds: usize,
}

/// An empty table, which each turn empties again.
struct Fresh {
    /// Number of flows of the table.
    size: u32,
    filter: NativeFilter,
    table: Arc<FlowTable>,
    ring: FrameSet,
    verdicts: [Verdict; BURST_MAX],
}

/// The rates of a turn, in flows per second of one core.
struct Turn {
    opened: f64,
    shaken: f64,
    flooded: f64,
}

/// Measures the rates, and the size of a flow.
///
/// # Errors
/// Files cannot be written, or there is no clang.
pub fn rows(Effort { size, rounds }: Effort) -> Result<Vec<Row>, Failure> {
    let settings = format!("tracking {{ size {size}; pickup off }}\n");
    let filter =
        policy(&(settings + "upstream { tcp track; accept }\ndownstream { tcp track; accept }\n"))?.native()?;
    let table = filter.flow_table().expect("the policy tracks").clone();
    let mut fresh = Fresh { size, filter, table, ring: Segment::ring(BURST_MAX), verdicts: [Verdict(0); BURST_MAX] };
    let turns = (0..=rounds).map(|_| fresh.turn()).collect::<Result<Vec<_>, Failure>>()?;
    let spread = |of: fn(&Turn) -> f64| Spread::of(turns[1..].iter().map(of).collect()).expect("there were turns");
    let row = |traffic: &str| Row::default().of("part", "memory").of("engine", "native").of("traffic", traffic);
    let cycles = |spread: Spread| {
        let per_flow = tsc::frequency_hz();
        Spread { min: per_flow / spread.max, median: per_flow / spread.median, max: per_flow / spread.min }
    };
    let rate = |row: Row, of: fn(&Turn) -> f64, what: &str| {
        let rate = spread(of);
        row.spread("new_flows_per_s", rate).spread(what, cycles(rate))
    };
    let filled = fresh.fill()?;
    let bytes = f64::from(fresh.table.buckets()) * flow::BUCKET_BYTES as f64;
    let slots = f64::from(fresh.table.buckets()) * flow::SLOTS as f64;
    Ok(vec![
        rate(row("new: SYN"), |turn| turn.opened, "cycles_per_packet"),
        rate(row("new: SYN, SYN-ACK and ACK"), |turn| turn.shaken, "cycles_per_handshake"),
        rate(row("new: SYN, and the table has its share of SYNs"), |turn| turn.flooded, "cycles_per_packet"),
        row("capacity")
            .number("bytes_per_flow_of_size", bytes / slots)
            .number("flows_until_one_is_refused", f64::from(filled))
            .number("filled_share", f64::from(filled) / slots)
            .number("bytes_per_flow_when_filled", bytes / f64::from(filled)),
    ])
}

impl Fresh {
    fn turn(&mut self) -> Result<Turn, Failure> {
        let size = self.size;
        // Three quarters of the table.
        let connections = size / 4 * 3;
        self.table.clear();
        let (mut opened, mut shaken) = (0, 0);
        for first in (0..connections).step_by(BURST_MAX) {
            let syn = self.step(first, Segment::SYN)?;
            (opened, shaken) = (opened + syn, shaken + syn);
            for segment in [Segment::SYN_ACK, Segment::ACK] {
                shaken += self.step(first, segment)?;
            }
        }
        // As many SYNs as the table has slots use up their share; then each evicts another.
        self.table.clear();
        let mut flooded = 0;
        for first in (0..2 * self.size).step_by(BURST_MAX) {
            let syn = self.step(first, Segment::SYN)?;
            flooded += if first >= size { syn } else { 0 };
        }
        let rate = |flows: u32, cycles: u64| f64::from(flows) * tsc::frequency_hz() / cycles as f64;
        Ok(Turn { opened: rate(connections, opened), shaken: rate(connections, shaken), flooded: rate(size, flooded) })
    }

    /// Opens connections until one is refused. Returns the number of those before.
    fn fill(&mut self) -> Result<u32, Failure> {
        self.table.clear();
        for first in (0..2 * self.size).step_by(BURST_MAX) {
            for segment in [Segment::SYN, Segment::SYN_ACK, Segment::ACK] {
                self.step(first, segment)?;
                let full = |verdict: &Verdict| verdict.reason() == Reason::STATE_FULL;
                if let Some(refused) = self.verdicts.iter().position(full) {
                    return Ok(first + refused as u32);
                }
            }
        }
        Err(Failure::Runtime("the table of flows refuses nothing".to_owned()))
    }

    /// Decides a burst with a segment of each of the next connections. Returns the TSC cycles.
    fn step(&mut self, first: u32, segment: Segment) -> Result<u64, Failure> {
        for index in 0..BURST_MAX {
            segment.write(self.ring.frame_mut(index), first + index as u32);
        }
        let burst = self.ring.burst(0);
        let start = tsc::now();
        self.filter.decide(usize::from(segment.from_server), &burst, &mut self.verdicts)?;
        Ok(tsc::now() - start)
    }
}
