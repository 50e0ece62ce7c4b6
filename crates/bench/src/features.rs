//! `features`: what it costs to observe the packets that pass, and to read what was counted. Packets belong to 16 to a
//! million protected addresses: all to one of them (hot), or to random ones (uniform). Each address has a cell of its
//! own, or a hash selects it. The same policy without and with `observe` takes turns, in native code and in the kernel.
//! The bare access to as many cells takes turns with them (`bare_native.c`, `bare_bpf.c`). Addresses are sources, which
//! traffic can set, so the chain is `downstream`.

use crate::live::memory_engine::thread_time;
use crate::options::Options;
use crate::row::Row;
use crate::stream;
use std::fs;
use weir::failure::Failure;
use weir_abi::Target;
use weir_abi::features::REPLAY_SEED;
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::{self, Spread};
use weir_engine::traffic::{self, SplitMix};
use weir_engine::xdp::stream::SOURCES_MAX;
use weir_engine::{Bound, NativeFilter, ProgramShape, XdpFilter, tsc};
use weir_loading::{Policy, load};
use weir_state::features::{Features, Snapshot};

/// The bare access, in native code and in the kernel.
const BARE: &str = include_str!("features/bare_native.c");
const BARE_IN_KERNEL: &str = include_str!("features/bare_bpf.c");
/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
/// Number of packets of a turn.
const PACKETS: usize = 1 << 17;
/// Number of turns of each policy.
const ROUNDS: usize = 11;
/// The chain whose packets are counted by source.
const DOWNSTREAM: usize = 1;

/// The number of protected addresses, and the length of the prefix that contains them.
const ADDRESSES: [(&str, u32); 4] = [("16", 28), ("1K", 22), ("64K", 16), ("1M", 12)];
/// Which of them packets belong to.
const SPREADS: [&str; 2] = ["hot", "uniform"];

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, there is no clang, or the kernel refuses the programs.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let selected = Selected::of(&options.only)?;
    let mut rows = Vec::new();
    for (name, length) in ADDRESSES.into_iter().filter(|(name, _)| selected.has(name)) {
        let count = 1u32 << (32 - length);
        let all: Vec<u32> = (0..count).map(|host| 0x0a00_0000 + host).collect();
        let plain = policy("")?;
        let own = policy(&format!("observe {{ size {count}; inside 10.0.0.0/{length} }}").replace("size 16;", ""))?;
        // Half of the places are free.
        let hashed = policy(&format!("observe {{ size {} }}", (2 * count).max(64)))?;
        for (cells, observing) in
            [("own", &own), ("hashed", &hashed)].into_iter().filter(|(cells, _)| selected.has(cells))
        {
            for spread in SPREADS.into_iter().filter(|spread| selected.has(spread)) {
                let sources = if spread == "hot" { &all[..1] } else { &all[..] };
                let row = Row::default().of("addresses", name).of("cells", cells).of("spread", spread);
                let mut random = SplitMix::new(23);
                for (engine, measured) in [("native", native as Measured), ("xdp", kernel)] {
                    if selected.has(engine) {
                        rows.extend(measured(
                            &plain,
                            observing,
                            sources,
                            &mut random,
                            &row.clone().of("engine", engine),
                        )?);
                    }
                }
            }
        }
    }
    Ok(rows)
}

/// The rows of an engine.
type Measured = fn(&Policy, &Policy, &[u32], &mut SplitMix, &Row) -> Result<Vec<Row>, Failure>;

/// The names in `--only`. A name excludes the others of its kind.
struct Selected<'a>(&'a [String]);

impl<'a> Selected<'a> {
    /// The kinds of names.
    const KINDS: [&'static [&'static str]; 4] =
        [&["16", "1K", "64K", "1M"], &["own", "hashed"], &SPREADS, &["native", "xdp"]];

    fn of(only: &'a [String]) -> Result<Self, Failure> {
        match only.iter().find(|name| !Self::KINDS.concat().contains(&name.as_str())) {
            Some(unknown) => {
                let known = Self::KINDS.concat().join(", ");
                Err(Failure::Rejected(format!("weir: --only {unknown}: unknown; known are {known}")))
            }
            None => Ok(Selected(only)),
        }
    }

    fn has(&self, name: &str) -> bool {
        let kind = Self::KINDS.into_iter().find(|kind| kind.contains(&name)).expect("rows have known names");
        self.0.iter().any(|only| only == name) || !self.0.iter().any(|only| kind.contains(&only.as_str()))
    }
}

fn policy(observe: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let path = directory.path().join("features.weir");
    let text = format!("{observe}\nupstream {{ accept }}\ndownstream {{ tcp dport 23 drop; accept }}\n");
    fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    Ok(load(&path)?)
}

fn native(
    plain: &Policy,
    observing: &Policy,
    sources: &[u32],
    random: &mut SplitMix,
    row: &Row,
) -> Result<Vec<Row>, Failure> {
    let mut filters = [plain.native()?, observing.native()?, bare(observing)?];
    let mut ring = traffic::packets_from(&[0; RING]);
    let cycles = |filter: &mut NativeFilter, ring: &mut FrameSet, random: &mut SplitMix| {
        let write = |packet: &mut [u8]| traffic::set_source(packet, sources[random.draw() as usize % sources.len()]);
        measure::measure_ring(filter, DOWNSTREAM, ring, PACKETS, write)
    };
    let mut turns: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (filter, turns) in filters.iter_mut().zip(&mut turns) {
            turns.push(cycles(filter, &mut ring, random)?);
        }
    }
    let features = filters[1].features().expect("the policy observes").clone();
    let mut fill = || {
        // Each address once at least.
        let mut next = sources.iter().cycle();
        let write = |packet: &mut [u8]| traffic::set_source(packet, *next.next().expect("there are sources"));
        Ok(measure::measure_ring(&mut filters[1], DOWNSTREAM, &mut ring, sources.len(), write).map(drop)?)
    };
    let read = reading(&features, &mut fill, sources.len())?;
    let of = |turns: &[f64]| Spread::of(turns.to_vec()).expect("each had its turns");
    let more: Vec<f64> = turns[1].iter().zip(&turns[0]).map(|(own, plain)| own - plain).collect();
    let times: Vec<f64> = more.iter().zip(&turns[2]).map(|(more, bare)| more / bare).collect();
    let row = row.clone().spread("cycles_per_packet", of(&turns[1])).spread("more_cycles_per_packet", of(&more));
    let row = row.spread("bare_cycles_per_packet", of(&turns[2])).spread("more_to_bare", of(&times));
    Ok(vec![row.spread("more_ns_per_packet", of(&more).scaled(1e9 / tsc::frequency_hz())).spread("read_cpu_ms", read)])
}

/// The bare access to the cells of a policy, in sheets of their own.
fn bare(observing: &Policy) -> Result<NativeFilter, Failure> {
    let shape = observing.program.observe.as_ref().expect("the policy observes").shape();
    let cells = shape.size;
    let features = Features::of_process(shape, REPLAY_SEED);
    let source = BARE.replace("CELLS", &cells.to_string());
    let object = Clang::find()?.native("bare", &source, Cpu::Native)?.object;
    let shape = ProgramShape { chains: vec!["upstream".to_owned(), "downstream".to_owned()], ..observing.shape() };
    let data = Bound { features: Some(features), ..Bound::default() };
    Ok(NativeFilter::load("bare", &object, &shape, data)?)
}

fn kernel(
    plain: &Policy,
    observing: &Policy,
    sources: &[u32],
    random: &mut SplitMix,
    row: &Row,
) -> Result<Vec<Row>, Failure> {
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
    for _ in 0..ROUNDS {
        for (filter, turns) in filters.iter_mut().zip(&mut turns) {
            turns.push(run(filter)?);
        }
    }
    let features = filters[1].features().expect("the policy observes").clone();
    let read = reading(&features, &mut || run(&mut filters[1]).map(drop), sources.len())?;
    let of = |turns: &[f64]| Spread::of(turns.to_vec()).expect("each had its turns");
    let more: Vec<f64> = turns[1].iter().zip(&turns[0]).map(|(own, plain)| own - plain).collect();
    let bare: Vec<f64> = turns[3].iter().zip(&turns[2]).map(|(touching, without)| touching - without).collect();
    let row = row.clone().spread("ns_per_packet", of(&turns[1])).spread("more_ns_per_packet", of(&more));
    Ok(vec![row.spread("bare_ns_per_packet", of(&bare)).spread("read_cpu_ms", read)])
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
    for _ in 0..ROUNDS {
        fill()?;
        let (time, entries): (f64, usize) = exchange()?;
        if entries < addresses - addresses / 8 {
            return Err(Failure::Runtime(format!("{entries} of {addresses} addresses were counted")));
        }
        times.push(time);
    }
    Ok(Spread::of(times).expect("there were rounds"))
}
