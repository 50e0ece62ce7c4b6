//! `weir diff`: the packets whose verdict differs between two policies, by rule and by source.

use crate::cli::DiffOptions;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::packet::L3;
use weir_abi::{BURST_MAX, Verdict};
use weir_command::engine::{self, action};
use weir_command::failure::{self, Failure};
use weir_command::figures;
use weir_command::report;
use weir_loading::{Policy, PolicyFile, eval};
use weir_policy::ir::eval::packet;
use weir_recording::capture_notes::CaptureNotes;
use weir_recording::captures::{self, Damage};
use weir_recording::directions::Directions;

/// Most sources that are counted separately. Further sources are counted together.
const SOURCES_MAX: usize = 1 << 20;
/// Most sources and packets that are listed.
const LISTED_MAX: usize = 20;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// Packets read.
    pub packets: u64,
    /// Packets whose verdict differs.
    pub changed: u64,
    /// Packets that newly pass.
    pub newly_passed: u64,
    /// Packets that are newly dropped.
    pub newly_dropped: u64,
    /// Changes by rule.
    pub by_rule: Vec<RuleChange>,
    /// Changes by source address, those with most packets first.
    pub by_source: Vec<SourceChange>,
    /// Number of sources that are not listed.
    pub more_sources: u64,
    /// Numbers of the first packets that change.
    pub first_packets: Vec<u64>,
    /// Packets that are not judged as the capture has them.
    #[serde(flatten)]
    pub notes: CaptureNotes,
    /// Whether the capture could not be read to its end. The figures then cover the packets before that point.
    pub truncated: bool,
    /// The position, if the capture is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_at: Option<Damage>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<failure::Error>,
}

/// Packets that one rule decides in the old policy and another in the new policy.
#[derive(Debug, Serialize)]
pub struct RuleChange {
    /// Verdict and reason in the old policy.
    pub old: Outcome,
    /// Verdict and reason in the new policy.
    pub new: Outcome,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Outcome {
    /// `accept`, `drop`, `divert`.
    pub verdict: &'static str,
    /// The built-in reason, or the citation of the rule.
    pub reason: String,
}

/// Changes for one source.
#[derive(Debug, Serialize)]
pub struct SourceChange {
    /// The source; `not IP` for packets without an address.
    pub source: String,
    /// Packets that newly pass.
    pub newly_passed: u64,
    /// Packets that are newly dropped.
    pub newly_dropped: u64,
    /// Packets with any other change.
    pub other: u64,
}

/// Runs the command.
///
/// # Errors
/// A policy is rejected, or the capture fails.
pub fn run(options: &DiffOptions) -> Result<(), Failure> {
    let trust = options.trust.read()?;
    let mut old = PolicyFile::open(&options.old)?.read(&trust)?;
    let mut new = PolicyFile::open(&options.new)?.read(&trust)?;
    report::say_warnings(&old);
    report::say_warnings(&new);
    let (before, after) = (Directions::only(&mut old, &options.chain)?, Directions::only(&mut new, &options.chain)?);
    let engines = (engine::choose(&old, None)?, engine::choose(&new, None)?);
    let mut reader = captures::open(&options.input)?;
    let (mut old_filter, mut new_filter) = (old.filter(engines.0.into())?, new.filter(engines.1.into())?);
    let mut changes = Changes::default();
    let outcome = loop {
        let burst = match reader.next_burst() {
            Ok(Some(burst)) => burst,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let (mut olds, mut news) = ([Verdict(0); BURST_MAX], [Verdict(0); BURST_MAX]);
        before.decide(old_filter.as_mut(), burst.frames(), &mut olds)?;
        after.decide(new_filter.as_mut(), burst.frames(), &mut news)?;
        for index in 0..burst.frames().len() {
            changes.packets += 1;
            if action(olds[index]) != action(news[index]) {
                let source = source(packet::parse(eval::frame(burst.frames(), index)).0);
                let bytes = u64::from(burst.frames().wire_len(index));
                changes.add(olds[index], news[index], source, bytes, burst.first_packet() + index as u64);
            }
        }
    };
    let damage = outcome.as_ref().err().and_then(Damage::of);
    // As in `replay`, the packets before the damage are reported.
    let failure = outcome.err().map(Failure::from);
    let difference = Difference {
        notes: CaptureNotes::of(reader.notes()),
        truncated: failure.is_some(),
        truncated_at: damage,
        error: failure.as_ref().map(Failure::error),
        ..changes.finish(&old, &new)
    };
    if options.json {
        report::print_json(&difference)?;
        return failure.map_or(Ok(()), |failure| Err(failure.reported()));
    }
    report::print(&describe(&difference, &old, &new))?;
    failure.map_or(Ok(()), Err)
}

fn source(packet: packet::Packet) -> Option<IpAddr> {
    match packet.l3 {
        L3::Ipv4 => Some(Ipv4Addr::from(packet.saddr as u32).into()),
        L3::Ipv6 => Some(Ipv6Addr::from(packet.saddr).into()),
        L3::Arp | L3::None => None,
    }
}

/// The differences so far.
#[derive(Default)]
struct Changes {
    packets: u64,
    changed: u64,
    newly_passed: u64,
    newly_dropped: u64,
    rules: BTreeMap<(u32, u32), (u64, u64)>,
    sources: BTreeMap<Option<IpAddr>, [u64; 3]>,
    unlisted: u64,
    first: Vec<u64>,
}

impl Changes {
    fn add(&mut self, before: Verdict, after: Verdict, source: Option<IpAddr>, bytes: u64, number: u64) {
        use weir_abi::Action::{Accept, Drop};
        let kind = match (action(before), action(after)) {
            (_, Accept) => 0,
            (_, Drop) => 1,
            _ => 2,
        };
        self.changed += 1;
        self.newly_passed += u64::from(kind == 0);
        self.newly_dropped += u64::from(kind == 1);
        let unsampled = |verdict: Verdict| verdict.0 & !Verdict::SAMPLED;
        let rule = self.rules.entry((unsampled(before), unsampled(after))).or_default();
        *rule = (rule.0 + 1, rule.1 + bytes);
        if self.sources.len() < SOURCES_MAX || self.sources.contains_key(&source) {
            self.sources.entry(source).or_default()[kind] += 1;
        } else {
            self.unlisted += 1;
        }
        if self.first.len() < LISTED_MAX {
            self.first.push(number);
        }
    }

    fn finish(self, old: &Policy, new: &Policy) -> Difference {
        let outcome = |policy: &Policy, verdict: u32| Outcome {
            verdict: action(Verdict(verdict)).name(),
            reason: report::reason_name(&policy.program, Verdict(verdict).reason()),
        };
        let mut by_rule: Vec<RuleChange> = self
            .rules
            .into_iter()
            .map(|((before, after), (packets, bytes))| RuleChange {
                old: outcome(old, before),
                new: outcome(new, after),
                packets,
                bytes,
            })
            .collect();
        by_rule.sort_by_key(|change| Reverse(change.packets));
        let mut sources: Vec<(Option<IpAddr>, [u64; 3])> = self.sources.into_iter().collect();
        sources.sort_by_key(|(_, counts)| Reverse(counts.iter().sum::<u64>()));
        let more_sources = (sources.len().saturating_sub(LISTED_MAX)) as u64 + self.unlisted;
        let by_source = sources.into_iter().take(LISTED_MAX).map(|(source, [passed, dropped, other])| SourceChange {
            source: source.map_or_else(|| "not IP".to_owned(), |source| source.to_string()),
            newly_passed: passed,
            newly_dropped: dropped,
            other,
        });
        Difference {
            packets: self.packets,
            changed: self.changed,
            newly_passed: self.newly_passed,
            newly_dropped: self.newly_dropped,
            by_rule,
            by_source: by_source.collect(),
            more_sources,
            first_packets: self.first,
            notes: CaptureNotes::default(),
            truncated: false,
            truncated_at: None,
            error: None,
        }
    }
}

/// The difference as text.
fn describe(difference: &Difference, old: &Policy, new: &Policy) -> String {
    let mut text = format!(
        "{} -> {}: {} of {} packets change ({} newly pass, {} are newly dropped)\n",
        old.program.name,
        new.program.name,
        figures::grouped(difference.changed),
        figures::grouped(difference.packets),
        figures::grouped(difference.newly_passed),
        figures::grouped(difference.newly_dropped)
    );
    if let Some(damage) = &difference.truncated_at {
        text += &damage.describe();
    }
    text += &difference.notes.describe();
    if difference.changed == 0 {
        return text;
    }
    text += "\n  By rule\n";
    for change in &difference.by_rule {
        text += &format!(
            "  {:>13} {:>9}  {} ({})  ->  {} ({})\n",
            figures::grouped(change.packets),
            figures::bytes(change.bytes),
            change.old.verdict,
            change.old.reason,
            change.new.verdict,
            change.new.reason
        );
    }
    text += &format!("\n  {:<39} newly passed  newly dropped\n", "By source");
    for change in &difference.by_source {
        text += &format!("  {:<39} {:>12} {:>14}\n", change.source, change.newly_passed, change.newly_dropped);
    }
    if difference.more_sources > 0 {
        text += &format!("  and {} more sources\n", figures::grouped(difference.more_sources));
    }
    let first: Vec<String> = difference.first_packets.iter().map(u64::to_string).collect();
    text += &format!("\n  First packets: {}\n", first.join(", "));
    text
}
