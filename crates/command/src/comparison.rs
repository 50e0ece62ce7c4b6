//! Compares the verdicts of two policies packet by packet, by rule and by source. `weir diff` does so for the packets of
//! a capture, and a shadow for packets of interfaces.

use crate::engine::action;
use crate::figures;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use weir_abi::{Action, Reason, Verdict};
use weir_control::{Comparison, Decision, RuleChange, SourceChange};

/// Most sources that are listed.
const LISTED_MAX: usize = 20;

/// A packet that both policies have judged.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The verdict of the old policy.
    pub old: Verdict,
    /// The verdict of the new policy.
    pub new: Verdict,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Compared {
    /// Whether the packet has another fate. Another reason for the same action is no change.
    pub fn is_changed(&self) -> bool {
        action(self.old) != action(self.new)
    }
}

/// A number of packets and of bytes.
type Count = (u64, u64);

/// The differences so far.
pub struct Comparing {
    packets: u64,
    changed: u64,
    newly_passed: u64,
    newly_dropped: u64,
    /// By verdicts, as the programs number their rules.
    numbered: BTreeMap<(u32, u32), Count>,
    named: BTreeMap<(Decision, Decision), Count>,
    sources: BTreeMap<Option<IpAddr>, [u64; 3]>,
    sources_max: usize,
    uncounted: u64,
}

impl Comparing {
    /// Counts up to `sources_max` sources separately.
    pub fn new(sources_max: usize) -> Self {
        Comparing {
            packets: 0,
            changed: 0,
            newly_passed: 0,
            newly_dropped: 0,
            numbered: BTreeMap::new(),
            named: BTreeMap::new(),
            sources: BTreeMap::new(),
            sources_max,
            uncounted: 0,
        }
    }

    /// Counts a packet. `source` is called if its verdict has changed; it is `None` for packets without an address.
    pub fn add(&mut self, packet: Compared, source: impl FnOnce() -> Option<IpAddr>) {
        self.packets += 1;
        if !packet.is_changed() {
            return;
        }
        let kind = match action(packet.new) {
            Action::Accept => 0,
            Action::Drop => 1,
            Action::Divert | Action::Reply => 2,
        };
        self.changed += 1;
        self.newly_passed += u64::from(kind == 0);
        self.newly_dropped += u64::from(kind == 1);
        let unsampled = |verdict: Verdict| verdict.0 & !Verdict::SAMPLED;
        let rule = self.numbered.entry((unsampled(packet.old), unsampled(packet.new))).or_default();
        *rule = (rule.0 + 1, rule.1 + packet.bytes);
        let source = source();
        if self.sources.len() < self.sources_max || self.sources.contains_key(&source) {
            self.sources.entry(source).or_default()[kind] += 1;
        } else {
            self.uncounted += 1;
        }
    }

    /// Gives reasons of packets so far their names. Call it before a policy gives way to another one, and before
    /// [`Comparing::comparison`].
    pub fn name(&mut self, old: impl Fn(Reason) -> String, new: impl Fn(Reason) -> String) {
        let decision = |verdict: u32, name: &dyn Fn(Reason) -> String| Decision {
            verdict: action(Verdict(verdict)).name().to_owned(),
            reason: name(Verdict(verdict).reason()),
        };
        for ((before, after), (packets, bytes)) in std::mem::take(&mut self.numbered) {
            let rule = self.named.entry((decision(before, &old), decision(after, &new))).or_default();
            *rule = (rule.0 + packets, rule.1 + bytes);
        }
    }

    /// The differences.
    ///
    /// # Panics
    /// Rules were not named ([`Comparing::name`]).
    pub fn comparison(&self) -> Comparison {
        assert!(self.numbered.is_empty(), "rules are named first");
        let changes = self.named.iter().map(|((old, new), (packets, bytes))| RuleChange {
            old: old.clone(),
            new: new.clone(),
            packets: *packets,
            bytes: *bytes,
        });
        let mut by_rule: Vec<RuleChange> = changes.collect();
        by_rule.sort_by_key(|change| Reverse(change.packets));
        let mut sources: Vec<(&Option<IpAddr>, &[u64; 3])> = self.sources.iter().collect();
        sources.sort_by_key(|(_, counts)| Reverse(counts.iter().sum::<u64>()));
        let more_sources = sources.len().saturating_sub(LISTED_MAX) as u64 + self.uncounted;
        let listed = sources.into_iter().take(LISTED_MAX);
        let by_source = listed.map(|(source, [passed, dropped, other])| SourceChange {
            source: source.map_or_else(|| "not IP".to_owned(), |source| source.to_string()),
            newly_passed: *passed,
            newly_dropped: *dropped,
            other: *other,
        });
        Comparison {
            packets: self.packets,
            changed: self.changed,
            newly_passed: self.newly_passed,
            newly_dropped: self.newly_dropped,
            by_rule,
            by_source: by_source.collect(),
            more_sources,
        }
    }
}

/// How many packets change, as text: `3 of 1,000 packets change (1 newly pass, 2 are newly dropped)`.
pub fn summary(comparison: &Comparison) -> String {
    let [changed, packets, passed, dropped] =
        [comparison.changed, comparison.packets, comparison.newly_passed, comparison.newly_dropped]
            .map(figures::grouped);
    format!("{changed} of {packets} packets change ({passed} newly pass, {dropped} are newly dropped)")
}

/// The tables by rule and by source. The text is empty if no packet changes.
pub fn tables(comparison: &Comparison) -> String {
    let mut text = String::new();
    if comparison.changed == 0 {
        return text;
    }
    text += "\n  By rule\n";
    for RuleChange { old, new, packets, bytes } in &comparison.by_rule {
        let (packets, bytes) = (figures::grouped(*packets), figures::bytes(*bytes));
        let [old, new] = [old, new].map(|Decision { verdict, reason }| format!("{verdict} ({reason})"));
        let _ = writeln!(text, "  {packets:>13} {bytes:>9}  {old}  ->  {new}");
    }
    let _ = writeln!(text, "\n  {:<39} newly passed  newly dropped", "By source");
    for change in &comparison.by_source {
        let _ = writeln!(text, "  {:<39} {:>12} {:>14}", change.source, change.newly_passed, change.newly_dropped);
    }
    if comparison.more_sources > 0 {
        let _ = writeln!(text, "  and {} more sources", figures::grouped(comparison.more_sources));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Compared, Comparing, summary, tables};
    use crate::report::reason_name;
    use std::net::IpAddr;
    use weir_abi::verdict::Sampled;
    use weir_abi::{Action, Reason, Verdict};
    use weir_policy::ir::Program;
    use weir_policy::ir::parse::parse;

    fn program(name: &str, lines: [u32; 2]) -> Program {
        let rules = lines.map(|line| format!("rule {} {name}:{line} [drop] drop\n", usize::from(line != lines[0])));
        let text = format!("program {name}\n{}chain upstream\n  rule 0\n  rule 1\n", rules.concat());
        parse(&text).expect("a program")
    }

    fn names(program: &Program) -> impl Fn(Reason) -> String {
        |reason| reason_name(program, reason)
    }

    fn packet(old: Action, rule: u16, new: Action) -> Compared {
        let new = Verdict::new(new, Reason::NO_MATCH, Sampled::Yes);
        Compared { old: Verdict::new(old, Reason::rule(rule), Sampled::No), new, bytes: 100 }
    }

    /// When lines are added to the old policy, its rules get other numbers.
    #[test]
    fn rules_keep_their_names_when_a_policy_changes() {
        let (first, second, new) = (program("old", [1, 2]), program("old", [2, 3]), program("new", [1, 2]));
        let mut comparing = Comparing::new(10);
        let source: IpAddr = "192.0.2.1".parse().expect("an address");
        comparing.add(packet(Action::Drop, 1, Action::Accept), || Some(source));
        comparing.name(names(&first), names(&new));
        comparing.add(packet(Action::Drop, 0, Action::Accept), || Some(source));
        comparing.add(packet(Action::Drop, 1, Action::Drop), || panic!("nothing has changed"));
        comparing.name(names(&second), names(&new));
        let comparison = comparing.comparison();
        assert_eq!(summary(&comparison), "2 of 3 packets change (2 newly pass, 0 are newly dropped)");
        let [only] = &comparison.by_rule[..] else { panic!("one change: {:?}", comparison.by_rule) };
        assert_eq!((only.old.reason.as_str(), only.new.reason.as_str(), only.packets), ("old:2", "no-match", 2));
    }

    #[test]
    fn sources_beyond_the_maximum_are_counted_together() {
        let mut comparing = Comparing::new(2);
        for last in [1, 2, 3, 2, 4] {
            comparing.add(packet(Action::Accept, 0, Action::Drop), || Some(IpAddr::from([192, 0, 2, last])));
        }
        let program = program("p", [1, 2]);
        comparing.name(names(&program), names(&program));
        let comparison = comparing.comparison();
        let listed: Vec<_> = comparison.by_source.iter().map(|one| (one.source.as_str(), one.newly_dropped)).collect();
        assert_eq!((listed, comparison.more_sources), (vec![("192.0.2.2", 2), ("192.0.2.1", 1)], 2));
        assert!(tables(&comparison).ends_with("  and 2 more sources\n"));
    }
}
