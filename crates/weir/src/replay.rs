//! `weir replay`: runs a policy over a capture at full speed, and accounts for every packet.

use crate::cli::ReplayOptions;
use std::fmt::Write;
use std::path::Path;
use weir_abi::{Action, Counter, Reason};
use weir_command::failure::Failure;
use weir_command::limit_counts;
use weir_command::options::EngineName;
use weir_command::report::{self, Decided};
use weir_command::{additions, figures, tracked};
use weir_loading::PolicyFile;
use weir_policy::ir::{Program, RuleId};
use weir_recording::captures::{self, Sinks};
use weir_recording::cut_short::Cut;
use weir_recording::export::expected::{self, Expected};
use weir_recording::replay::{Replay, Replayed, SlotReplayed, put_into_slots};
use weir_recording::vlan_sides;

/// Runs the command.
///
/// # Errors
/// The policy is rejected, the capture or an output fails, or the counts are not those that are expected.
pub fn run(options: &ReplayOptions) -> Result<(), Failure> {
    let expected = options.expect.as_deref().map(Expected::read).transpose()?;
    let outputs = [options.out.as_deref(), options.dropped.as_deref(), options.replies.as_deref()];
    let stdout_is_taken = Sinks::take_standard_output(outputs);
    if stdout_is_taken && options.json {
        let message = "weir: --json and a capture cannot both go to standard output: name a file with --out, --dropped or --replies";
        return Err(Failure::Rejected(message.to_owned()));
    }
    let mut policy = PolicyFile::open(&options.policy)?.read(&options.trust.read()?)?;
    report::say_warnings(&policy);
    let chain = expected.as_ref().map_or_else(|| Ok(options.chain.clone()), Expected::chain)?;
    for rule in expected.iter().flat_map(|expected| &expected.slots) {
        put_into_slots(&mut policy, &[(rule.slot.clone(), rule.rule.clone())])?;
    }
    put_into_slots(&mut policy, &options.slots)?;
    let (input, engine, verdicts) = (&*options.input, options.engine, options.verdicts);
    let controller = options.controller.controller();
    if controller.is_some() && engine != Some(EngineName::P4) {
        return Err(Failure::Rejected("weir: --p4-controller is only for the engine p4".to_owned()));
    }
    let replay = Replay { policy: &options.policy, input, outputs, chain: &chain, engine, controller, verdicts };
    let (mut replayed, counters, failure) = replay.run(&mut policy)?;
    replayed.differences = expected.map(|expected| {
        let (counts, rules) = replayed.counted();
        expected.differences(&counts, &rules)
    });
    let unexpected = replayed.differences.as_ref().filter(|differences| !differences.is_empty());
    let unexpected = unexpected.zip(options.expect.as_deref()).map(|(found, path)| expected::failure(path, found));
    let failure = failure.or(unexpected);
    if options.json {
        report::print_json(&replayed)?;
        return failure.map_or(Ok(()), |failure| Err(failure.reported()));
    }
    let text = describe(&replayed, &policy.program, &counters, &captures::name(&options.input));
    if stdout_is_taken {
        report::say(text.trim_end())
    } else {
        report::print(&text)?
    }
    failure.map_or(Ok(()), Err)
}

/// The report as text.
fn describe(replayed: &Replayed, program: &Program, counters: &[Counter], input: &Path) -> String {
    let mut text = String::new();
    let posture = replayed.posture.as_ref().map(|name| format!(", posture {name}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "{} over {} ({}{posture}, engine {})\n",
        replayed.policy,
        input.display(),
        replayed.direction,
        replayed.engine
    );
    let row = |name: &str, packets: u64| {
        format!(
            "  {name:<9} {:>13} packets {:>8}\n",
            figures::grouped(packets),
            figures::share(packets, replayed.packets)
        )
    };
    let _ = writeln!(
        text,
        "  {:<9} {:>13} packets {:>17}",
        "received",
        figures::grouped(replayed.packets),
        figures::bytes(replayed.bytes)
    );
    text += &row("passed", replayed.passed);
    text += &row("dropped", replayed.dropped);
    if replayed.diverted > 0 {
        text += &row("diverted", replayed.diverted);
    }
    if replayed.replied > 0 {
        text += &row("answered", replayed.replied);
    }
    if replayed.sampled > 0 {
        text += &row("sampled", replayed.sampled);
    }
    let titles = [
        ("Dropped by", Action::Drop),
        ("Passed by", Action::Accept),
        ("Diverted by", Action::Divert),
        ("Answered by", Action::Reply),
    ];
    for (title, wanted) in titles {
        section(&mut text, title, Some(wanted), program, counters, replayed.packets);
    }
    section(&mut text, "Matched by rules without a verdict", None, program, counters, replayed.packets);
    text += &(tracked(replayed) + &of_capture(replayed));
    if !replayed.limits.is_empty() {
        let _ = write!(text, "\n  Limits, the most exceeded first\n{}", limit_counts::describe(&replayed.limits));
    }
    if !replayed.slots.is_empty() {
        text += "\n  Rules of slots: packets, dropped\n";
    }
    for SlotReplayed { slot, rule, packets, dropped, .. } in &replayed.slots {
        let [packets, dropped] = [packets, dropped].map(|count| figures::grouped(*count));
        let _ = writeln!(text, "  {packets:>13} {dropped:>13}  {slot}: {rule}");
    }
    let additions = additions::describe(&replayed.additions);
    if !additions.is_empty() {
        let _ = write!(text, "\n  {additions}");
    }
    if let Some(damage) = &replayed.truncated_at {
        text += &damage.describe();
    }
    if replayed.differences.as_ref().is_some_and(Vec::is_empty) {
        text += "\n  The counts are as expected.\n";
    }
    let _ = writeln!(text, "\n  {:.3} s, {:.2} million packets a second on one core", replayed.seconds, replayed.mpps);
    text
}

/// Where packets were tracked, with a controller.
fn tracked(replayed: &Replayed) -> String {
    replayed.tracked.map_or(String::new(), |tracked| format!("\n  Tracked {}\n", tracked::describe(&tracked)))
}

/// What a report says of the capture.
fn of_capture(replayed: &Replayed) -> String {
    let cut = replayed.cut.as_ref().map(Cut::describe).unwrap_or_default();
    cut + &replayed.notes.describe() + &vlan_sides::describe(replayed.vlans_differ.unwrap_or_default())
}

/// Lists what decided packets with the action `wanted`, those with most packets first. `None` lists rules without a
/// verdict.
fn section(text: &mut String, title: &str, wanted: Option<Action>, program: &Program, counters: &[Counter], all: u64) {
    let rule_text = |id: RuleId| {
        let rule = program.rule(id);
        format!("{}  {}", rule.at, figures::cut(&rule.text, 72))
    };
    let mut rows: Vec<(String, Counter)> = match wanted {
        Some(action) => {
            let decided = report::decided(program, counters).into_iter().filter(|decided| decided.action == action);
            let what = |decided: &Decided| match (decided.rule, decided.reason) {
                (Some(rule), Reason::LIMIT) => format!("(limit) {}", rule_text(rule)),
                (Some(rule), Reason::SLOT) => format!("(slot) {}", rule_text(rule)),
                (Some(rule), _) => rule_text(rule),
                (None, reason) => format!("({})", report::reason_name(program, reason)),
            };
            decided.map(|decided| (what(&decided), decided.counter)).collect()
        }
        None => {
            let rules = (0..).map(RuleId).zip(&counters[usize::from(Reason::RULE_BASE)..]).take(program.rules.len());
            let without_verdict = rules.filter(|(id, _)| program.rule(*id).verdict().is_none());
            without_verdict.map(|(id, counter)| (rule_text(id), *counter)).collect()
        }
    };
    rows.retain(|(_, counter)| counter.packets > 0);
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|(_, counter)| std::cmp::Reverse(counter.packets));
    let _ = writeln!(text, "\n  {title}");
    for (what, counter) in rows {
        let (packets, share) = (figures::grouped(counter.packets), figures::share(counter.packets, all));
        let _ = writeln!(text, "  {packets:>13} {share:>8} {:>9}  {what}", figures::bytes(counter.bytes));
    }
}
