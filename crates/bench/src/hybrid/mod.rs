//! `hybrid`: Fig. 7 to 9 of the hybrid paper. What a card's answers save the software, for each kind of metadata.
//!
//! As in the paper's section 4.1, a generator appends what a card would append: the card's interpreter, which its RTL
//! equals bit for bit (`crates/card/tests/rtl`). The software decides bursts in memory, written as a network card
//! writes them. Both ways take turns: the policy alone on packets without trailers, and the same policy behind the card.
//! Before they are measured, their counters over the same packets must be equal.

mod chart;
mod packets;
mod rulesets;

use crate::data::{Dataset, list};
use crate::options::Options;
use crate::row::Row;
use packets::{Kind, Packet};
use rulesets::{RULESETS, Ruleset};
use std::fs;
use std::path::{Path, PathBuf};
use weir::card::{CardImages, split_of};
use weir::failure::Failure;
use weir_abi::{Counter, Link};
use weir_card::Profile;
use weir_card::eval::{Card, Configuration};
use weir_card::split::Split;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::{self, Spread};
use weir_engine::sealed::{SealedBurst, Seals};
use weir_engine::{CardPort, Configured, Filter, NativeFilter, WithoutSeal};
use weir_loading::{Policy, load};
use weir_policy::ir::eval::packet::Frame;

pub use chart::svg as plot;

/// Number of different packets. As many are decided in a turn.
const PACKETS: usize = 1 << 17;
/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
const ROUNDS: usize = 11;
const QUICK_ROUNDS: usize = 3;

/// The paper's card, and one like a small NIC of today.
const CARDS: [&str; 2] = ["netfpga-sume", "open-nic"];
const TOKEN: u64 = 0x12_3456_789a;
const EPOCH: u16 = 1;

/// The lists of all rulesets, in a folder.
struct Lists {
    folder: tempfile::TempDir,
    country: PathBuf,
    allowed: Vec<u32>,
    blocked: Vec<u32>,
}

/// Runs the scenario.
///
/// # Errors
/// A list is missing, files cannot be written, there is no clang, or card and software together are not the policy.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let lists = Lists::write(&options.data)?;
    let rounds = if options.quick { QUICK_ROUNDS } else { ROUNDS };
    let kinds = picked(options, Kind::ALL.to_vec(), |kind| kind.name());
    let rulesets = picked(options, RULESETS.iter().collect(), |ruleset| ruleset.name);
    let mut rows = paper_rows();
    for name in picked(options, CARDS.to_vec(), |name| name) {
        let profile = weir::card::profile(name)?;
        for &kind in &kinds {
            let packets = packets::packets(kind, PACKETS, &lists.allowed, &lists.blocked);
            for &ruleset in &rulesets {
                for &is_terminating in ruleset.groups() {
                    let row = Row::default().of("part", "cycles").of("card", name).of("traffic", kind.name());
                    let row = row.of("group", if is_terminating { "terminating" } else { "counting" });
                    let row = row.of("ruleset", ruleset.name);
                    let row = row.of("rules", ruleset.categories[usize::from(is_terminating)]);
                    let policy = || lists.policy(ruleset, is_terminating);
                    rows.push(row_of(row, [policy()?, policy()?], &profile, &packets, rounds)?);
                }
            }
        }
    }
    Ok(rows)
}

/// What `--only` selects of cards, kinds of traffic or rulesets: all of them if it names none.
fn picked<T: Copy>(options: &Options, all: Vec<T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let named: Vec<T> = all.iter().copied().filter(|one| options.only.iter().any(|only| only == name(one))).collect();
    if named.is_empty() { all } else { named }
}

/// What the paper says in numbers: fewer cycles, in per cent (section 4.1).
fn paper_rows() -> Vec<Row> {
    let row = |traffic: &str, ruleset: &str, saved: f64| {
        let row = Row::default().of("part", "paper").of("card", "netfpga-sume").of("traffic", traffic);
        row.of("group", "terminating").of("ruleset", ruleset).number("saved_percent", saved)
    };
    vec![
        row("random", "lists-then-ports", 20.2),
        row("specific", "ports", 28.9),
        row("random", "use-case", 17.8),
        row("specific", "use-case", 23.6),
    ]
}

impl Lists {
    fn write(data: &Path) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        let country = data.join("country.csv");
        let country = country.canonicalize().map_err(|error| {
            Failure::Rejected(format!("weir: {}: {error}; set the directory of lists with --data", country.display()))
        })?;
        let addresses = |set: Dataset| Ok::<_, Failure>(set.load(data)?.addresses());
        let (allowed, blocked) = (addresses(Dataset::ALLOW_100K)?, addresses(Dataset::BLOCK_178K)?);
        let lists = Lists { folder, country, allowed, blocked };
        lists.put("allow.txt", &list(&lists.allowed))?;
        lists.put("block.txt", &list(&lists.blocked))?;
        Ok(lists)
    }

    fn put(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.path().join(name);
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
        Ok(path)
    }

    fn policy(&self, ruleset: &Ruleset, is_terminating: bool) -> Result<Policy, Failure> {
        let text = ruleset.policy(is_terminating, &self.country.display().to_string());
        Ok(load(&self.put(&format!("{}.weir", ruleset.name), &text)?)?)
    }
}

/// The software behind a card.
struct Behind {
    filter: NativeFilter,
    seals: Seals,
}

/// Measures one ruleset: the policy alone, and behind the card.
fn row_of(
    row: Row,
    [policy, again]: [Policy; 2],
    profile: &Profile,
    packets: &[Packet],
    rounds: usize,
) -> Result<Row, Failure> {
    let split = split_of(&policy, 0, profile, &|_| true);
    let frames = answered(&policy, profile, &split, packets)?;
    let body = split.card.body.bytes();
    let trailer_bits = 8 * (frames[0].len() - packets[0].len());
    let mut alone = policy.native()?;
    let port = CardPort { token: TOKEN, known: vec![], without_seal: WithoutSeal::Drop, control: None };
    let own = Configured { epoch: EPOCH, body: body as u8 };
    let filter = again.with_answers(split.software).native()?;
    let mut behind = Behind { filter, seals: Seals::new(&port, Some(own)) };

    let mut turns: [Vec<f64>; 2] = Default::default();
    // The first turn warms up.
    for _ in 0..=rounds {
        turns[0].push(turn(packets, |burst, verdicts| alone.decide(0, burst, verdicts))?);
        turns[1].push(turn(&frames, |burst, verdicts| {
            behind.filter.decide_sealed(0, &SealedBurst::read(&behind.seals, *burst), verdicts)
        })?);
    }
    agree(&alone.counters(), &behind.filter.counters())?;
    let [alone, behind] = turns.map(|turns| turns[1..].to_vec());
    let saved = alone.iter().zip(&behind).map(|(alone, behind)| alone - behind);
    let percent = alone.iter().zip(&behind).map(|(alone, behind)| 100.0 * (1.0 - behind / alone));
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("there were turns");
    let (saved, percent) = (spread(saved.collect()), spread(percent.collect()));
    Ok(row
        .spread("alone_cycles_per_packet", spread(alone))
        .spread("card_cycles_per_packet", spread(behind))
        .spread("saved_cycles_per_packet", saved)
        .spread("saved_percent", percent)
        .number("trailer_bits", trailer_bits as f64))
}

/// What the card makes of the packets. It answers for all of them, so all trailers have the same length.
fn answered(policy: &Policy, profile: &Profile, split: &Split, packets: &[Packet]) -> Result<Vec<Vec<u8>>, Failure> {
    let images = CardImages::new(policy, split);
    let mut card = Card::new(profile);
    card.commit(Configuration { program: &split.card, lookups: &images, token: TOKEN, epoch: EPOCH });
    let bytes = packets[0].len() + split.card.body.bytes() + weir_abi::card::SEAL_BYTES;
    let frame = |packet: &Packet| {
        let frame = Frame { bytes: packet, wire_len: packet.len() as u32, time_ns: 0, link: Link::Ethernet };
        let passed = card.handle(frame).filter(|passed| passed.len() == bytes);
        passed.ok_or_else(|| Failure::Runtime("the card has no answers for a packet of the generator".to_owned()))
    };
    packets.iter().map(frame).collect()
}

/// Decides all frames once. Each is written into a buffer of the ring before, which is not measured.
fn turn<F: AsRef<[u8]>>(
    frames: &[F],
    decide: impl FnMut(&weir_engine::FrameBurst<'_>, &mut [weir_abi::Verdict]) -> Result<(), weir_engine::EngineError>,
) -> Result<f64, Failure> {
    let first = frames[0].as_ref();
    let mut ring = FrameSet::new(Link::Ethernet, (0..RING).map(|_| (first, first.len() as u32)));
    let mut next = frames.iter().cycle();
    let write = |buffer: &mut [u8]| buffer.copy_from_slice(next.next().expect("they repeat").as_ref());
    Ok(measure::measure_ring_by(decide, &mut ring, frames.len(), write)?)
}

/// Both ways have decided the same packets.
fn agree(alone: &[Counter], behind: &[Counter]) -> Result<(), Failure> {
    match alone == behind {
        true => Ok(()),
        false => Err(Failure::Runtime(format!("card and software count {behind:?}, the policy alone {alone:?}"))),
    }
}
