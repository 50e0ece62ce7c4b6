//! `weir card plan`: which rules a card should take, by a policy, a profile and a capture.

use crate::captures;
use crate::card::{CardImages, CardTables, chain_name, profile, split_of};
use crate::cli::CardPlanOptions;
use crate::failure::Failure;
use crate::report;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use weir_abi::{Layout, Reason, Verdict};
use weir_card::Profile;
use weir_card::category::Offload;
use weir_card::distributor::cost::{Bill, Costs, Link, Traffic};
use weir_card::distributor::{Advice, Advised, Distributor};
use weir_card::eval::{Card, Configuration};
use weir_card::receive::{Configured, Port, Received};
use weir_card::split::{Placed, Split};
use weir_loading::{Policy, PolicyFile, eval};
use weir_policy::ir::eval::{Charge, Evaluator, Observed, Observer};
use weir_policy::ir::match_tree::rules;
use weir_policy::ir::{Direction, Find, LimiterId, RuleId, RuleSlotId, Test};
use weir_policy::pass::choose_layouts::CostModel;

/// Cycles of native code on a server core of 2023 (`docs/tables-explained.md`); those of answers are estimates.
const RECEIVE: f64 = 60.0;
const PARSE: f64 = 16.0;
const SEAL: f64 = 3.0;
const BYTE: f64 = 0.05;
const TEST: f64 = 1.0;
/// The share of a lookup in D16X4R that is its second half.
const FINISH_SHARE: f64 = 0.5;
/// Cycles of a lookup for which there is no estimate.
const LOOKUP: f64 = 10.0;
/// The load of the link up to which a choice is allowed.
const LOAD_MAX: f64 = 0.95;
/// The link between card and host, if nobody says it.
pub const LINK_GBIT: f64 = 10.0;
/// Bytes of a frame without a capture, and of preamble, FCS and gap.
const FRAME_BYTES: f64 = 60.0;
const OVERHEAD_BYTES: f64 = 24.0;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct PlanReport {
    policy: String,
    profile: String,
    chain: String,
    /// Packets of the capture; 0 without one.
    packets: u64,
    /// Packets a second that the plan is for.
    pps: f64,
    /// The share of packets that the card answers for.
    answered: f64,
    /// Whether any rule is worth the card.
    offloads: bool,
    alone: BillReport,
    /// All rules that the card can take.
    all: BillReport,
    chosen: BillReport,
    why: String,
    rules: Vec<RulePlan>,
}

/// What a packet costs. All cycles are estimates.
#[derive(Debug, Serialize)]
struct BillReport {
    cycles_per_packet: f64,
    trailer_bits: usize,
    /// The share of packets that the card drops.
    dropped: f64,
    /// The load of the link between card and host: 1 is all of it.
    link_load: f64,
}

#[derive(Debug, Serialize)]
struct RulePlan {
    at: String,
    category: String,
    /// `hardware`, `hybrid` or `software`.
    offload: &'static str,
    /// Cycles a packet that offloading the rule saves beside the rest of the choice; less than 0 if it costs more than it
    /// saves, null if the card cannot take it.
    saves_cycles: Option<f64>,
    /// Bytes of metadata that it takes beside the rest of the choice.
    metadata_bytes: usize,
    /// Shares of packets that the rule tests and matches.
    reached: f64,
    matched: f64,
    why: String,
}

/// The costs of native code, by the compiler's own estimates of lookups.
struct NativeCosts<'p> {
    policy: &'p Policy,
}

impl NativeCosts<'_> {
    fn expected(&self, slot: usize, layout: Layout) -> Option<f64> {
        self.policy.text()?.lowered.plan.images[slot].reason.expected_cycles(layout)
    }
}

impl Costs for NativeCosts<'_> {
    fn receive(&self) -> f64 {
        RECEIVE
    }

    fn parse(&self) -> f64 {
        PARSE
    }

    fn seal(&self) -> f64 {
        SEAL
    }

    fn byte(&self) -> f64 {
        BYTE
    }

    fn test(&self) -> f64 {
        TEST
    }

    fn lookup(&self, find: Find) -> f64 {
        let slot = usize::from(find.slot.0);
        self.expected(slot, self.policy.program.slots[slot].layout).unwrap_or(LOOKUP)
    }

    fn finish(&self, table: &str) -> f64 {
        let slots = self.policy.program.slots.iter();
        let slot = slots.enumerate().find(|(_, slot)| slot.tables() == [table]);
        let whole = slot.and_then(|(slot, _)| self.expected(slot, Layout::Dxr16x4));
        whole.unwrap_or(LOOKUP) * FINISH_SHARE
    }
}

/// Runs the command.
///
/// # Errors
/// The policy, the profile or the capture cannot be read.
pub fn run(options: &CardPlanOptions) -> Result<(), Failure> {
    let policy = PolicyFile::open(&options.policy)?.check(&CostModel::default())?;
    report::say_warnings(&policy);
    if policy.is_bundle() {
        return Err(Failure::Rejected("weir: a plan needs the text of a policy, not a bundle".to_owned()));
    }
    let profile = profile(&options.card)?;
    let chain = policy.chain(options.posture.as_deref(), Direction::Upstream)?;
    let all = split_of(&policy, chain, &profile, &|_| true);
    let (packets, mut traffic) = match &options.input {
        Some(input) => measured(&policy, &profile, &all, input)?,
        None => (0, assumed(&policy, chain)),
    };
    let advised = advise(&policy, chain, &profile, &mut traffic, (options.link, options.pps));
    let chosen = split_of(&policy, chain, &profile, &|rule| advised.choice.rules.contains(&rule));
    let report = PlanReport {
        policy: options.policy.display().to_string(),
        profile: profile.name.clone(),
        chain: chain_name(&policy.program.chains[chain]),
        packets,
        pps: traffic.pps,
        answered: traffic.answered,
        offloads: !advised.choice.rules.is_empty(),
        alone: bill(&advised.alone),
        all: bill(&advised.all),
        chosen: bill(&advised.choice.bill),
        why: why(&advised),
        rules: plans(&policy, &all, &chosen, &advised, &traffic),
    };
    if options.json { report::print_json(&report) } else { report::print(&describe(&report)) }
}

/// What the distributor says about a chain. Without packets a second, half of what the link of so many Gbit/s carries.
fn advise(
    policy: &Policy,
    chain: usize,
    profile: &Profile,
    traffic: &mut Traffic,
    (gbit, pps): (f64, Option<f64>),
) -> Advised {
    let link = Link { bits_per_s: gbit * 1e9, load_max: LOAD_MAX };
    let half = link.bits_per_s / 2.0 / 8.0 / (traffic.frame_bytes + OVERHEAD_BYTES);
    traffic.pps = pps.unwrap_or(half);
    let lowered = &policy.text().expect("bundles were refused").lowered;
    let distributor = Distributor {
        program: &lowered.program,
        counters: &lowered.counters,
        chain,
        profile,
        sizes: &CardTables::new(policy),
        costs: &NativeCosts { policy },
        link,
    };
    distributor.choose(traffic)
}

/// The rules of a chain that are worth a card if every packet has answers, reaches every rule and matches none: what
/// `weir card plan` chooses without a capture.
///
/// # Panics
/// The policy is a bundle.
pub fn worth(policy: &Policy, chain: usize, profile: &Profile) -> BTreeSet<RuleId> {
    advise(policy, chain, profile, &mut assumed(policy, chain), (LINK_GBIT, None)).choice.rules
}

fn bill(bill: &Bill) -> BillReport {
    BillReport {
        cycles_per_packet: bill.cycles,
        trailer_bits: 8 * bill.trailer_bytes,
        dropped: bill.dropped,
        link_load: bill.load,
    }
}

/// The choice in a sentence.
fn why(Advised { choice, alone, all, .. }: &Advised) -> String {
    let cost = |bill: &Bill| format!("{:.1} cycles and {} bits a packet", bill.cycles, 8 * bill.trailer_bytes);
    let full = if all.fits() { "" } else { ", which is more than the link carries" };
    match choice.rules.is_empty() {
        true => format!(
            "the software alone takes {:.1} cycles a packet, everything on the card {}{full}: nothing is won",
            alone.cycles,
            cost(all)
        ),
        false => format!("{} instead of {:.1} cycles", cost(&choice.bill), alone.cycles),
    }
}

/// Every rule with its place in the choice.
fn plans(policy: &Policy, all: &Split, chosen: &Split, advised: &Advised, traffic: &Traffic) -> Vec<RulePlan> {
    let plan = |((able, placed), advice): ((&Placed, &Placed), &Advice)| {
        let index = usize::from(placed.rule.0);
        let why = match (advice.saves, placed.offload) {
            (None, _) => able.why.clone(),
            (Some(_), Offload::Software) => "it costs at least what it saves".to_owned(),
            (Some(_), _) => placed.why.clone(),
        };
        RulePlan {
            at: policy.program.rule(placed.rule).at.clone(),
            category: placed.category.to_string(),
            offload: placed.offload.name(),
            saves_cycles: advice.saves,
            metadata_bytes: advice.bytes,
            reached: traffic.reached[index],
            matched: traffic.matched[index],
            why,
        }
    };
    all.rules.iter().zip(&chosen.rules).zip(&advised.rules).map(plan).collect()
}

/// Without a capture: every packet reaches every rule of the chain and matches none.
fn assumed(policy: &Policy, chain: usize) -> Traffic {
    let none = vec![0.0; policy.program.rules.len()];
    let mut reached = none.clone();
    rules(&policy.program.chains[chain].tree.nodes).for_each(|rule| reached[usize::from(rule.0)] = 1.0);
    Traffic { pps: 0.0, frame_bytes: FRAME_BYTES, answered: 1.0, reached, matched: none }
}

/// The rules that a packet matched.
#[derive(Default)]
struct Matched(Vec<RuleId>);

impl Observer for Matched {
    fn tested(&mut self, _: &Test, _: Observed, _: bool) {}

    fn matched(&mut self, rule: RuleId) {
        self.0.push(rule);
    }

    fn charged(&mut self, _: LimiterId, _: u32, _: Charge) {}

    fn asked(&mut self, _: RuleSlotId, _: Option<usize>) {}
}

/// The number of packets of a capture, and the hits of rules over it.
fn measured(policy: &Policy, profile: &Profile, split: &Split, input: &Path) -> Result<(u64, Traffic), Failure> {
    let program = &policy.program;
    let order: Vec<RuleId> = rules(&program.chains[split.plain].tree.nodes).collect();
    let place: BTreeMap<RuleId, usize> = order.iter().enumerate().map(|(place, rule)| (*rule, place)).collect();
    let mut evaluator = Evaluator::new(program, policy.answers());
    let images = CardImages::new(policy, split);
    let mut card = Card::new(profile);
    card.commit(Configuration { program: &split.card, lookups: &images, token: 0, epoch: 0 });
    let own = Configured { epoch: 0, body: split.card.body.bytes() as u8 };
    let port = Port { token: 0, own, others: vec![] };
    let (mut packets, mut bytes, mut answered) = (0_u64, 0_u64, 0_u64);
    let (mut reached, mut matched) = (vec![0_u64; program.rules.len()], vec![0_u64; program.rules.len()]);
    let mut reader = captures::open(input)?;
    while let Some(burst) = reader.next_burst()? {
        let frames = burst.frames();
        for index in 0..frames.len() {
            let frame = eval::frame(frames, index);
            packets += 1;
            bytes += u64::from(frame.wire_len);
            let has_answers = match card.handle(frame) {
                None => true,
                Some(passed) => matches!(port.receive(&passed), Received::Answered { .. }),
            };
            answered += u64::from(has_answers);
            let mut hits = Matched::default();
            let verdict = evaluator.decide(split.plain, frame, &mut hits);
            hits.0.iter().for_each(|rule| matched[usize::from(rule.0)] += 1);
            let last = last_rule(verdict, &hits.0, &place, order.len());
            order[..last].iter().for_each(|rule| reached[usize::from(rule.0)] += 1);
        }
    }
    let share = |count: u64| count as f64 / packets.max(1) as f64;
    let shares = |counts: Vec<u64>| counts.into_iter().map(share).collect();
    let frame_bytes = if packets == 0 { FRAME_BYTES } else { share(bytes) };
    let traffic = Traffic {
        pps: 0.0,
        frame_bytes,
        answered: share(answered),
        reached: shares(reached),
        matched: shares(matched),
    };
    Ok((packets, traffic))
}

/// Number of rules that a packet reached: all up to the one that ended the chain.
fn last_rule(verdict: Verdict, matched: &[RuleId], place: &BTreeMap<RuleId, usize>, all: usize) -> usize {
    let behind = |rule: &RuleId| place.get(rule).map_or(0, |place| place + 1);
    match verdict.reason() {
        Reason::NO_MATCH => all,
        // A rule, a limit or a slot of one: the last that matched. Faults and defaults have none.
        _ => matched.last().map_or(0, behind),
    }
}

fn describe(report: &PlanReport) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {} on {}", report.policy, report.chain, report.profile);
    let _ = writeln!(text, "  {}", report.why);
    let _ = writeln!(
        text,
        "\n  {:<12} {:>14} {:>14} {:>10} {:>10}",
        "", "cycles/packet", "bits/packet", "dropped", "link load"
    );
    for (name, bill) in [("alone", &report.alone), ("all", &report.all), ("chosen", &report.chosen)] {
        let _ = writeln!(
            text,
            "  {name:<12} {:>14.1} {:>14} {:>9.1}% {:>9.1}%",
            bill.cycles_per_packet,
            bill.trailer_bits,
            100.0 * bill.dropped,
            100.0 * bill.link_load
        );
    }
    let _ = writeln!(
        text,
        "\n  {:<20} {:<8} {:<8} {:>7} {:>6} {:>9} {:>9}  why",
        "rule", "category", "offload", "saves", "bytes", "reached", "matched"
    );
    for plan in &report.rules {
        let saves = plan.saves_cycles.map_or_else(|| "-".to_owned(), |saves| format!("{saves:.1}"));
        let _ = writeln!(
            text,
            "  {:<20} {:<8} {:<8} {saves:>7} {:>6} {:>8.1}% {:>8.1}%  {}",
            plan.at,
            plan.category,
            plan.offload,
            plan.metadata_bytes,
            100.0 * plan.reached,
            100.0 * plan.matched,
            plan.why
        );
    }
    let _ = writeln!(text, "\n  Cycles are estimates for native code (docs/hybrid.md).");
    text
}
