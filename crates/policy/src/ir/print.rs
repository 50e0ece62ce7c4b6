//! Prints IR as text, with nesting by indentation. `parse` reads it back to the same program.
//!
//! ```text
//! program edge
//! defaults malformed drop, arp accept, not-ip drop, fragment rules, ip-options rules, no-match accept
//! on-exit block
//! tracking size 262144 embryonic 25% unproven 50% pickup on one-way off vlan match invalid rules syn-sent 120000ms ... other 600000ms
//! synproxy mss 1460 wscale 7 sack-perm timestamp on 10000 off 1000 for 30s
//! observe size 65536 ip/32 ip6/128 inside 192.0.2.0-192.0.2.255
//! inside 192.0.2.0-192.0.2.255
//! slot 0 admin ip4 exact-set
//! slot 1 allowed+bad ip4 exact-sets
//! slot 2 limits customers ip4 rank-leaf
//! slot 3 suspects ip4 rank-leaf counters dynamic 65536 timeout 600000ms
//! limiter 0 customers upstream 0 prefixes ip4 nested log exceeded
//! limiter 1 rate upstream 0 rate 1mpps burst 10kpackets log off
//! limiter 2 each upstream 0 each ip saddr/24 50pps burst 10packets size 524288 log off
//! adder 0 update slot 3 ip saddr/24 timeout 60000ms
//! rules 0 attacks size 16
//! card chain 2 of 0 ends 2 counted 1 patterns 3 carried headers+sport lookups 4
//! rule 0 edge.weir:12 [accept] ip saddr @admin tcp dport { 22, 443 } accept
//! chain upstream
//!   ask 0 slot 0 ip saddr
//!   when ip4
//!     find 0
//!     when found 0
//!       when tcp
//!         when tcp dport in 22, 443
//!           rule 0
//! ```

use super::{
    Adder, Chain, Dynamic, Effect, Fallback, Limiter, LimiterKind, Node, Observe, Program, SlotContents, Synproxy,
    TIMEOUTS, TableKind, Test, Threshold, Tracking, ValueSet, Wanted,
};
use crate::field::{Answer, Field, Notation, Raw, RawBase, Subject};
use crate::ir::answers::Answering;
use std::fmt::{self, Display, Formatter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::{Action, Family};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", self.name)?;
        let defaults = &self.defaults;
        writeln!(
            f,
            "defaults malformed {}, arp {}, not-ip {}, fragment {}, ip-options {}, no-match {}",
            defaults.malformed.name(),
            fallback(defaults.arp),
            fallback(defaults.not_ip),
            fallback(defaults.fragment),
            fallback(defaults.ip_options),
            defaults.no_match.name()
        )?;
        writeln!(f, "on-exit {}", self.on_exit.name())?;
        self.tracking.iter().try_for_each(|tracking| print_tracking(f, tracking))?;
        self.observe.iter().try_for_each(|observe| print_observe(f, observe))?;
        if has_ranges(&self.inside) {
            write!(f, "inside")?;
            print_ranges(f, &self.inside)?;
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let limits = if matches!(slot.contents, SlotContents::Limits(_)) { "limits " } else { "" };
            let dynamic =
                slot.dynamic.map(|Dynamic { size, timeout_ms }| format!(" dynamic {size}{}", timeout(timeout_ms)));
            let (name, family, layout) = (slot.name(), family(slot.family), slot.layout.name());
            let counters = match slot.counted {
                None => "",
                Some(TableKind::Set) => " counters",
                Some(TableKind::Labels) => " counters of labels",
            };
            writeln!(f, "slot {index} {limits}{name} {family} {layout}{counters}{}", dynamic.unwrap_or_default())?;
        }
        for (index, limiter) in self.limiters.iter().enumerate() {
            let Limiter { name, direction, nth, kind, log } = limiter;
            let kind = match kind {
                LimiterKind::Prefixes { family: of, nested: false } => format!("prefixes {}", family(*of)),
                LimiterKind::Prefixes { family: of, nested: true } => format!("prefixes {} nested", family(*of)),
                LimiterKind::Labels => "labels".to_owned(),
                LimiterKind::Rate(limit) => format!("rate {limit}"),
                LimiterKind::Each(each) => each.to_string(),
            };
            writeln!(f, "limiter {index} {name} {} {nth} {kind} log {}", direction.name(), log.name())?;
        }
        for (index, adder) in self.adders.iter().enumerate() {
            let Adder { kind, slot, key, length, timeout_ms } = adder;
            let timeout = timeout(*timeout_ms);
            writeln!(f, "adder {index} {} slot {} {}/{length}{timeout}", kind.name(), slot.0, key.name())?;
        }
        for (index, slot) in self.rule_slots.iter().enumerate() {
            writeln!(f, "rules {index} {} size {}", slot.name, slot.size)?;
        }
        self.card.iter().try_for_each(|card| print_card(f, card))?;
        for (index, rule) in self.rules.iter().enumerate() {
            let effects: Vec<String> = rule.effects.iter().map(effect).collect();
            writeln!(f, "rule {index} {} [{}] {}", rule.at, effects.join(", "), rule.text)?;
        }
        self.chains.iter().try_for_each(|c| chain(f, c))
    }
}

fn print_card(f: &mut Formatter<'_>, Answering { chain, plain, body, lookups }: &Answering) -> fmt::Result {
    let list = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join("+") };
    let carried = list(body.carried.iter().map(|value| value.name().to_owned()).collect());
    let lookups = list(lookups.iter().map(|slot| slot.0.to_string()).collect());
    write!(f, "card chain {chain} of {plain} ends {} counted {} patterns {}", body.ends, body.counted, body.patterns)?;
    writeln!(f, " carried {carried} lookups {lookups}")
}

fn print_tracking(f: &mut Formatter<'_>, tracking: &Tracking) -> fmt::Result {
    let Tracking { size, embryonic_percent, unproven_percent, pickup, one_way, vlan_ignore, invalid, .. } = tracking;
    let Tracking { timeouts_ms, synproxy, .. } = tracking;
    write!(f, "tracking size {size} embryonic {embryonic_percent}% unproven {unproven_percent}%")?;
    write!(f, " pickup {}", if *pickup { "on" } else { "off" })?;
    write!(f, " one-way {}", if *one_way { "on" } else { "off" })?;
    write!(f, " vlan {} invalid {}", if *vlan_ignore { "ignore" } else { "match" }, invalid.name())?;
    TIMEOUTS.iter().zip(timeouts_ms).try_for_each(|((_, name, _), ms)| write!(f, " {name} {ms}ms"))?;
    writeln!(f)?;
    synproxy.iter().try_for_each(|synproxy| print_synproxy(f, synproxy))
}

fn print_observe(f: &mut Formatter<'_>, Observe { size, lengths, inside }: &Observe) -> fmt::Result {
    let [ipv4, ipv6] = lengths;
    write!(f, "observe size {size} ip/{ipv4} ip6/{ipv6}")?;
    if has_ranges(inside) {
        write!(f, " inside")?;
    }
    print_ranges(f, inside)
}

fn has_ranges(sets: &[ValueSet; 2]) -> bool {
    sets.iter().any(|set| !set.ranges().is_empty())
}

/// Prints the ranges of IPv4 and IPv6, and ends the line.
fn print_ranges(f: &mut Formatter<'_>, [ipv4, ipv6]: &[ValueSet; 2]) -> fmt::Result {
    let ipv4 = ipv4.ranges().iter().map(|&(first, last)| [first, last].map(|of| Ipv4Addr::from_bits(of as u32).into()));
    let ipv6 = ipv6.ranges().iter().map(|&(first, last)| [first, last].map(|of| Ipv6Addr::from_bits(of).into()));
    ipv4.chain(ipv6).try_for_each(|[first, last]: [IpAddr; 2]| write!(f, " {first}-{last}"))?;
    writeln!(f)
}

fn print_synproxy(f: &mut Formatter<'_>, synproxy: &Synproxy) -> fmt::Result {
    let Synproxy { mss, wscale, sack, timestamp, threshold } = synproxy;
    write!(f, "synproxy mss {mss}")?;
    wscale.iter().try_for_each(|shift| write!(f, " wscale {shift}"))?;
    write!(f, "{}{}", if *sack { " sack-perm" } else { "" }, if *timestamp { " timestamp" } else { "" })?;
    if let Some(Threshold { on, off, calm_s }) = threshold {
        write!(f, " on {on} off {off} for {calm_s}s")?;
    }
    writeln!(f)
}

fn chain(f: &mut Formatter<'_>, chain: &Chain) -> fmt::Result {
    match &chain.posture {
        None => writeln!(f, "chain {}", chain.direction.name())?,
        Some(posture) => writeln!(f, "chain {} of {posture}", chain.direction.name())?,
    }
    for (index, find) in chain.finds.iter().enumerate() {
        writeln!(f, "  ask {index} slot {} {}", find.slot.0, find.key.name())?;
    }
    for id in &chain.tree.staged {
        writeln!(f, "  stage {}", id.0)?;
    }
    block(f, &chain.tree.nodes, 1)
}

fn block(f: &mut Formatter<'_>, nodes: &[Node], depth: usize) -> fmt::Result {
    let indent = 2 * depth;
    for node in nodes {
        match node {
            Node::Find(id) => writeln!(f, "{:indent$}find {}", "", id.0)?,
            Node::Track => writeln!(f, "{:indent$}track", "")?,
            Node::Rule(id) => writeln!(f, "{:indent$}rule {}", "", id.0)?,
            Node::When { test, body } => {
                writeln!(f, "{:indent$}when {test}", "")?;
                block(f, body, depth + 1)?;
            }
        }
    }
    Ok(())
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Test::Guard(guard) => f.write_str(guard.name()),
            Test::Value { subject, mask, set, negated } => {
                write!(f, "{}", subject_name(*subject))?;
                if let Some(mask) = mask {
                    write!(f, " & {mask:#x}")?;
                }
                f.write_str(if *negated { " not in" } else { " in" })?;
                for (index, &(start, end)) in set.ranges().iter().enumerate() {
                    f.write_str(if index == 0 { " " } else { ", " })?;
                    f.write_str(&range(*subject, start, end))?;
                }
                Ok(())
            }
            Test::Found { find, wanted, negated } => {
                let not = if *negated { "not " } else { "" };
                match wanted {
                    Wanted::Any => write!(f, "{not}found {}", find.0),
                    Wanted::Table(index) => write!(f, "{not}found {} by table {index}", find.0),
                    Wanted::Labels(labels) => {
                        let labels: Vec<String> = labels.iter().map(|label| label.0.to_string()).collect();
                        write!(f, "found {} {not}in {}", find.0, labels.join(", "))
                    }
                }
            }
        }
    }
}

/// `203.0.113.0-203.0.113.255`, `22`, `80-443`.
pub fn range(subject: Subject, start: u128, end: u128) -> String {
    let mut text = value(subject, start);
    if start != end {
        let _ = write!(text, "-{}", value(subject, end));
    }
    text
}

/// A value of a subject: addresses in their notation, other values in decimal.
pub fn value(subject: Subject, value: u128) -> String {
    match subject {
        Subject::Card(Answer::Field(field)) => self::value(Subject::Field(field), value),
        Subject::Field(field) if field.notation() == Notation::Ipv4Address => Ipv4Addr::from(value as u32).to_string(),
        Subject::Field(field) if field.notation() == Notation::Ipv6Address => Ipv6Addr::from(value).to_string(),
        _ => value.to_string(),
    }
}

/// `card pattern 3`, `card tcp dport`.
fn answer_name(answer: Answer) -> String {
    match answer {
        Answer::Pattern(index) => format!("card pattern {index}"),
        Answer::Counted(index) => format!("card counted {index}"),
        Answer::First => "card first".to_owned(),
        Answer::Label(lookup) => format!("card label {lookup}"),
        Answer::Field(field) => format!("card {}", field.name()),
    }
}

/// `tcp dport`, `@nh,96,32`.
pub fn subject_name(subject: Subject) -> String {
    match subject {
        Subject::Field(field) => Field::name(field).to_owned(),
        Subject::Card(answer) => answer_name(answer),
        Subject::Raw(Raw { base, offset_bits, bits }) => {
            let base = match base {
                RawBase::Link => "ll",
                RawBase::Network => "nh",
                RawBase::Transport => "th",
            };
            format!("@{base},{offset_bits},{bits}")
        }
    }
}

pub(super) fn family(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ip4",
        Family::Ipv6 => "ip6",
    }
}

/// ` timeout 600000ms`, or nothing.
fn timeout(timeout_ms: Option<u64>) -> String {
    timeout_ms.map(|ms| format!(" timeout {ms}ms")).unwrap_or_default()
}

fn fallback(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::Decide(action) => Action::name(action),
        Fallback::Rules => "rules",
    }
}

fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Sample { one_in } => format!("sample 1/{one_in}"),
        Effect::Limit { limiter, find, add, exceed } => {
            let find = find.map(|find| format!(" find {}", find.0)).unwrap_or_default();
            let add = add.map(|add| format!("add {} ", add.0)).unwrap_or_default();
            format!("limit {}{find} exceed {add}{}", limiter.0, exceed.name())
        }
        Effect::Add { adder } => format!("add {}", adder.0),
        Effect::Count { find } => format!("count find {}", find.0),
        Effect::Track => "track".to_owned(),
        Effect::Synproxy => "synproxy".to_owned(),
        Effect::Slot(slot) => format!("slot {}", slot.0),
        Effect::Verdict(action) => action.name().to_owned(),
    }
}
