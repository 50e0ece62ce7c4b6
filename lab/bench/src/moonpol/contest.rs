//! Compares policies with limits to a policy that only accepts. They take turns.
//!
//! Packets arrive as from a network card: each burst is written into a ring of few buffers, with new sources. A million
//! packets in memory would displace the buckets from the caches, which a card does not.

use crate::row::Row;
use std::fs;
use weir_command::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::traffic::{self, SplitMix};
use weir_engine::{NativeFilter, tsc};
use weir_instruments::ring;
use weir_loading::{Policy, load};

/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
/// Size of a bucket in bytes.
const BUCKET_BYTES: f64 = 8.0;

/// The turns of each policy.
#[derive(Clone, Copy)]
pub struct Turns {
    /// Number of packets of a turn. The random sources of 2^18 hit almost every cache line of a million buckets.
    pub packets: usize,
    /// Number of turns.
    pub rounds: usize,
}

/// The policies of a comparison.
pub struct Contest {
    turns: Turns,
    packets: Packets,
    accepting: NativeFilter,
    entrants: Vec<Entrant>,
}

/// Packets with random sources.
struct Packets {
    ring: FrameSet,
    sources: SplitMix,
}

impl Packets {
    /// Average cost of a packet in cycles.
    fn cycles(&mut self, filter: &mut NativeFilter, packets: usize) -> Result<f64, Failure> {
        let Packets { ring, sources } = self;
        let write = |packet: &mut [u8]| traffic::set_source(packet, sources.draw() as u32);
        Ok(ring::measure(filter, 0, ring, packets, write)?)
    }
}

/// A policy and its turns.
struct Entrant {
    row: Row,
    filter: NativeFilter,
    turns: Vec<Turn>,
}

/// The average cost of a packet in a turn.
#[derive(Clone, Copy)]
struct Turn {
    cycles: f64,
    /// The difference to the accepting policy, which was measured immediately before.
    limit_cycles: f64,
}

impl Contest {
    /// A comparison with only the accepting policy. Packets have `packet_bytes` bytes without the frame check sequence.
    ///
    /// # Errors
    /// There is no clang.
    pub fn new(packet_bytes: usize, turns: Turns) -> Result<Self, Failure> {
        let accepting = policy("upstream { accept }\ndownstream { accept }\n", "")?;
        let packets = Packets { ring: traffic::packets_of(packet_bytes, &[0; RING]), sources: SplitMix::new(11) };
        Ok(Contest { turns, packets, accepting: accepting.native()?, entrants: Vec::new() })
    }

    /// Adds a policy that limits sources by a list.
    ///
    /// # Errors
    /// Files cannot be written, or there is no clang.
    pub fn enter(&mut self, row: Row, list: &str) -> Result<(), Failure> {
        const LIMITED: &str = "limits subnets { file \"limits.csv\" }\n\
            upstream { ip saddr limit @subnets; accept }\ndownstream { accept }\n";
        let row = row.number("subnets", list.lines().count() as f64);
        self.enter_policy(row, &policy(LIMITED, list)?)
    }

    /// Adds a policy that limits each source, with a table for `size` addresses.
    ///
    /// # Errors
    /// Files cannot be written, or there is no clang.
    pub fn enter_each(&mut self, row: Row, limit: &str, size: u32) -> Result<(), Failure> {
        let text = format!("upstream {{ limit each ip saddr {limit} size {size}; accept }}\ndownstream {{ accept }}\n");
        self.enter_policy(row.number("addresses", size.into()), &policy(&text, "")?)
    }

    fn enter_policy(&mut self, row: Row, limited: &Policy) -> Result<(), Failure> {
        let table_bytes: usize = limited.images()?.iter().map(|image| image.as_bytes().len()).sum();
        // This includes the unused first bucket and the bucket of sources without a subnet.
        let bucket_bytes = limited.limit_needs().buckets as f64 * BUCKET_BYTES;
        let row = row
            .of("engine", "native")
            .number("table_bytes", table_bytes as f64)
            .number("bucket_bytes", bucket_bytes)
            .number("bytes", table_bytes as f64 + bucket_bytes);
        self.entrants.push(Entrant { row, filter: limited.native()?, turns: Vec::new() });
        Ok(())
    }

    /// Measures all policies. Each row also has the ratio of its limit's cost to the cost of the limit of the first
    /// policy.
    ///
    /// # Errors
    /// A filter fails.
    pub fn rows(mut self) -> Result<Vec<Row>, Failure> {
        let Turns { packets, rounds } = self.turns;
        for _ in 0..rounds {
            for entrant in &mut self.entrants {
                let accepting = self.packets.cycles(&mut self.accepting, packets)?;
                let cycles = self.packets.cycles(&mut entrant.filter, packets)?;
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
