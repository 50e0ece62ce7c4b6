//! Replays: a policy decides the packets of a capture at full speed, and every packet is accounted for.

use crate::capture_notes::CaptureNotes;
use crate::captures::{self, Damage, Sinks};
use crate::cut_short::Cut;
use crate::directions::Directions;
use crate::export::expected::{self, Counts, Difference, RuleExpected};
use crate::vlan_sides::VlanSides;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_abi::{Action, BURST_MAX, Counter, Verdict};
use weir_command::engine::{self, action};
use weir_command::failure::{self, Failure};
use weir_command::limit_counts::Counting;
use weir_command::options::{ChainOptions, EngineName};
use weir_command::{additions, report, tracked};
use weir_control::{AdditionStats, CountedLimit, RuleCount, TrackedAt};
use weir_engine::bundle::trust::Trust;
use weir_engine::capture::{CaptureBurst, CaptureReader};
use weir_engine::{Controller, Filter};
use weir_loading::{Policy, PolicyFile, eval};
use weir_policy::ir::Program;
use weir_policy::ir::eval::rewrite::Leaving;
use weir_policy::slot_rule;

/// Most limits that a report shows.
const LIMITS_SHOWN: usize = 20;

/// What a replay counted: the output of `weir replay --json`.
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
    /// Packets that are not judged as the capture has them.
    #[serde(flatten)]
    pub notes: CaptureNotes,
    /// Conversations whose directions have different VLAN tags, if the policy takes them for two flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlans_differ: Option<u64>,
    /// The counts of limits that log: at most 20, the most exceeded first.
    pub limits: Vec<CountedLimit>,
    /// The rules of slots with their counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotReplayed>,
    /// What rules added to tables, up to the last tick of 10 ms that has ended.
    pub additions: AdditionStats,
    /// Where packets were tracked, with a controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracked: Option<TrackedAt>,
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

/// A replay: a policy, the packets that it decides, and what is wanted of them.
#[derive(Debug)]
pub struct Replay<'a> {
    /// The policy, or a bundle.
    pub policy: &'a Path,
    /// The capture; `-` is standard input.
    pub input: &'a Path,
    /// The files for packets that pass, are dropped, and are sent by Weir itself.
    pub outputs: [Option<&'a Path>; 3],
    /// Direction and posture.
    pub chain: &'a ChainOptions,
    /// The engine; `None` chooses one.
    pub engine: Option<EngineName>,
    /// The controller of a P4 pipeline, if it has one.
    pub controller: Option<Controller>,
    /// Whether the verdict of each packet is listed.
    pub verdicts: bool,
}

impl Replay<'_> {
    /// What a policy of this user counts, with rules in its slots.
    ///
    /// # Errors
    /// As for [`Replay::run`], or the capture is damaged.
    pub fn count(&self, slots: &[(String, String)]) -> Result<Replayed, Failure> {
        let mut policy = PolicyFile::open(self.policy)?.read(&Trust::default())?;
        put_into_slots(&mut policy, slots)?;
        let (replayed, _, failure) = self.run(&mut policy)?;
        failure.map_or(Ok(replayed), Err)
    }

    /// Runs the policy over the capture. Returns the figures with the counters. If the capture is damaged, they are for
    /// the packets before the damage, which is returned too.
    ///
    /// # Errors
    /// An engine refuses the policy, or the capture or an output cannot be opened.
    pub fn run(&self, policy: &mut Policy) -> Result<(Replayed, Vec<Counter>, Option<Failure>), Failure> {
        let directions = Directions::only(policy, self.chain)?;
        let engine = engine::choose(policy, self.engine)?;
        let mut reader = captures::open(self.input)?;
        let mut sinks = Sinks::create(self.outputs, policy, &[self.input, self.policy], reader.form())?;
        let mut filter = policy.filter_with(engine.into(), self.controller)?;
        let vlan_sides = tells_vlans_apart(policy, &directions).then(VlanSides::default);
        let verdicts = self.verdicts.then(Vec::new);
        let mut tally = Tally { verdicts, vlan_sides, ..Tally::default() };
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
            notes: CaptureNotes::of(reader.notes()),
            limits: limits.limits,
            slots: slots(policy, filter.as_ref()),
            additions: additions::stats(filter.addition_counts()),
            tracked: filter.tracked_by().map(tracked::stats),
            truncated: failure.is_some(),
            truncated_at: damage,
            error: failure.as_ref().map(Failure::error),
            direction: directions.name(),
            posture: self.chain.posture.clone(),
            ..summary(policy, engine, &counters, tally, took)
        };
        Ok((replayed, counters, failure))
    }
}

/// Puts the rules of `--slot` into the policy's slots.
///
/// # Errors
/// There is no such slot, it is full, or a rule is wrong.
pub fn put_into_slots(policy: &mut Policy, rules: &[(String, String)]) -> Result<(), Failure> {
    let mut put = |(slot, rule): &(String, String)| policy.add_slot_rule(slot, rule);
    rules.iter().try_for_each(|rule| put(rule).map_err(|problem| Failure::Rejected(format!("weir: {problem}"))))
}

/// Whether a policy follows flows of both directions, and their tags with them.
fn tells_vlans_apart(policy: &Policy, directions: &Directions) -> bool {
    directions.are_both() && policy.program.tracking.is_some_and(|tracking| !tracking.vlan_ignore)
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
    vlan_sides: Option<VlanSides>,
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
            let frame = eval::frame(frames, index);
            Cut::add(&mut self.cut, frame, *verdict);
            if let Some(sides) = &mut self.vlan_sides {
                sides.add(frame);
            }
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
        notes: CaptureNotes::default(),
        vlans_differ: tally.vlan_sides.map(|sides| sides.differing()).filter(|&count| count > 0),
        limits: vec![],
        slots: vec![],
        additions: AdditionStats::default(),
        tracked: None,
        truncated: false,
        truncated_at: None,
        error: None,
        differences: None,
        verdicts: tally.verdicts,
        seconds,
        mpps: if seconds > 0.0 { tally.packets as f64 / seconds / 1e6 } else { 0.0 },
    }
}
