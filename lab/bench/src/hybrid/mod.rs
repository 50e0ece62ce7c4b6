//! `hybrid`: Fig. 7 to 9 of the hybrid paper. What a card's answers save the software, for each kind of metadata.
//!
//! As in the paper's section 4.1, a generator appends what a card would append: the card's interpreter. With `--rtl` a
//! second row has the frames of the card itself: its RTL in simulation, which must send the interpreter's frames byte
//! for byte. The software decides bursts in memory, written as a network card writes them. All ways take turns: the
//! policy alone on packets without trailers, and the same policy behind the card. Their counters over the same packets
//! must be equal (`agreement.rs`).

mod agreement;
mod chart;
mod packets;
mod rulesets;
mod simulated;

use crate::data::{Dataset, list};
use crate::need::Need;
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Axis, Member, Picks, Scenario};
use packets::{Kind, Packet};
use rulesets::Ruleset;
use simulated::Simulated;
use std::fs;
use std::path::PathBuf;
use weir_abi::{Counter, Link};
use weir_card::Profile;
use weir_card::category::Offload;
use weir_card::eval::{Card, Configuration};
use weir_card::split::Split;
use weir_command::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::sealed::Seals;
use weir_engine::{CardPort, Configured, Filter, NativeFilter, WithoutSeal};
use weir_instruments::ring;
use weir_loading::{Policy, load};
use weir_planning::advise;
use weir_planning::card::{CardImages, split_of};
use weir_policy::ir::RuleId;
use weir_policy::ir::eval::packet::Frame;

pub use chart::draw as plot;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "hybrid",
    paper: "Hybrid Fig. 7-9: up to 20.2% fewer cycles for random traffic, and 28.9% for specific traffic",
    needs: &[Need::Clang, Need::List("country.csv")],
    // The paper's card, and one like a small NIC of today.
    axes: &[
        Axis { name: "card", members: &[Member::plain("netfpga-sume"), Member::plain("open-nic")] },
        Axis { name: "traffic", members: &[Member::plain("random"), Member::plain("specific")] },
        Axis {
            name: "ruleset",
            members: &[
                Member::plain("ports"),
                Member::plain("ports-and-ttl"),
                Member::plain("lists"),
                Member::plain("lists-and-ports"),
                Member::plain("lists-then-ports"),
                Member::plain("use-case"),
            ],
        },
    ],
    smoke_only: &["open-nic", "specific", "lists-and-ports"],
    picks: Picks::Members,
    seconds: Scaled { full: 600, quick: 240, smoke: 4 },
    run,
    plot,
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of different packets. About as many are decided in a turn.
    packets: usize,
    /// Number of turns of each way.
    rounds: usize,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { packets: 1 << 17, rounds: 11 },
    quick: Settings { packets: 1 << 17, rounds: 3 },
    smoke: Settings { packets: 1 << 10, rounds: 1 },
};

/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
/// The packets that the distributor chooses by.
const SURVEYED: usize = 1 << 14;
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
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    if let Some(missing) = plan.options.rtl.as_ref().and_then(|_| Need::Program("verilator").missing(plan.options)) {
        return Err(Failure::Rejected(format!("weir: --rtl needs what is missing: {missing}")));
    }
    let simulated = |profile: &Profile| {
        let folder = plan.options.rtl.as_ref();
        folder.map(|folder| Simulated::new(folder, profile, TOKEN)).transpose()
    };
    let lists = Lists::write(plan)?;
    let kinds = Kind::ALL.into_iter().filter(|kind| plan.has("traffic", kind.name()));
    let packets = |kind: Kind| (kind, packets::packets(kind, settings.packets, &lists.allowed, &lists.blocked));
    let traffic: Vec<(Kind, Vec<Packet>)> = kinds.map(packets).collect();
    let mut rows = paper_rows();
    for name in plan.each("card") {
        let profile = weir_planning::card::profile(name)?;
        let mut card = Source { profile: &profile, simulated: simulated(&profile)? };
        // Traffic changes fastest: it changes no table of the card.
        for name_of_ruleset in plan.each("ruleset") {
            let ruleset = rulesets::named(name_of_ruleset);
            for &is_terminating in ruleset.groups() {
                let policy = || lists.policy(ruleset, is_terminating);
                for (kind, packets) in &traffic {
                    let row = Row::default().of("part", "cycles").of("card", name).of("traffic", kind.name());
                    let row = row.of("group", if is_terminating { "terminating" } else { "counting" });
                    let row = row.of("ruleset", ruleset.name);
                    let row = row.of("rules", ruleset.categories[usize::from(is_terminating)]);
                    rows.extend(rows_of(&row, &policy, &mut card, packets, settings.rounds)?);
                }
            }
        }
    }
    Ok(rows)
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
    fn write(plan: &Plan<'_>) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        let country = plan.file(Dataset::COUNTRY, folder.path())?;
        let addresses = |set: Dataset| Ok::<_, Failure>(plan.load(set)?.addresses());
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

/// What makes frames.
#[derive(Clone, Copy)]
enum Maker {
    /// The card's interpreter.
    Generator,
    Rtl,
}

impl Maker {
    /// The name in rows.
    const fn name(self) -> &'static str {
        match self {
            Maker::Generator => "generator",
            Maker::Rtl => "rtl",
        }
    }
}

/// Where frames come from.
struct Source<'p> {
    profile: &'p Profile,
    simulated: Option<Simulated>,
}

impl Source<'_> {
    fn makers(&self) -> &'static [Maker] {
        if self.simulated.is_some() { &[Maker::Generator, Maker::Rtl] } else { &[Maker::Generator] }
    }

    /// What the card makes of the packets, and its epoch.
    fn answered(
        &mut self,
        maker: Maker,
        policy: &Policy,
        split: &Split,
        packets: &[Packet],
    ) -> Result<(Vec<Vec<u8>>, u16), Failure> {
        let images = CardImages::new(policy, split);
        let Some(card) = self.simulated.as_mut().filter(|_| matches!(maker, Maker::Rtl)) else {
            return Ok((self.generated(split, &images, EPOCH, packets)?, EPOCH));
        };
        let epoch = card.configure(&split.card, images.memories())?.epoch;
        let left = card.handle(packets)?;
        equal(&left, &self.generated(split, &images, epoch, packets)?)?;
        Ok((left, epoch))
    }

    /// What the interpreter makes of the packets. It answers for all of them, so all trailers have the same length.
    fn generated(
        &self,
        split: &Split,
        images: &CardImages,
        epoch: u16,
        packets: &[Packet],
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let mut card = Card::new(self.profile);
        card.commit(Configuration { program: &split.card, lookups: images, token: TOKEN, epoch });
        let bytes = packets[0].len() + split.card.body.bytes() + weir_abi::card::SEAL_BYTES;
        let answer = |packet: &Packet| {
            let passed = card.handle(frame(packet)).filter(|passed| passed.len() == bytes);
            passed.ok_or_else(|| Failure::Runtime("the card has no answers for a packet of the generator".to_owned()))
        };
        packets.iter().map(answer).collect()
    }
}

/// The RTL has sent the generator's frames.
fn equal(left: &[Vec<u8>], generated: &[Vec<u8>]) -> Result<(), Failure> {
    match left.iter().zip(generated).position(|(left, generated)| left != generated) {
        None if left.len() == generated.len() => Ok(()),
        None => Err(Failure::Runtime(format!("of {} frames the RTL has sent {}", generated.len(), left.len()))),
        Some(at) => Err(Failure::Runtime(format!(
            "frame {at} of the RTL is not the generator's: {:02x?} instead of {:02x?}",
            left[at], generated[at]
        ))),
    }
}

/// The software behind a card, and the frames that come from it.
struct Behind {
    filter: NativeFilter,
    seals: Seals,
    frames: Vec<Vec<u8>>,
    trailer_bits: usize,
    /// Cycles a packet, by turn.
    cycles: Vec<f64>,
}

impl Behind {
    /// Offloads the wanted rules of a policy.
    fn new(
        policy: Policy,
        card: &mut Source<'_>,
        maker: Maker,
        packets: &[Packet],
        wanted: &dyn Fn(RuleId) -> bool,
    ) -> Result<Self, Failure> {
        let split = split_of(&policy, 0, card.profile, wanted);
        let (frames, epoch) = card.answered(maker, &policy, &split, packets)?;
        let port = CardPort { token: TOKEN, known: vec![], without_seal: WithoutSeal::Drop, control: None };
        let own = Configured { epoch, body: split.card.body.bytes() as u8 };
        Ok(Behind {
            trailer_bits: 8 * (frames[0].len() - packets[0].len()),
            filter: policy.with_answers(split.software).native()?,
            seals: Seals::new(&port, Some(own)),
            frames,
            cycles: vec![],
        })
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let cycles = turn(&self.frames, |burst, verdicts| {
            let sealed = self.filter.read_sealed(&self.seals, *burst);
            self.filter.decide_sealed(0, &sealed, verdicts)
        })?;
        self.cycles.push(cycles);
        Ok(())
    }

    /// What it counts for each packet once.
    fn counted(&mut self) -> Result<Vec<Counter>, Failure> {
        let seals = &self.seals;
        agreement::counted(&mut self.filter, &self.frames, |filter, burst, verdicts| {
            let sealed = filter.read_sealed(seals, *burst);
            filter.decide_sealed(0, &sealed, verdicts)
        })
    }
}

/// The ways behind a card with frames of one maker.
struct Ways {
    maker: Maker,
    /// With all rules that the card takes.
    all: Behind,
    /// With the plan, if that is neither none nor all of them.
    planned: Option<Behind>,
}

/// Measures one ruleset: the policy alone, with all that the card takes, and with what the distributor chooses. A row
/// for each maker of frames.
fn rows_of(
    row: &Row,
    policy: &dyn Fn() -> Result<Policy, Failure>,
    card: &mut Source<'_>,
    packets: &[Packet],
    rounds: usize,
) -> Result<Vec<Row>, Failure> {
    let plain = policy()?;
    let chosen = advise(&plain, 0, card.profile, packets.iter().take(SURVEYED).map(frame)).choice.rules;
    let able = split_of(&plain, 0, card.profile, &|_| true).rules;
    let able = able.iter().filter(|placed| placed.offload != Offload::Software).count();
    let mut alone = plain.native()?;
    let mut all_ways = Vec::new();
    for &maker in card.makers() {
        let all = Behind::new(policy()?, card, maker, packets, &|_| true)?;
        let planned = match chosen.is_empty() || chosen.len() == able {
            true => None,
            false => Some(Behind::new(policy()?, card, maker, packets, &|rule| chosen.contains(&rule))?),
        };
        all_ways.push(Ways { maker, all, planned });
    }
    let mut alone_cycles = Vec::new();
    for _ in 0..rounds {
        alone_cycles.push(turn(packets, |burst, verdicts| alone.decide(0, burst, verdicts))?);
        for Ways { all, planned, .. } in &mut all_ways {
            all.turn()?;
            planned.as_mut().map_or(Ok(()), Behind::turn)?;
        }
    }
    compare(&mut alone, packets, &mut all_ways)?;
    let row = row.clone().of("plan", if chosen.is_empty() { "refuses" } else { "offloads" });
    let row = row.number("card_rules", able as f64).number("planned_rules", chosen.len() as f64);
    Ok(all_ways.iter().map(|ways| ways.row(row.clone(), &alone_cycles, !chosen.is_empty())).collect())
}

/// Checks that every way counts the same for the packets.
fn compare(alone: &mut NativeFilter, packets: &[Packet], all_ways: &mut [Ways]) -> Result<(), Failure> {
    let counted = agreement::counted(alone, packets, |filter, burst, verdicts| filter.decide(0, burst, verdicts))?;
    for Ways { all, planned, .. } in all_ways {
        agreement::agree(&counted, &all.counted()?)?;
        if let Some(planned) = planned {
            agreement::agree(&counted, &planned.counted()?)?;
        }
    }
    Ok(())
}

impl Ways {
    /// The row. Without a plan for the card there is nothing but the policy alone, or all that the card takes.
    fn row(&self, row: Row, alone: &[f64], offloads: bool) -> Row {
        let (planned, planned_bits) = match &self.planned {
            Some(planned) => (&planned.cycles[..], planned.trailer_bits),
            None if offloads => (&self.all.cycles[..], self.all.trailer_bits),
            None => (alone, 0),
        };
        let spread = |samples: &[f64]| Spread::of(samples.to_vec()).expect("there were turns");
        let saved = |turns: &[f64]| {
            let percent = alone.iter().zip(turns).map(|(alone, behind)| 100.0 * (1.0 - behind / alone));
            spread(&percent.collect::<Vec<_>>())
        };
        row.of("frames", self.maker.name())
            .spread("alone_cycles_per_packet", spread(alone))
            .spread("card_cycles_per_packet", spread(&self.all.cycles))
            .spread("saved_percent", saved(&self.all.cycles))
            .number("trailer_bits", self.all.trailer_bits as f64)
            .spread("planned_cycles_per_packet", spread(planned))
            .spread("planned_saved_percent", saved(planned))
            .number("planned_trailer_bits", planned_bits as f64)
    }
}

fn frame(packet: &Packet) -> Frame<'_> {
    Frame { bytes: packet, wire_len: packet.len() as u32, time_ns: 0, link: Link::Ethernet }
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
    Ok(ring::measure_by(decide, &mut ring, frames.len(), write)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The card's answers, and the policy alone.
    #[test]
    fn counters_are_of_the_same_packets_whatever_was_measured_before() {
        let profile = weir_planning::card::profile("netfpga-sume").expect("it is built in");
        let mut card = Source { profile: &profile, simulated: None };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("ports.weir");
        fs::write(&path, rulesets::named("ports").policy(true, "")).expect("it can be written");
        let policy = || load(&path).expect("the policy is valid");
        let packets = packets::packets(Kind::Random, 3 * RING / 2, &[], &[]);
        let all = Behind::new(policy(), &mut card, Maker::Generator, &packets, &|_| true).expect("the card takes it");
        let mut ways = [Ways { maker: Maker::Generator, all, planned: None }];
        let mut alone = policy().native().expect("it compiles");
        // Measurements of different lengths: one way has had three turns more.
        for _ in 0..3 {
            ways[0].all.turn().expect("the filter decides");
        }
        compare(&mut alone, &packets, &mut ways).expect("both are the policy");
        assert_ne!(alone.counters(), ways[0].all.filter.counters());
        // Other packets are noticed.
        ways[0].all.frames.pop();
        let failure = compare(&mut alone, &packets, &mut ways).expect_err("a packet is missing");
        assert!(failure.message().starts_with("packets of "), "{}", failure.message());
    }
}
