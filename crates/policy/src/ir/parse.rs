//! Parses printed IR. Used for tests, for bundles, and for hand-written programs.

use super::{
    AddKind, Adder, AdderId, Dynamic, Exceed, Invalid, LimitEach, Limiter, LimiterId, LimiterKind, Log, MatchTree,
    Observe, Slot, SlotContents, SlotId, Synproxy, TIMEOUTS, Test, Threshold, Tracking, ValueSet, Wanted, print,
    verify,
};
use super::{
    Chain, Defaults, Direction, Effect, Fallback, Find, FindId, LabelId, Node, OnExit, Program, Rule, RuleId, RuleSlot,
    RuleSlotId, TableKind,
};
use crate::field::{Answer, Field, Guard, Raw, RawBase, Subject};
use crate::ir::answers::{Answering, BodyLayout, Carried};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::card::FLAGS_BITS_MAX;
use weir_abi::{Action, Family, Layout};

/// Parses and verifies a program.
///
/// # Errors
/// `line N: ...` for a syntax error, or the error of `verify`.
pub fn parse(text: &str) -> Result<Program, String> {
    let mut program = Program {
        name: String::new(),
        defaults: Defaults::default(),
        on_exit: OnExit::default(),
        tracking: None,
        observe: None,
        inside: Default::default(),
        slots: vec![],
        limiters: vec![],
        adders: vec![],
        rule_slots: vec![],
        rules: vec![],
        chains: vec![],
        card: None,
    };
    let mut lines = Vec::new();
    for (index, line) in text.split_terminator('\n').enumerate() {
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if indent % 2 == 1 || indent / 2 > verify::DEPTH_MAX {
            return Err(format!("line {}: bad indentation", index + 1));
        }
        if !content.is_empty() {
            lines.push(Line { number: index + 1, depth: indent / 2, content });
        }
    }
    let mut rest = lines.as_slice();
    while let Some((line, tail)) = rest.split_first() {
        rest = tail;
        let (keyword, words) = line.content.split_once(' ').unwrap_or((line.content, ""));
        let done = match keyword {
            "program" => {
                program.name = words.to_owned();
                Some(())
            }
            "defaults" => defaults(words).map(|defaults| program.defaults = defaults),
            "on-exit" => OnExit::from_name(words).map(|on_exit| program.on_exit = on_exit),
            "tracking" => tracking(words).map(|tracking| program.tracking = Some(tracking)),
            "synproxy" => synproxy(words).zip(program.tracking.as_mut()).map(|(read, of)| of.synproxy = Some(read)),
            "inside" => ranges(words).map(|inside| program.inside = inside),
            "observe" => observe(words).map(|observe| program.observe = Some(observe)),
            "slot" => slot(words).map(|slot| program.slots.push(slot)),
            "limiter" => limiter(words).map(|limiter| program.limiters.push(limiter)),
            "adder" => adder(words).map(|adder| program.adders.push(adder)),
            "rules" => rule_slot(words).map(|slot| program.rule_slots.push(slot)),
            "card" => answering(words).map(|card| program.card = Some(card)),
            "rule" => rule(words).map(|rule| program.rules.push(rule)),
            "chain" => chain(words, &mut rest)?.map(|chain| program.chains.push(chain)),
            _ => None,
        };
        done.ok_or_else(|| line.error())?;
    }
    verify::verify(&program)?;
    Ok(program)
}

#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    depth: usize,
    content: &'a str,
}

impl Line<'_> {
    fn error(&self) -> String {
        format!("line {}: cannot read '{}'", self.number, self.content)
    }
}

fn defaults(text: &str) -> Option<Defaults> {
    let mut defaults = Defaults::default();
    for item in text.split(", ") {
        let (name, value) = item.split_once(' ')?;
        let decided = match value {
            "rules" => Fallback::Rules,
            _ => Fallback::Decide(Action::from_name(value)?),
        };
        match name {
            "malformed" => defaults.malformed = Action::from_name(value)?,
            "no-match" => defaults.no_match = Action::from_name(value)?,
            "arp" => defaults.arp = decided,
            "not-ip" => defaults.not_ip = decided,
            "fragment" => defaults.fragment = decided,
            "ip-options" => defaults.ip_options = decided,
            _ => return None,
        }
    }
    Some(defaults)
}

/// `size 262144 embryonic 25% unproven 50% pickup on one-way off vlan match invalid rules syn-sent 120000ms ...`
fn tracking(text: &str) -> Option<Tracking> {
    let words: Vec<&str> = text.split(' ').collect();
    let (settings, timeouts) = words.split_at_checked(14)?;
    let settings = settings.chunks_exact(2);
    let names = ["size", "embryonic", "unproven", "pickup", "one-way", "vlan", "invalid"];
    if !settings.clone().map(|setting| setting[0]).eq(names) {
        return None;
    }
    let values: Vec<&str> = settings.map(|setting| setting[1]).collect();
    let [size, embryonic, unproven, pickup, one_way, vlan, invalid] = values.try_into().ok()?;
    let is_second = |word: &str, of: [&str; 2]| of.iter().position(|&known| known == word).map(|index| index == 1);
    let is_on = |word: &str| is_second(word, ["off", "on"]);
    let mut tracking = Tracking {
        size: size.parse().ok()?,
        embryonic_percent: embryonic.strip_suffix('%')?.parse().ok()?,
        unproven_percent: unproven.strip_suffix('%')?.parse().ok()?,
        pickup: is_on(pickup)?,
        one_way: is_on(one_way)?,
        vlan_ignore: is_second(vlan, ["match", "ignore"])?,
        invalid: Invalid::from_name(invalid)?,
        ..Tracking::default()
    };
    if timeouts.len() != 2 * TIMEOUTS.len() {
        return None;
    }
    for (index, (pair, (_, known, _))) in timeouts.chunks_exact(2).zip(TIMEOUTS).enumerate() {
        let milliseconds = pair[1].strip_suffix("ms").filter(|_| pair[0] == known)?;
        tracking.timeouts_ms[index] = milliseconds.parse().ok()?;
    }
    Some(tracking)
}

/// `size 65536 ip/32 ip6/128 inside 192.0.2.0-192.0.2.255`
fn observe(text: &str) -> Option<Observe> {
    let (settings, inside) = text.split_once(" inside ").unwrap_or((text, ""));
    let ["size", size, ipv4, ipv6] = settings.split(' ').collect::<Vec<_>>()[..] else { return None };
    let lengths = [ipv4.strip_prefix("ip/")?.parse().ok()?, ipv6.strip_prefix("ip6/")?.parse().ok()?];
    Some(Observe { size: size.parse().ok()?, lengths, inside: ranges(inside)? })
}

/// `192.0.2.0-192.0.2.255 2001:db8::-2001:db8::ff`
fn ranges(text: &str) -> Option<[ValueSet; 2]> {
    let mut ranges = [vec![], vec![]];
    for range in text.split(' ').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-')?;
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let [first_bits, last_bits] = [first, last].map(|address| match address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        });
        ranges[usize::from(first.is_ipv6())].push((first_bits, last_bits));
    }
    Some(ranges.map(ValueSet::new))
}

/// `mss 1460 wscale 7 sack-perm timestamp on 10000 off 1000 for 30s`
fn synproxy(text: &str) -> Option<Synproxy> {
    let (offer, threshold) = match text.split_once(" on ") {
        Some((offer, threshold)) => (offer, Some(threshold)),
        None => (text, None),
    };
    let threshold = match threshold.map(|threshold| threshold.split(' ').collect::<Vec<_>>()) {
        None => None,
        Some(words) => {
            let [on, "off", off, "for", calm] = words[..] else { return None };
            let calm_s = calm.strip_suffix('s')?.parse().ok()?;
            Some(Threshold { on: on.parse().ok()?, off: off.parse().ok()?, calm_s })
        }
    };
    let (mss, options) = offer.strip_prefix("mss ")?.split_once(' ').unwrap_or((offer.strip_prefix("mss ")?, ""));
    let mut read = Synproxy { mss: mss.parse().ok()?, wscale: None, sack: false, timestamp: false, threshold };
    let mut words = options.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        match word {
            "wscale" => read.wscale = Some(words.next()?.parse().ok()?),
            "sack-perm" => read.sack = true,
            "timestamp" => read.timestamp = true,
            _ => return None,
        }
    }
    Some(read)
}

/// `3 suspects ip4 rank-leaf counters dynamic 65536 timeout 600000ms`
/// `chain 2 of 0 ends 2 counted 1 patterns 3 carried headers+sport lookups 3+4`, with `-` for nothing.
fn answering(text: &str) -> Option<Answering> {
    const NAMES: [&str; 7] = ["chain", "of", "ends", "counted", "patterns", "carried", "lookups"];
    let words: Vec<&str> = text.split(' ').collect();
    if words.len() != 2 * NAMES.len() || !words.iter().step_by(2).eq(&NAMES) {
        return None;
    }
    let values: Vec<&str> = words.into_iter().skip(1).step_by(2).collect();
    let [chain, plain, ends, counted, patterns, carried, lookups] = values[..] else { return None };
    let list = |words: &str| -> Vec<String> {
        if words == "-" { vec![] } else { words.split('+').map(str::to_owned).collect() }
    };
    let value = |name: &String| Carried::ALL.into_iter().find(|value| value.name() == name);
    let lookups: Option<Vec<SlotId>> = list(lookups).iter().map(|slot| slot.parse().ok().map(SlotId)).collect();
    let lookups = lookups?;
    let body = BodyLayout {
        ends: ends.parse().ok().filter(|&ends| ends <= usize::from(u8::MAX))?,
        counted: counted.parse().ok().filter(|&counted| counted <= FLAGS_BITS_MAX)?,
        patterns: patterns.parse().ok().filter(|&patterns| patterns <= FLAGS_BITS_MAX)?,
        carried: list(carried).iter().map(value).collect::<Option<_>>()?,
        lookups: lookups.len(),
    };
    Some(Answering { chain: chain.parse().ok()?, plain: plain.parse().ok()?, body, lookups })
}

fn slot(text: &str) -> Option<Slot> {
    // A table may be named `dynamic`.
    let (text, dynamic) = match text.rsplit_once(" dynamic ") {
        Some((slot, bounds)) if bounds.starts_with(|c: char| c.is_ascii_digit()) => (slot, Some(bounds)),
        _ => (text, None),
    };
    let dynamic = match dynamic.map(timeout) {
        Some(bounds) => {
            let (size, timeout_ms) = bounds?;
            Some(Dynamic { size: size.parse().ok()?, timeout_ms })
        }
        None => None,
    };
    let mut words: Vec<&str> = text.split(' ').skip(1).collect();
    // A table may be named `counters`.
    let counted = match words[..] {
        [_, _, _, "counters"] => Some(TableKind::Set),
        [_, _, _, "counters", "of", "labels"] => Some(TableKind::Labels),
        _ => None,
    };
    if counted.is_some() {
        words.truncate(3);
    }
    // A table may be named `limits`. A slot of limits has one word more.
    let (contents, of, layout) = match words[..] {
        ["limits", name, family, layout] => (SlotContents::Limits(name.to_owned()), family, layout),
        [names, family, layout] => {
            (SlotContents::Tables(names.split('+').map(str::to_owned).collect()), family, layout)
        }
        _ => return None,
    };
    Some(Slot { contents, family: family(of)?, layout: Layout::from_name(layout)?, dynamic, counted })
}

/// Splits ` timeout 600000ms` off the end of a text.
fn timeout(text: &str) -> Option<(&str, Option<u64>)> {
    match text.split_once(" timeout ") {
        Some((text, timeout)) => Some((text, Some(timeout.strip_suffix("ms")?.parse().ok()?))),
        None => Some((text, None)),
    }
}

/// `0 update slot 3 ip saddr/24 timeout 60000ms`
fn adder(text: &str) -> Option<Adder> {
    let (text, timeout_ms) = timeout(text)?;
    let (_, text) = text.split_once(' ')?;
    let (kind, text) = text.split_once(" slot ")?;
    let (slot, text) = text.split_once(' ')?;
    let (key, length) = text.split_once('/')?;
    Some(Adder {
        kind: AddKind::ALL.into_iter().find(|known| known.name() == kind)?,
        slot: SlotId(slot.parse().ok()?),
        key: Field::from_name(key)?,
        length: length.parse().ok()?,
        timeout_ms,
    })
}

fn family(name: &str) -> Option<Family> {
    [Family::Ipv4, Family::Ipv6].into_iter().find(|&family| print::family(family) == name)
}

fn limiter(text: &str) -> Option<Limiter> {
    let (text, log) = text.rsplit_once(" log ")?;
    let mut words = text.splitn(5, ' ').skip(1);
    let (name, direction, nth, kind) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let kind = match kind.split(' ').collect::<Vec<_>>()[..] {
        ["prefixes", of] => LimiterKind::Prefixes { family: family(of)?, nested: false },
        ["prefixes", of, "nested"] => LimiterKind::Prefixes { family: family(of)?, nested: true },
        ["labels"] => LimiterKind::Labels,
        ["each", ..] => LimiterKind::Each(LimitEach::read(kind)?),
        _ => LimiterKind::Rate(kind.strip_prefix("rate ")?.parse().ok()?),
    };
    Some(Limiter {
        name: name.to_owned(),
        direction: Direction::BOTH.into_iter().find(|known| known.name() == direction)?,
        nth: nth.parse().ok()?,
        kind,
        log: Log::ALL.into_iter().find(|known| known.name() == log)?,
    })
}

/// `0 attacks size 16`
fn rule_slot(text: &str) -> Option<RuleSlot> {
    let [_, name, "size", size] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
    Some(RuleSlot { name: name.to_owned(), size: size.parse().ok()? })
}

fn rule(text: &str) -> Option<Rule> {
    let (_, text) = text.split_once(' ')?;
    let (at, text) = text.split_once(" [")?;
    let (effects, text) = text.split_once("] ")?;
    let effects = effects.split(", ").filter(|text| !text.is_empty()).map(effect).collect::<Option<_>>()?;
    Some(Rule { at: at.to_owned(), text: text.to_owned(), effects })
}

fn effect(text: &str) -> Option<Effect> {
    if let Some(one_in) = text.strip_prefix("sample 1/") {
        return Some(Effect::Sample { one_in: one_in.parse().ok()? });
    }
    if let Some(limit) = text.strip_prefix("limit ") {
        let (whose, exceed) = limit.split_once(" exceed ")?;
        let (add, exceed) = match exceed.strip_prefix("add ").and_then(|add| add.split_once(' ')) {
            Some((adder, exceed)) => (Some(AdderId(adder.parse().ok()?)), exceed),
            None => (None, exceed),
        };
        let exceed = Exceed::ALL.into_iter().find(|known| known.name() == exceed)?;
        let (limiter, find) = match whose.split_once(" find ") {
            Some((limiter, find)) => (limiter, Some(FindId(find.parse().ok()?))),
            None => (whose, None),
        };
        return Some(Effect::Limit { limiter: LimiterId(limiter.parse().ok()?), find, add, exceed });
    }
    if let Some(find) = text.strip_prefix("count find ") {
        return Some(Effect::Count { find: FindId(find.parse().ok()?) });
    }
    if let Some(adder) = text.strip_prefix("add ") {
        return Some(Effect::Add { adder: AdderId(adder.parse().ok()?) });
    }
    if let Some(slot) = text.strip_prefix("slot ") {
        return Some(Effect::Slot(RuleSlotId(slot.parse().ok()?)));
    }
    match text {
        "track" => Some(Effect::Track),
        "synproxy" => Some(Effect::Synproxy),
        _ => Some(Effect::Verdict(Action::from_name(text)?)),
    }
}

/// Parses the lines of a chain. `Ok(None)` if its head is invalid.
fn chain(head: &str, rest: &mut &[Line<'_>]) -> Result<Option<Chain>, String> {
    let (direction, posture) = match head.split_once(" of ") {
        Some((direction, posture)) => (direction, Some(posture.to_owned())),
        None => (head, None),
    };
    let Some(direction) = Direction::BOTH.into_iter().find(|d| d.name() == direction) else { return Ok(None) };
    let (mut finds, mut staged) = (Vec::new(), Vec::new());
    while let Some((line, tail)) = rest.split_first() {
        let done = match line.content.split_once(' ') {
            Some(("ask", words)) => find(words).map(|find| finds.push(find)),
            Some(("stage", id)) => id.parse().ok().map(|id| staged.push(FindId(id))),
            _ => break,
        };
        done.ok_or_else(|| line.error())?;
        *rest = tail;
    }
    let tree = MatchTree { staged, nodes: block(rest, 1)? };
    Ok(Some(Chain { posture, direction, finds, tree }))
}

fn find(words: &str) -> Option<Find> {
    let (_, words) = words.split_once(" slot ")?;
    let (slot, key) = words.split_once(' ')?;
    Some(Find { slot: SlotId(slot.parse().ok()?), key: Field::from_name(key)? })
}

fn block(rest: &mut &[Line<'_>], depth: usize) -> Result<Vec<Node>, String> {
    let mut nodes = Vec::new();
    while let Some((line, tail)) = rest.split_first() {
        if line.depth < depth {
            break;
        }
        if line.depth > depth {
            return Err(line.error());
        }
        *rest = tail;
        let node = match line.content.split_once(' ') {
            None if line.content == "track" => Some(Node::Track),
            Some(("find", id)) => id.parse().ok().map(|id| Node::Find(FindId(id))),
            Some(("rule", id)) => id.parse().ok().map(|id| Node::Rule(RuleId(id))),
            Some(("when", words)) => match test(words) {
                Some(test) => Some(Node::When { test, body: block(rest, depth + 1)? }),
                None => None,
            },
            _ => None,
        };
        nodes.push(node.ok_or_else(|| line.error())?);
    }
    Ok(nodes)
}

fn test(words: &str) -> Option<Test> {
    if let Some(&(guard, _)) = Guard::ALL.iter().find(|&&(_, name)| name == words) {
        return Some(Test::Guard(guard));
    }
    if let Some(find) = words.strip_prefix("not found ") {
        return found(find, true);
    }
    if let Some(find) = words.strip_prefix("found ").filter(|find| !find.contains("in ")) {
        return found(find, false);
    }
    let (left, right, negated) = match words.rsplit_once(" not in") {
        Some((left, right)) => (left, Some(right), true),
        None => match words.rsplit_once(" in") {
            Some((left, right)) => (left, Some(right), false),
            None => (words, None, false),
        },
    };
    let right = right.map(|list| list.trim_start().split(", ").filter(|item| !item.is_empty()));
    if let Some(find) = left.strip_prefix("found ") {
        let find = FindId(find.parse().ok()?);
        let labels = right?.map(|label| label.parse().ok().map(LabelId)).collect::<Option<_>>()?;
        return Some(Test::Found { find, wanted: Wanted::Labels(labels), negated });
    }
    let (name, mask) = match left.split_once(" & 0x") {
        Some((name, mask)) => (name, Some(u128::from_str_radix(mask, 16).ok()?)),
        None => (left, None),
    };
    let set = ValueSet::new(right?.map(range).collect::<Option<Vec<_>>>()?);
    Some(Test::Value { subject: subject(name)?, mask, set, negated })
}

/// `3`, `3 by table 1`.
fn found(text: &str, negated: bool) -> Option<Test> {
    let (find, wanted) = match text.split_once(" by table ") {
        Some((find, index)) => (find, Wanted::Table(index.parse().ok()?)),
        None => (text, Wanted::Any),
    };
    Some(Test::Found { find: FindId(find.parse().ok()?), wanted, negated })
}

fn answer(name: &str) -> Option<Answer> {
    match name.split_once(' ') {
        None if name == "first" => Some(Answer::First),
        Some(("pattern", index)) => index.parse().ok().map(Answer::Pattern),
        Some(("counted", index)) => index.parse().ok().map(Answer::Counted),
        Some(("label", lookup)) => lookup.parse().ok().map(Answer::Label),
        _ => Field::from_name(name).map(Answer::Field),
    }
}

fn subject(name: &str) -> Option<Subject> {
    if let Some(name) = name.strip_prefix("card ") {
        return answer(name).map(Subject::Card);
    }
    let Some(raw) = name.strip_prefix('@') else { return Field::from_name(name).map(Subject::Field) };
    let mut parts = raw.split(',');
    let base = match parts.next()? {
        "ll" => RawBase::Link,
        "nh" => RawBase::Network,
        "th" => RawBase::Transport,
        _ => return None,
    };
    let (offset_bits, bits) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let sane = offset_bits <= Raw::OFFSET_BITS_MAX && (1..=128).contains(&bits);
    sane.then_some(Subject::Raw(Raw { base, offset_bits, bits }))
}

fn range(text: &str) -> Option<(u128, u128)> {
    match text.split_once('-') {
        Some((start, end)) => Some((value(start)?, value(end)?)),
        None => value(text).map(|value| (value, value)),
    }
}

fn value(text: &str) -> Option<u128> {
    if text.contains(':') {
        text.parse::<Ipv6Addr>().ok().map(u128::from)
    } else if text.contains('.') {
        text.parse::<Ipv4Addr>().ok().map(|address| u32::from(address).into())
    } else {
        text.parse().ok()
    }
}
