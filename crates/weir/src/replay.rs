//! `weir replay`: runs a policy over a capture at full speed, and accounts for every packet.

use crate::additions;
use crate::captures::{self, Damage, Sinks};
use crate::cli::{ChainOptions, EngineName, ReplayOptions};
use crate::cut_short::Cut;
use crate::directions::Directions;
use crate::engine::{self, action};
use crate::export::expected::{self, Counts, Difference, Expected, RuleExpected};
use crate::failure::{self, Failure};
use crate::figures;
use crate::limit_counts::{self, Counting};
use crate::report::{self, Decided};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_abi::{Action, BURST_MAX, Counter, Reason, Verdict};
use weir_control::{AdditionStats, CountedLimit, RuleCount};
use weir_engine::Filter;
use weir_engine::capture::{CaptureBurst, CaptureReader};
use weir_loading::{Policy, PolicyFile, eval};
use weir_policy::ir::eval::rewrite::Leaving;
use weir_policy::ir::{Program, RuleId};
use weir_policy::slot_rule;

/// Most limits that a report shows.
const LIMITS_SHOWN: usize = 20;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// The policy's name.
    pub policy: String,
    /// The engine that decided.
    pub engine: &'static str,
    /// `upstream`, `downstream` or `both`.
    pub direction: &'static str,
    /// The posture, if not the base policy.
    pub posture: Option<String>,
    /// Packets read.
    pub packets: u64,
    /// Bytes on the wire of the packets read.
    pub bytes: u64,
    /// Packets accepted.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent to the divert interface.
    pub diverted: u64,
    /// Packets that were answered.
    pub replied: u64,
    /// Packets that were copied to the divert interface.
    pub sampled: u64,
    /// Every rule with the count of its matches.
    pub rules: Vec<RuleCount>,
    /// Packets by the reason of their verdict; they add up to `packets`.
    pub reasons: BTreeMap<String, u64>,
    /// Present if the capture has only the beginning of some packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// The counts of limits that log: at most 20, the most exceeded first.
    pub limits: Vec<CountedLimit>,
    /// The rules of slots with their counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotReplayed>,
    /// What rules added to tables, up to the last tick of 10 ms that has ended.
    pub additions: AdditionStats,
    /// Whether the capture could not be read to its end. The figures then cover the packets before that point.
    pub truncated: bool,
    /// The position, if the capture is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_at: Option<Damage>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<failure::Error>,
    /// With --expect: the counts that differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differences: Option<Vec<Difference>>,
    /// The verdict of each packet, if the option is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdicts: Option<Vec<&'static str>>,
    /// Time from the first byte read to the last verdict.
    pub seconds: f64,
    /// Millions of packets a second.
    pub mpps: f64,
}

impl Replayed {
    /// The counts that `--expect` compares.
    pub fn counted(&self) -> (Counts, Vec<RuleExpected>) {
        let Replayed { packets, bytes, passed, dropped, diverted, replied, .. } = *self;
        (Counts::new([packets, bytes, passed, dropped, diverted, replied]), expected::rules(&self.rules))
    }
}

/// A rule of a slot, and what it counted.
#[derive(Debug, Serialize)]
pub struct SlotReplayed {
    /// The slot.
    pub slot: String,
    /// The rule.
    pub rule: String,
    /// Packets that matched.
    pub packets: u64,
    /// Bytes on the wire of the packets that matched.
    pub bytes: u64,
    /// Packets of them that it dropped.
    pub dropped: u64,
}

/// The rules of all slots with their counts.
fn slots(policy: &Policy, filter: &dyn Filter) -> Vec<SlotReplayed> {
    let mut replayed = Vec::new();
    for (index, (slot, rules)) in policy.program.rule_slots.iter().zip(policy.slot_rules()).enumerate() {
        for (rule, counts) in rules.iter().zip(filter.slot_counts(index)) {
            replayed.push(SlotReplayed {
                slot: slot.name.clone(),
                rule: slot_rule::text(&rule.record),
                packets: counts.packets,
                bytes: counts.bytes,
                dropped: counts.dropped,
            });
        }
    }
    replayed
}

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
    let (mut replayed, counters, failure) = replay(options, &mut policy, &chain)?;
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

/// What a replay counts, without a report.
///
/// # Errors
/// As for [`run`].
pub fn count(options: &ReplayOptions) -> Result<Replayed, Failure> {
    let mut policy = PolicyFile::open(&options.policy)?.read(&options.trust.read()?)?;
    let (replayed, _, failure) = replay(options, &mut policy, &options.chain)?;
    failure.map_or(Ok(replayed), Err)
}

/// Runs a policy over the capture. Returns the figures with the counters. If the capture is damaged, they are for the
/// packets before the damage, which is returned too.
fn replay(
    options: &ReplayOptions,
    policy: &mut Policy,
    chain: &ChainOptions,
) -> Result<(Replayed, Vec<Counter>, Option<Failure>), Failure> {
    put_into_slots(policy, &options.slots)?;
    let directions = Directions::only(policy, chain)?;
    let outputs = [options.out.as_deref(), options.dropped.as_deref(), options.replies.as_deref()];
    let engine = engine::choose(policy, options.engine)?;
    let mut reader = captures::open(&options.input)?;
    let mut sinks = Sinks::create(outputs, policy, &[&options.input, &options.policy], reader.form())?;
    let mut filter = policy.filter(engine.into())?;
    let mut tally = Tally { verdicts: options.verdicts.then(Vec::new), ..Tally::default() };
    let progress = progress(&reader);
    let started = Instant::now();
    let mut shown = started;
    let outcome = loop {
        match reader.next_burst() {
            Ok(Some(burst)) => decide(&directions, filter.as_mut(), &burst, &mut tally, &mut sinks)?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        if shown.elapsed() > Duration::from_millis(200) {
            shown = Instant::now();
            progress.set_position(reader.position_bytes());
        }
    };
    let took = started.elapsed();
    progress.finish_and_clear();
    sinks.finish()?;
    let counters = filter.counters();
    check_counters(&policy.program, &counters, tally.packets)?;
    let limits = Counting::of(policy, None)?.top(LIMITS_SHOWN, |limiter, visit| {
        filter.limit_counts(limiter, visit);
        Ok(())
    })?;
    let damage = outcome.as_ref().err().and_then(Damage::of);
    // The packets before the damage are reported. The damage determines the exit code.
    let failure = outcome.err().map(Failure::from);
    let replayed = Replayed {
        limits: limits.limits,
        slots: slots(policy, filter.as_ref()),
        additions: additions::stats(filter.addition_counts()),
        truncated: failure.is_some(),
        truncated_at: damage,
        error: failure.as_ref().map(Failure::error),
        direction: directions.name(),
        posture: chain.posture.clone(),
        ..summary(policy, engine, &counters, tally, took)
    };
    Ok((replayed, counters, failure))
}

/// Puts the rules of `--slot` into the policy's slots.
///
/// # Errors
/// There is no such slot, it is full, or a rule is wrong.
pub fn put_into_slots(policy: &mut Policy, rules: &[(String, String)]) -> Result<(), Failure> {
    let mut put = |(slot, rule): &(String, String)| policy.add_slot_rule(slot, rule);
    rules.iter().try_for_each(|rule| put(rule).map_err(|problem| Failure::Rejected(format!("weir: {problem}"))))
}

/// Decides a burst, counts its verdicts, and writes its packets.
fn decide(
    directions: &Directions,
    filter: &mut dyn Filter,
    burst: &CaptureBurst<'_>,
    tally: &mut Tally,
    sinks: &mut Sinks,
) -> Result<(), Failure> {
    let mut verdicts = [Verdict(0); BURST_MAX];
    let mut rewritten = BTreeMap::new();
    let mut keep = |index: usize, bytes: &[u8], wire_len: u32| {
        let bytes = bytes.to_vec();
        rewritten.insert(index, Leaving { bytes, wire_len });
    };
    directions.decide_and_rewrite(filter, burst.frames(), &mut verdicts, &mut keep)?;
    tally.add(burst, &verdicts);
    sinks.write(burst, &verdicts, &rewritten)
}

/// Progress on standard error, if that is a terminal and the size of the capture is known.
fn progress(reader: &CaptureReader) -> ProgressBar {
    let Some(bytes) = reader.size_bytes() else { return ProgressBar::hidden() };
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.expect("the template is right"));
    bar
}

/// The sums so far.
#[derive(Default)]
struct Tally {
    packets: u64,
    bytes: u64,
    passed: u64,
    dropped: u64,
    diverted: u64,
    replied: u64,
    sampled: u64,
    cut: Option<Cut>,
    verdicts: Option<Vec<&'static str>>,
}

impl Tally {
    fn add(&mut self, burst: &CaptureBurst<'_>, verdicts: &[Verdict]) {
        let frames = burst.frames();
        for (index, verdict) in verdicts.iter().enumerate().take(frames.len()) {
            let action = action(*verdict);
            self.packets += 1;
            self.bytes += u64::from(frames.wire_len(index));
            match action {
                Action::Accept => self.passed += 1,
                Action::Drop => self.dropped += 1,
                Action::Divert => self.diverted += 1,
                Action::Reply => self.replied += 1,
            }
            self.sampled += u64::from(verdict.sampled());
            Cut::add(&mut self.cut, eval::frame(frames, index), *verdict);
            if let Some(names) = &mut self.verdicts {
                names.push(action.name());
            }
        }
    }
}

/// Checks that the counters of an engine add up to the number of packets.
fn check_counters(program: &Program, counters: &[Counter], packets: u64) -> Result<(), Failure> {
    let sum: u64 = report::reason_counts(program, counters).values().sum();
    if sum == packets {
        return Ok(());
    }
    Err(Failure::Runtime(format!("compiler bug: {packets} packets were decided, the counters hold {sum}")))
}

fn summary(policy: &Policy, engine: EngineName, counters: &[Counter], tally: Tally, took: Duration) -> Replayed {
    let seconds = took.as_secs_f64();
    Replayed {
        policy: policy.program.name.clone(),
        engine: engine.name(),
        direction: "",
        posture: None,
        packets: tally.packets,
        bytes: tally.bytes,
        passed: tally.passed,
        dropped: tally.dropped,
        diverted: tally.diverted,
        replied: tally.replied,
        sampled: tally.sampled,
        rules: report::rule_counts(&policy.program, counters),
        reasons: report::reason_counts(&policy.program, counters),
        cut: tally.cut,
        limits: vec![],
        slots: vec![],
        additions: AdditionStats::default(),
        truncated: false,
        truncated_at: None,
        error: None,
        differences: None,
        verdicts: tally.verdicts,
        seconds,
        mpps: if seconds > 0.0 { tally.packets as f64 / seconds / 1e6 } else { 0.0 },
    }
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
    text += &replayed.cut.as_ref().map(Cut::describe).unwrap_or_default();
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
