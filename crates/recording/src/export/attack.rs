//! What is exported: an attack, and the policy that was in front of it.

use super::expected::SlotRules;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_command::inside::Inside;
use weir_loading::LimitList;
use weir_mitigate::action::{Ending, Measure};
use weir_mitigate::excerpt::Excerpt;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::victim::Evidence;
use weir_mitigate::{Attack, State};
use weir_policy::slot_rule::{self, SlotRule};
use weir_policy::source::SourceMap;
use weir_tables::Table;

/// The policy that was in front of an attack.
#[derive(Clone, Debug, Default)]
pub struct PolicyParts {
    /// Its text, unless it is a bundle. Without both there was no policy.
    pub sources: Option<SourceMap>,
    /// The bundle that it came from.
    pub bundle: Option<PathBuf>,
    /// The contents of its tables.
    pub tables: Vec<(String, Arc<Table>)>,
    /// Its lists of limits.
    pub limits: Vec<LimitList>,
    /// The rules in its slots: slot and rule.
    pub slot_rules: Vec<(String, String)>,
    /// The posture that was active.
    pub posture: Option<String>,
}

/// An attack that is exported.
#[derive(Clone, Debug)]
pub struct Export {
    /// The number of the attack.
    pub number: u32,
    /// When it was detected, since 1970.
    pub detected: Duration,
    /// What the times of the packets lack to be times since 1970, ns.
    pub shift_ns: i128,
    /// The victim.
    pub victim: String,
    /// The kind of the attack.
    pub kind: &'static str,
    /// What was measured and decided, for people.
    pub details: String,
    /// The rules against it.
    pub rules: Vec<String>,
    /// The blocked sources.
    pub sources: Vec<String>,
    /// The protected prefixes.
    pub inside: Vec<Inside>,
    /// The slot that takes the rules, and the table of blocked sources.
    pub slot: String,
    /// The tables that take sources.
    pub source_tables: Vec<String>,
    /// The packets.
    pub excerpt: Excerpt,
}

impl Export {
    /// The export of an attack. Times of its packets plus `shift_ns` are since 1970.
    pub fn new(attack: &Attack, excerpt: Excerpt, inside: Vec<Inside>, slot: String, shift_ns: i128) -> Self {
        let (rules, sources) = measures(attack);
        let detected_ns = u64::try_from(i128::from(attack.from_ns) + shift_ns).unwrap_or(0);
        Export {
            number: attack.id.unwrap_or_default(),
            detected: Duration::from_nanos(detected_ns),
            shift_ns,
            victim: attack.victim.to_string(),
            kind: attack.kind(),
            details: details(attack),
            rules,
            sources,
            inside,
            slot,
            source_tables: Vec::new(),
            excerpt,
        }
    }
}

/// What is known of an attack, for people.
pub fn details(attack: &Attack) -> String {
    let mut text = format!(
        "IP: {}\nAttack type: {}\nPeak attack power: {:.0} packets per second\nAttack direction: incoming\n",
        attack.victim,
        attack.kind(),
        attack.peak_pps
    );
    write_evidence(&mut text, &attack.evidence);
    for vector in attack.vectors.all().iter().skip(1) {
        let over = if vector.is_over { ", over" } else { "" };
        let _ = writeln!(text, "Also {}: peak {:.0} packets per second{over}", vector.kind(), vector.peak_pps);
        write_evidence(&mut text, &vector.evidence);
    }
    for record in attack.standing() {
        let state = if record.state == State::Active { "active" } else { "waits" };
        let _ = writeln!(text, "Action {} ({state}): {}", record.action.id, record.action.measure);
    }
    text
}

fn write_evidence(text: &mut String, evidence: &[Evidence]) {
    for one in evidence {
        let _ = write!(text, "{}: {:.1}, usual {:.1}", one.measure, one.value, one.usual);
        let _ = match one.threshold {
            Some(threshold) => writeln!(text, ", threshold {threshold:.1}"),
            None => writeln!(text),
        };
    }
}

/// The rules and blocked sources against an attack: those that are carried out or wait.
fn measures(attack: &Attack) -> (Vec<String>, Vec<String>) {
    let is_wanted = |state: State| match state {
        State::Proposed | State::Active => true,
        State::Ended(ending) => matches!(ending, Ending::Quiet | Ending::Timeout | Ending::Stopped),
    };
    let (mut rules, mut sources): (Vec<String>, Vec<String>) = Default::default();
    for record in attack.records.iter().filter(|record| is_wanted(record.state)) {
        match &record.action.measure {
            Measure::Drop(_) | Measure::Limit(..) => rules.push(written(&record.action.measure.to_string())),
            Measure::Block((is_ipv6, address), _) => {
                sources.push(Prefix::of(*is_ipv6, *address, u8::MAX).to_string());
            }
            Measure::Posture(_) | Measure::SynProxy(..) => {}
        }
    }
    rules.dedup();
    (rules, sources)
}

/// A rule as slots print it, so that equal rules have equal texts.
fn written(rule: &str) -> String {
    SlotRule::parse(rule).map_or_else(|_| rule.to_owned(), |parsed| slot_rule::text(&parsed.record))
}

/// The rules of all slots, with those against the attack in the slot for them.
pub fn rules_of_slots(export: &Export, policy: &PolicyParts) -> Vec<SlotRules> {
    let of_slot = |(slot, rule): &(String, String)| SlotRules { slot: slot.clone(), rule: rule.clone() };
    let mut rules: Vec<SlotRules> = policy.slot_rules.iter().map(of_slot).collect();
    for rule in &export.rules {
        let own = SlotRules { slot: export.slot.clone(), rule: rule.clone() };
        if !rules.contains(&own) {
            rules.push(own);
        }
    }
    rules
}
