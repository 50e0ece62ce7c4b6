//! Policies that limit, in turns with one that only accepts.
//!
//! Packets come as from a card: a ring of few buffers, into which each burst is written anew, from sources that were not seen before. A million
//! packets in memory would drive the buckets out of the caches, which no card does.

use crate::row::Row;
use std::fs;
use weir::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::{self, Spread};
use weir_engine::traffic::{self, SplitMix};
use weir_engine::{NativeFilter, tsc};
use weir_loading::{Policy, load};

/// Buffers of the ring: as many as drivers have by default.
const RING: usize = 1024;
/// Packets of a turn: so many random ones come to nearly every cache line of a million buckets.
const PACKETS: usize = 1 << 18;
/// Turns of each policy.
const ROUNDS: usize = 11;
/// Bytes of a bucket.
const BUCKET_BYTES: f64 = 8.0;

/// All of them.
pub struct Contest {
    packets: Packets,
    accepting: NativeFilter,
    entrants: Vec<Entrant>,
}

/// Packets of random sources.
struct Packets {
    ring: FrameSet,
    sources: SplitMix,
}

impl Packets {
    /// Cycles that one costs.
    fn cycles(&mut self, filter: &mut NativeFilter) -> Result<f64, Failure> {
        let Packets { ring, sources } = self;
        let write = |packet: &mut [u8]| traffic::set_source(packet, sources.draw() as u32);
        Ok(measure::measure_ring(filter, 0, ring, PACKETS, write)?)
    }
}

/// A policy, and what its packets cost.
struct Entrant {
    row: Row,
    filter: NativeFilter,
    turns: Vec<Turn>,
}

/// What a packet cost.
#[derive(Clone, Copy)]
struct Turn {
    cycles: f64,
    /// What the policy that only accepts did not cost right before.
    limit_cycles: f64,
}

impl Contest {
    /// Nobody but the one that only accepts; packets have so many bytes, without the frame check sequence.
    ///
    /// # Errors
    /// There is no compiler.
    pub fn new(packet_bytes: usize) -> Result<Self, Failure> {
        let accepting = policy("upstream { accept }\ndownstream { accept }\n", "")?;
        let packets = Packets { ring: traffic::packets_of(packet_bytes, &[0; RING]), sources: SplitMix::new(11) };
        Ok(Contest { packets, accepting: accepting.native()?, entrants: Vec::new() })
    }

    /// Adds a policy that limits sources by a list.
    ///
    /// # Errors
    /// Files cannot be written, or there is no compiler.
    pub fn enter(&mut self, row: Row, list: &str) -> Result<(), Failure> {
        const LIMITED: &str = "limits subnets { file \"limits.csv\" }\n\
            upstream { ip saddr limit @subnets; accept }\ndownstream { accept }\n";
        let row = row.number("subnets", list.lines().count() as f64);
        self.enter_policy(row, &policy(LIMITED, list)?)
    }

    /// Adds a policy that limits each source, in a table for so many that are in debt at once.
    ///
    /// # Errors
    /// Files cannot be written, or there is no compiler.
    pub fn enter_each(&mut self, row: Row, limit: &str, size: u32) -> Result<(), Failure> {
        let text = format!("upstream {{ limit each ip saddr {limit} size {size}; accept }}\ndownstream {{ accept }}\n");
        self.enter_policy(row.number("addresses", size.into()), &policy(&text, "")?)
    }

    fn enter_policy(&mut self, row: Row, limited: &Policy) -> Result<(), Failure> {
        let table_bytes: usize = limited.images()?.iter().map(|image| image.as_bytes().len()).sum();
        // The first bucket is nobody's, and one is for sources that no subnet has.
        let bucket_bytes = limited.buckets() as f64 * BUCKET_BYTES;
        let row = row
            .of("engine", "native")
            .number("table_bytes", table_bytes as f64)
            .number("bucket_bytes", bucket_bytes)
            .number("bytes", table_bytes as f64 + bucket_bytes);
        self.entrants.push(Entrant { row, filter: limited.native()?, turns: Vec::new() });
        Ok(())
    }

    /// Lets them all take their turns. Each row says too how many times the first one's limits its own cost.
    ///
    /// # Errors
    /// A filter fails.
    pub fn rows(mut self) -> Result<Vec<Row>, Failure> {
        for _ in 0..ROUNDS {
            for entrant in &mut self.entrants {
                let accepting = self.packets.cycles(&mut self.accepting)?;
                let cycles = self.packets.cycles(&mut entrant.filter)?;
                entrant.turns.push(Turn { cycles, limit_cycles: cycles - accepting });
            }
        }
        let first = self.entrants.first().map(|entrant| entrant.turns.clone()).unwrap_or_default();
        Ok(self.entrants.into_iter().map(|entrant| entrant.row(&first)).collect())
    }
}

impl Entrant {
    fn row(self, first: &[Turn]) -> Row {
        let spread =
            |of: &dyn Fn(&Turn) -> f64| Spread::of(self.turns.iter().map(of).collect()).expect("each had its turns");
        let times = self.turns.iter().zip(first).map(|(own, first)| own.limit_cycles / first.limit_cycles);
        let cycles = spread(&|turn| turn.cycles);
        let ns = cycles.scaled(1e9 / tsc::frequency_hz());
        self.row
            .clone()
            .spread("cycles_per_packet", cycles)
            .spread("limit_cycles_per_packet", spread(&|turn| turn.limit_cycles))
            .spread("times_first", Spread::of(times.collect()).expect("each had its turns"))
            .spread("ns_per_packet", ns)
            .number("mpps", 1e3 / ns.median)
    }
}

fn policy(text: &str, list: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))
    };
    write("limits.csv", list)?;
    write("moonpol.weir", text)?;
    Ok(load(&directory.path().join("moonpol.weir"))?)
}
