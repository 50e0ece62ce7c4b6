//! `weir card plan`: which rules a card should take, by a policy, a profile and a capture.

use crate::cli::CardPlanOptions;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use weir_card::Profile;
use weir_card::category::Offload;
use weir_card::distributor::cost::{Bill, Traffic};
use weir_card::distributor::{Advice, Advised};
use weir_card::split::{Placed, Split};
use weir_command::failure::Failure;
use weir_command::report;
use weir_control::CardCost;
use weir_loading::{Policy, PolicyFile, eval};
use weir_planning::card::{CardImages, chain_name, profile, split_of};
use weir_planning::survey::{Survey, assumed};
use weir_planning::{bill, choose, half_of, link};
use weir_policy::ir::Direction;
use weir_policy::pass::choose_layouts::CostModel;
use weir_recording::capture_notes::CaptureNotes;
use weir_recording::captures;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct PlanReport {
    policy: String,
    profile: String,
    chain: String,
    /// Packets of the capture; 0 without one.
    packets: u64,
    /// Packets of it that are not seen as the capture has them.
    #[serde(flatten)]
    notes: CaptureNotes,
    /// Packets a second that the plan is for.
    pps: f64,
    /// The share of packets that the card answers for.
    answered: f64,
    /// Whether any rule is worth the card.
    offloads: bool,
    alone: CardCost,
    /// All rules that the card can take.
    all: CardCost,
    chosen: CardCost,
    why: String,
    rules: Vec<RulePlan>,
}

#[derive(Debug, Serialize)]
struct RulePlan {
    at: String,
    category: String,
    /// `hardware`, `hybrid` or `software`.
    offload: &'static str,
    /// Cycles a packet that offloading the rule saves beside the rest of the choice; less than 0 if it costs more than
    /// it saves, null if the card cannot take it.
    saves_cycles: Option<f64>,
    /// Bytes of metadata that it takes beside the rest of the choice.
    metadata_bytes: usize,
    /// Shares of packets that the rule tests and matches.
    reached: f64,
    matched: f64,
    why: String,
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
    let (packets, notes, mut traffic) = match &options.input {
        Some(input) => recorded(&policy, &profile, &all, input)?,
        None => (0, CaptureNotes::default(), assumed(&policy, chain)),
    };
    let link = link(options.link * 1e9);
    traffic.pps = options.pps.unwrap_or_else(|| half_of(link, &traffic));
    let advised = choose(&policy, chain, &profile, link, &traffic);
    let chosen = split_of(&policy, chain, &profile, &|rule| advised.choice.rules.contains(&rule));
    let report = PlanReport {
        policy: options.policy.display().to_string(),
        profile: profile.name.clone(),
        chain: chain_name(&policy.program.chains[chain]),
        packets,
        notes,
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

/// The number of packets of a capture, how they were read, and their traffic.
fn recorded(
    policy: &Policy,
    profile: &Profile,
    split: &Split,
    input: &Path,
) -> Result<(u64, CaptureNotes, Traffic), Failure> {
    let images = CardImages::new(policy, split);
    let mut survey = Survey::new(policy, profile, split, &images);
    let mut reader = captures::open(input)?;
    while let Some(burst) = reader.next_burst()? {
        let frames = burst.frames();
        (0..frames.len()).for_each(|index| survey.see(eval::frame(frames, index)));
    }
    Ok((survey.packets, CaptureNotes::of(reader.notes()), survey.traffic()))
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
    let _ = writeln!(text, "\n  Cycles are estimates for native code (docs/guide/hybrid.md).");
    text + &report.notes.describe()
}
