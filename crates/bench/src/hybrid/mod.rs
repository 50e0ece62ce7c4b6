//! `hybrid`: software alone, and the same policy behind a card that leaves its answers in the packet ("A Hybrid
//! FPGA/Software Filtering Datapath", Fig. 6 to 9). As in the paper's Fig. 6, answers are made beforehand, here by the
//! card's interpreter. The time behind a card includes the comparison of seals and the removal of trailers.
//!
//! Packets of 60 bytes come from a ring of buffers, which is written before each burst as a network card would. Both
//! forms of a policy take turns on the same packets.

mod paper;
mod rulesets;

use crate::data::Dataset;
use crate::options::Options;
use crate::plot;
use crate::row::Row;
use rulesets::{Kind, Lists, Ruleset};
use weir::card::{CardImages, split_of};
use weir::failure::Failure;
use weir_abi::Link;
use weir_card::Profile;
use weir_card::category::Offload;
use weir_card::eval::{Card, Configuration};
use weir_card::split::Split;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::{self, Spread};
use weir_engine::sealed::{SealedBurst, Seals};
use weir_engine::sealed_filter::SealedFilter;
use weir_engine::traffic::{self, Mix, SplitMix};
use weir_engine::{CardPort, Configured, Filter, NativeFilter, WithoutSeal};
use weir_policy::ir::eval::packet::Frame;

/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
/// Number of different packets.
const PACKETS: usize = 1 << 15;
/// Number of packets of a turn.
const TURN: usize = 1 << 18;
/// Number of turns of each form.
const ROUNDS: usize = 11;
/// The secret of the card.
const TOKEN: u64 = 0x12_3456_789a;

/// Runs the scenario.
///
/// # Errors
/// Lists are missing, files cannot be written, or there is no clang.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let lists = Lists {
        country: options
            .data
            .join("country.csv")
            .canonicalize()
            .map_err(|error| Failure::file(&options.data, error))?,
        allowed: Dataset::ALLOW_100K.load(&options.data)?.addresses(),
        blocked: Dataset::BLOCK_178K.load(&options.data)?.addresses(),
    };
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        for ends in rulesets::ENDINGS {
            let ruleset = Ruleset::new(kind, ends, &lists)?;
            let mixes = [Mix::Random, Mix::Botnet { allowed: &lists.allowed, blocked: &lists.blocked }];
            rows.extend(ruleset_rows(&ruleset, &mixes)?);
        }
    }
    Ok(rows)
}

/// The profile of the paper's card, with room for every table.
fn profile() -> Profile {
    let text = Profile::shipped("netfpga-sume").expect("it comes with Weir");
    Profile { blocks: 1 << 16, ..Profile::parse(text).expect("it reads") }
}

fn ruleset_rows(ruleset: &Ruleset, mixes: &[Mix<'_>]) -> Result<Vec<Row>, Failure> {
    let profile = profile();
    let policy = ruleset.load()?;
    let split = split_of(&policy, 0, &profile, &|_| true);
    let images = CardImages::new(&policy, &split);
    let mut alone = policy.native()?;
    let behind = ruleset.load()?.with_answers(split.software.clone());
    let configured = Configured { epoch: 1, body: split.card.body.bytes() as u8 };
    let port = CardPort { token: TOKEN, known: vec![], without_seal: WithoutSeal::Drop, control: None };
    let seals = Seals::new(&port, Some(configured));
    let mut behind = SealedFilter::new(behind.native()?, seals.clone());
    let mut rows = Vec::new();
    for mix in mixes {
        let packets = packets(*mix);
        let mut card = Card::new(&profile);
        card.commit(Configuration { program: &split.card, lookups: &images, token: TOKEN, epoch: 1 });
        let frame = |bytes| Frame { bytes, wire_len: 60, link: Link::Ethernet, time_ns: 0 };
        let answered: Vec<Vec<u8>> = packets.iter().filter_map(|bytes| card.handle(frame(bytes))).collect();
        same_counts(&mut alone, &packets, &mut behind, &answered)?;
        let turns = turns(&mut alone, &packets, &mut behind, &answered)?;
        let front = front_cycles(&seals, &answered);
        rows.push(row(ruleset, &split, mix.name(), &turns).number("front_cycles_per_packet", front));
    }
    Ok(rows)
}

/// UDP packets to one of eight ports.
fn packets(mix: Mix<'_>) -> Vec<Vec<u8>> {
    let mut random = SplitMix::new(7);
    let sources = traffic::sources(PACKETS, mix, 11);
    let packet = |source: u32| {
        let mut packet = traffic::small_packet(source).to_vec();
        let port = rulesets::PORTS[random.below(rulesets::PORTS.len() as u64) as usize];
        packet[36..38].copy_from_slice(&port.to_be_bytes());
        packet
    };
    sources.into_iter().map(packet).collect()
}

/// Both forms must count the same, or their times say nothing.
fn same_counts(
    alone: &mut NativeFilter,
    packets: &[Vec<u8>],
    behind: &mut SealedFilter,
    answered: &[Vec<u8>],
) -> Result<(), Failure> {
    let counted = |filter: &mut dyn Filter, frames: &[Vec<u8>]| -> Result<Vec<u64>, Failure> {
        let before = filter.counters();
        let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)));
        measure::measure(filter, 0, &set, 1)?;
        Ok(filter.counters().iter().zip(before).map(|(now, then)| now.packets - then.packets).collect())
    };
    match counted(alone, packets)? == counted(behind, answered)? {
        true => Ok(()),
        false => Err(Failure::Runtime("software behind the card counts other packets than alone".to_owned())),
    }
}

/// Cycles a packet of each turn: alone, and behind the card.
fn turns(
    alone: &mut NativeFilter,
    packets: &[Vec<u8>],
    behind: &mut SealedFilter,
    answered: &[Vec<u8>],
) -> Result<[Vec<f64>; 2], Failure> {
    let ring = |frames: &[Vec<u8>]| {
        FrameSet::new(Link::Ethernet, frames.iter().take(RING).map(|frame| (&frame[..], frame.len() as u32)))
    };
    let (mut plain, mut trailed) = (ring(packets), ring(answered));
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        turns[0].push(cycles(alone, &mut plain, packets)?);
        turns[1].push(cycles(behind, &mut trailed, answered)?);
    }
    Ok(turns)
}

fn cycles(filter: &mut dyn Filter, ring: &mut FrameSet, frames: &[Vec<u8>]) -> Result<f64, Failure> {
    let mut next = frames.iter().cycle();
    let write = |buffer: &mut [u8]| buffer.copy_from_slice(next.next().expect("it has no end"));
    Ok(measure::measure_ring(filter, 0, ring, TURN, write)?)
}

/// Cycles a packet of the front alone: seals compared, trailers removed.
fn front_cycles(seals: &Seals, answered: &[Vec<u8>]) -> f64 {
    let frames = answered.iter().take(RING).map(|frame| (&frame[..], frame.len() as u32));
    let set = FrameSet::new(Link::Ethernet, frames);
    let mut samples: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS * 16 {
        let start = weir_engine::tsc::now();
        for burst in set.bursts() {
            std::hint::black_box(SealedBurst::read(seals, burst).trailers());
        }
        samples.push((weir_engine::tsc::now() - start) as f64 / set.len() as f64);
    }
    Spread::of(samples).expect("there are rounds").median
}

fn row(ruleset: &Ruleset, split: &Split, traffic: &str, [alone, behind]: &[Vec<f64>; 2]) -> Row {
    let fewer = alone.iter().zip(behind).map(|(alone, behind)| 100.0 * (1.0 - behind / alone)).collect();
    let spread = |turns: &Vec<f64>| Spread::of(turns.clone()).expect("there are turns");
    let mut metadata: Vec<u8> = split.rules.iter().flat_map(|rule| rule.metadata.clone()).collect();
    metadata.sort_unstable();
    metadata.dedup();
    let metadata: Vec<String> = metadata.iter().map(u8::to_string).collect();
    let offloaded = split.rules.iter().filter(|rule| rule.offload != Offload::Software).count();
    let row = Row::default()
        .of("ruleset", ruleset.kind.name())
        .of("rules", ruleset.ends)
        .of("traffic", traffic)
        .of("metadata", &metadata.join("+"))
        .spread("cycles_per_packet", spread(alone))
        .spread("cycles_per_packet_with_card", spread(behind))
        .spread("fewer_percent", Spread::of(fewer).expect("there are turns"))
        .number("offloaded_rules", offloaded as f64)
        .number("trailer_bytes", (split.card.body.bytes() + 8) as f64);
    match paper::fewer_percent(ruleset.kind, ruleset.ends, traffic) {
        Some(percent) => row.number("paper_fewer_percent", percent),
        None => row,
    }
}

/// Draws the share of cycles that the card saves.
pub fn draw(title: &str, rows: &[Row]) -> String {
    plot::bars(title, "fewer_percent", rows)
}
