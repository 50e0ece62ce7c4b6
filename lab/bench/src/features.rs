//! `features`: what it costs to observe the packets that pass, and to read what was counted. Packets belong to 16 to a
//! million protected addresses: all to one of them (hot), or to random ones (uniform). Each address has a cell of its
//! own, or a hash selects it. The same policy without and with `observe` takes turns, in native code and in the kernel.
//! The bare access to as many cells takes turns with them (`bare_native.c`, `bare_bpf.c`). Addresses are sources, which
//! traffic can set, so the chain is `downstream`.

use crate::live::memory_engine::thread_time;
use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Axis, Member, Picks, Scenario};
use crate::stream;
use std::fs;
use weir_abi::Target;
use weir_abi::features::REPLAY_SEED;
use weir_command::failure::Failure;
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::traffic::{self, SplitMix};
use weir_engine::{Bound, NativeFilter, ProgramShape, XdpFilter, tsc};
use weir_instruments::ring;
use weir_instruments::sources::SOURCES_MAX;
use weir_loading::{Policy, load};
use weir_state::BoundState;
use weir_state::feature_store::FeatureBinding;
use weir_state::features::{Features, Snapshot};

/// The bare access, in native code and in the kernel.
const BARE: &str = include_str!("features/bare_native.c");
const BARE_IN_KERNEL: &str = include_str!("features/bare_bpf.c");
/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
/// The chain whose packets are counted by source.
const DOWNSTREAM: usize = 1;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "features",
    paper: "smartnic section IV-B: features by a double map, read entry by entry in 30 us; the goal is 15 ns a packet in XDP, 10 cycles in native code, and a million entries in 50 ms",
    needs: &[Need::Clang],
    axes: &[
        Axis {
            name: "addresses",
            members: &[Member::plain("16"), Member::plain("1K"), Member::plain("64K"), Member::plain("1M")],
        },
        Axis { name: "cells", members: &[Member::plain("own"), Member::plain("hashed")] },
        Axis { name: "spread", members: &[Member::plain("hot"), Member::plain("uniform")] },
        Axis { name: "engine", members: &[Member::plain("native"), Member::with("xdp", &[Need::Root])] },
    ],
    smoke_only: &["16", "own", "uniform"],
    picks: Picks::Members,
    seconds: Scaled { full: 240, quick: 90, smoke: 4 },
    run,
    plot: |title, rows| plot::bars(title, "more_ns_per_packet", rows),
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of packets of a turn.
    packets: usize,
    /// Number of turns of each policy.
    rounds: usize,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { packets: 1 << 17, rounds: 11 },
    quick: Settings { packets: 1 << 17, rounds: 3 },
    smoke: Settings { packets: 1 << 10, rounds: 1 },
};

/// The number of protected addresses, and the length of the prefix that contains them.
const ADDRESSES: [(&str, u32); 4] = [("16", 28), ("1K", 22), ("64K", 16), ("1M", 12)];

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, there is no clang, or the kernel refuses the programs.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let mut rows = Vec::new();
    for name in plan.each("addresses") {
        let (_, length) = ADDRESSES.into_iter().find(|(known, _)| *known == name).expect("all members are there");
        let count = 1u32 << (32 - length);
        let all: Vec<u32> = (0..count).map(|host| 0x0a00_0000 + host).collect();
        let plain = policy("")?;
        let own = policy(&format!("observe {{ size {count}; inside 10.0.0.0/{length} }}").replace("size 16;", ""))?;
        // Half of the places are free.
        let hashed = policy(&format!("observe {{ size {} }}", (2 * count).max(64)))?;
        for &cells in plan.members("cells") {
            let observing = if cells == "own" { &own } else { &hashed };
            for &spread in plan.members("spread") {
                let sources = if spread == "hot" { &all[..1] } else { &all[..] };
                let row = Row::default().of("addresses", name).of("cells", cells).of("spread", spread);
                let mut random = SplitMix::new(23);
                for &engine in plan.members("engine") {
                    let measured: Measured = if engine == "native" { native } else { kernel };
                    let mut contest = Contest { plain: &plain, observing, sources, random: &mut random, settings };
                    rows.push(measured(&mut contest, row.clone().of("engine", engine))?);
                }
            }
        }
    }
    Ok(rows)
}

/// Measures on an engine.
type Measured = fn(&mut Contest<'_>, Row) -> Result<Row, Failure>;

/// The policies that take turns, and their packets.
struct Contest<'a> {
    plain: &'a Policy,
    observing: &'a Policy,
    sources: &'a [u32],
    random: &'a mut SplitMix,
    settings: Settings,
}

fn policy(observe: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let path = directory.path().join("features.weir");
    let text = format!("{observe}\nupstream {{ accept }}\ndownstream {{ tcp dport 23 drop; accept }}\n");
    fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    Ok(load(&path)?)
}

fn native(contest: &mut Contest<'_>, row: Row) -> Result<Row, Failure> {
    let Contest { plain, observing, sources, random, settings } = contest;
    let mut filters = [plain.native()?, observing.native()?, bare(observing)?];
    let mut ring = traffic::packets_from(&[0; RING]);
    let cycles = |filter: &mut NativeFilter, ring: &mut FrameSet, random: &mut SplitMix| {
        let write = |packet: &mut [u8]| traffic::set_source(packet, sources[random.draw() as usize % sources.len()]);
        ring::measure(filter, DOWNSTREAM, ring, settings.packets, write)
    };
    let mut turns: [Vec<f64>; 3] = Default::default();
    for _ in 0..settings.rounds {
        for (filter, turns) in filters.iter_mut().zip(&mut turns) {
            turns.push(cycles(filter, &mut ring, random)?);
        }
    }
    let features = filters[1].features().expect("the policy observes").clone();
    let mut fill = || {
        // Each address once at least.
        let mut next = sources.iter().cycle();
        let write = |packet: &mut [u8]| traffic::set_source(packet, *next.next().expect("there are sources"));
        Ok(ring::measure(&mut filters[1], DOWNSTREAM, &mut ring, sources.len(), write).map(drop)?)
    };
    let read = reading(&features, &mut fill, sources.len(), settings.rounds)?;
    let of = |turns: &[f64]| Spread::of(turns.to_vec()).expect("each had its turns");
    let more: Vec<f64> = turns[1].iter().zip(&turns[0]).map(|(own, plain)| own - plain).collect();
    let times: Vec<f64> = more.iter().zip(&turns[2]).map(|(more, bare)| more / bare).collect();
    let row = row.spread("cycles_per_packet", of(&turns[1])).spread("more_cycles_per_packet", of(&more));
    let row = row.spread("bare_cycles_per_packet", of(&turns[2])).spread("more_to_bare", of(&times));
    Ok(row.spread("more_ns_per_packet", of(&more).scaled(1e9 / tsc::frequency_hz())).spread("read_cpu_ms", read))
}

/// The bare access to the cells of a policy, in sheets of their own.
fn bare(observing: &Policy) -> Result<NativeFilter, Failure> {
    let shape = observing.program.observe.as_ref().expect("the policy observes").shape();
    let cells = shape.size;
    let features = Features::of_process(shape, REPLAY_SEED);
    let source = BARE.replace("CELLS", &cells.to_string());
    let object = Clang::find()?.native("bare", &source, Cpu::Native)?.object;
    let shape = ProgramShape { chains: vec!["upstream".to_owned(), "downstream".to_owned()], ..observing.shape() };
    let state = BoundState { features: FeatureBinding::alone(features), ..BoundState::default() };
    let data = Bound { state, ..Bound::default() };
    Ok(NativeFilter::load("bare", &object, &shape, data)?)
}

fn kernel(contest: &mut Contest<'_>, row: Row) -> Result<Row, Failure> {
    let Contest { plain, observing, sources, random, settings } = contest;
    let mut filters =
        [in_kernel(plain)?, in_kernel(observing)?, bare_in_kernel(observing, 0)?, bare_in_kernel(observing, 1)?];
    let mut drawn = sources.to_vec();
    for last in (1..drawn.len()).rev() {
        drawn.swap(last, random.draw() as usize % (last + 1));
    }
    while drawn.len() < SOURCES_MAX {
        drawn.extend_from_within(..);
    }
    let run = |filter: &mut XdpFilter| stream::cost(filter, DOWNSTREAM, &drawn);
    let mut turns: [Vec<f64>; 4] = Default::default();
    for _ in 0..settings.rounds {
        for (filter, turns) in filters.iter_mut().zip(&mut turns) {
            turns.push(run(filter)?);
        }
    }
    let features = filters[1].features().expect("the policy observes").clone();
    let read = reading(&features, &mut || run(&mut filters[1]).map(drop), sources.len(), settings.rounds)?;
    let of = |turns: &[f64]| Spread::of(turns.to_vec()).expect("each had its turns");
    let more: Vec<f64> = turns[1].iter().zip(&turns[0]).map(|(own, plain)| own - plain).collect();
    let bare: Vec<f64> = turns[3].iter().zip(&turns[2]).map(|(touching, without)| touching - without).collect();
    let row = row.spread("ns_per_packet", of(&turns[1])).spread("more_ns_per_packet", of(&more));
    Ok(row.spread("bare_ns_per_packet", of(&bare)).spread("read_cpu_ms", read))
}

fn in_kernel(policy: &Policy) -> Result<XdpFilter, Failure> {
    let (artifact, data) = (policy.artifact()?, policy.bind_kernel_replay()?);
    stream::load_chain("downstream", artifact.source(Target::Bpf), &artifact.shape, &data)
}

/// The bare access in the kernel to the cells of a policy, or what remains of it without the access.
fn bare_in_kernel(observing: &Policy, touches: u32) -> Result<XdpFilter, Failure> {
    let (artifact, data) = (observing.artifact()?, observing.bind_kernel_replay()?);
    let cells = observing.program.observe.as_ref().expect("the policy observes").shape().size;
    let source = BARE_IN_KERNEL.replace("CELLS", &cells.to_string()).replace("BARE_TOUCHES", &touches.to_string());
    stream::load_chain("downstream", &source, &artifact.shape, &data)
}

/// Milliseconds of CPU time of an exchange after all addresses were counted.
fn reading(
    features: &Features,
    fill: &mut dyn FnMut() -> Result<(), Failure>,
    addresses: usize,
    rounds: usize,
) -> Result<Spread, Failure> {
    let mut snapshot = Snapshot::default();
    let mut exchange = || {
        let start = thread_time();
        let exchanged = features.exchange(&mut snapshot);
        exchanged.map_err(|error| Failure::Runtime(error.to_string()))?;
        Ok(((thread_time() - start).as_secs_f64() * 1e3, snapshot.directions[DOWNSTREAM].entries.len()))
    };
    // Touches both sheets and the snapshot's memory first.
    for _ in 0..2 {
        fill()?;
        let _first: Result<_, Failure> = exchange();
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        fill()?;
        let (time, entries): (f64, usize) = exchange()?;
        if entries < addresses - addresses / 8 {
            return Err(Failure::Runtime(format!("{entries} of {addresses} addresses were counted")));
        }
        times.push(time);
    }
    Ok(Spread::of(times).expect("there were rounds"))
}
