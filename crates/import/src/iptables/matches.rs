//! Matches of iptables, as iptables-extensions(8) describes them.
//!
//! One idea with `matches/rates.rs`: the matches of rates read what all matches read.

use super::line::Words;
use super::set::Sets;
use crate::condition::{self, Condition, PROTOCOLS, Range, STATES};
use crate::finding::Effect;
use crate::ruleset::{InterfaceTest, Rule, Test};

mod rates;

/// What a match needs of its rule.
pub struct Context<'a> {
    /// Whether the rule is of ip6tables.
    pub is_ipv6: bool,
    /// The protocol of `-p`.
    pub protocol: Option<String>,
    /// The sets.
    pub sets: &'a mut Sets,
    /// The place of the rule.
    pub at: &'a str,
}

impl Context<'_> {
    fn ip(&self) -> &'static str {
        if self.is_ipv6 { "ip6" } else { "ip" }
    }
}

/// A value with its text.
type Valued = (Range, String);

/// Reads one option of a rule, with its values.
pub fn read(
    rule: &mut Rule,
    alternatives: &mut Vec<Vec<Test>>,
    option: &str,
    words: &mut Words,
    context: &mut Context<'_>,
) {
    let is_negated = option == "!";
    let name = if is_negated { words.next().unwrap_or_default() } else { option.to_owned() };
    let mut tests = Vec::new();
    let known = network(&mut tests, &name, is_negated, words, context)
        || transport(&mut tests, alternatives, &name, is_negated, words, context)
        || state(&mut tests, &name, is_negated, words)
        || rates::read(rule, &name, is_negated, words, context)
        || other(rule, &mut tests, alternatives, &name, is_negated, words, context);
    if !known {
        words.skip_values();
        tests.push(Test::Foreign(format!("`{name}` is not there in Weir")));
    }
    rule.tests.extend(tests);
}

fn test(field: &str, is_negated: bool, values: &[Valued]) -> Test {
    let condition = if is_negated { Condition::none_of(field, values) } else { Condition::one_of(field, values) };
    Test::Field(condition)
}

fn network(tests: &mut Vec<Test>, name: &str, not: bool, words: &mut Words, context: &mut Context<'_>) -> bool {
    let mut value = || words.next().unwrap_or_default();
    match name {
        "-s" | "-d" => {
            let field = format!("{} {}", context.ip(), if name == "-s" { "saddr" } else { "daddr" });
            tests.push(address(&field, not, &value()));
        }
        "--src-range" | "--dst-range" => {
            let field = format!("{} {}", context.ip(), if name == "--src-range" { "saddr" } else { "daddr" });
            let text = value();
            let ends = text
                .split_once('-')
                .and_then(|(first, last)| Some((condition::address(first)?.0.0, condition::address(last)?.0.1)));
            tests.push(match ends {
                Some(range) => test(&field, not, &[(range, text)]),
                None => Test::Foreign("its range cannot be read".to_owned()),
            });
        }
        "-i" | "-o" => {
            let names = vec![value().replace('+', "*")];
            tests.push(Test::Interface(InterfaceTest { is_incoming: name == "-i", is_negated: not, names }));
        }
        "-p" => {
            let protocol = value();
            let known = PROTOCOLS.iter().find(|(known, number)| *known == protocol || number.to_string() == protocol);
            let (shown, number) = match (protocol.as_str(), known) {
                ("ipv6-icmp" | "icmp6", _) => ("icmpv6".to_owned(), Some(58)),
                ("all" | "0", _) => return true,
                (_, Some((name, number))) => ((*name).to_owned(), Some(*number)),
                (text, None) => (text.to_owned(), condition::number(text)),
            };
            if !not {
                context.protocol = Some(shown.clone());
            }
            tests.push(match number {
                Some(number) => test("meta l4proto", not, &[((number, number), shown)]),
                None => {
                    let sign = if not { "!= " } else { "" };
                    Test::Field(Condition::opaque("meta l4proto", format!("meta l4proto {sign}{shown}")))
                }
            });
        }
        // Fragments after the first.
        "-f" => {
            let kinds = if not { [(0, "none"), (1, "first")].as_slice() } else { [(2, "later")].as_slice() };
            let values: Vec<Valued> = kinds.iter().map(|(at, name)| ((*at, *at), (*name).to_owned())).collect();
            tests.push(test("meta fragment", false, &values));
        }
        _ => return false,
    }
    true
}

fn address(field: &str, is_negated: bool, text: &str) -> Test {
    match condition::address(text) {
        Some(((0, high), _)) if high == u32::MAX.into() && !field.starts_with("ip6") || high == u128::MAX => {
            if is_negated {
                Test::Never
            } else {
                Test::Field(Condition::family(if high == u128::MAX { condition::IPV6 } else { condition::IPV4 }))
            }
        }
        Some(value) => test(field, is_negated, &[value]),
        None => Test::Foreign(format!("the address {text} cannot be read: its mask is no prefix, or it is a name")),
    }
}

fn transport(
    tests: &mut Vec<Test>,
    alternatives: &mut Vec<Vec<Test>>,
    name: &str,
    not: bool,
    words: &mut Words,
    context: &mut Context<'_>,
) -> bool {
    let protocol = context.protocol.clone().unwrap_or_default();
    let prefix = if matches!(protocol.as_str(), "tcp" | "udp") { protocol.as_str() } else { "th" };
    match name {
        "--sport" | "--dport" | "--sports" | "--dports" | "--source-port" | "--destination-port" => {
            let side = if name.starts_with("--s") { "sport" } else { "dport" };
            let value = words.next().unwrap_or_default();
            tests.push(ports(&format!("{prefix} {side}"), not, &value));
        }
        "--ports" => {
            let value = words.next().unwrap_or_default();
            let both = ["sport", "dport"].map(|side| ports(&format!("{prefix} {side}"), not, &value));
            if not {
                tests.extend(both);
            } else {
                *alternatives = alternatives
                    .iter()
                    .flat_map(|known| both.iter().map(|test| [known.clone(), vec![test.clone()]].concat()))
                    .collect();
            }
        }
        "--tcp-flags" => {
            let (mask, set) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            tests.push(tcp_flags(&mask, &set, not));
        }
        "--syn" => tests.push(tcp_flags("FIN,SYN,RST,ACK", "SYN", not)),
        "--icmp-type" | "--icmpv6-type" => {
            let value = words.next().unwrap_or_default();
            icmp(tests, &value, not, name == "--icmpv6-type");
        }
        _ => return false,
    }
    true
}

/// `22`, `1000:2000`, `:1024`, and lists of them.
fn ports(field: &str, is_negated: bool, text: &str) -> Test {
    let one = |text: &str| -> Option<Valued> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let first: u16 = if first.is_empty() { 0 } else { first.parse().ok()? };
        let last: u16 = if last.is_empty() { u16::MAX } else { last.parse().ok()? };
        let shown = if first == last { first.to_string() } else { format!("{first}-{last}") };
        (first <= last).then_some(((first.into(), last.into()), shown))
    };
    let values: Option<Vec<Valued>> = text.split(',').map(one).collect();
    match values {
        Some(values) => test(field, is_negated, &values),
        None => Test::Foreign(format!("the ports {text} cannot be read")),
    }
}

/// The names of flags, from the lowest bit on.
const FLAGS: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];

fn tcp_flags(mask: &str, set: &str, is_negated: bool) -> Test {
    let bits = |text: &str| match text {
        "ALL" => Some(0x3f),
        "NONE" => Some(0),
        list => list
            .split(',')
            .try_fold(0u8, |bits, name| FLAGS.iter().position(|flag| *flag == name).map(|at| bits | 1 << at)),
    };
    let (Some(mask), Some(set)) = (bits(mask), bits(set)) else {
        return Test::Foreign("its flags cannot be read".to_owned());
    };
    let names = |bits: u8| {
        let names: Vec<String> = (0..6).filter(|at| bits >> at & 1 == 1).map(|at| FLAGS[at].to_lowercase()).collect();
        names.join(",")
    };
    let sign = if is_negated { "!= " } else { "" };
    let text = match (set, is_negated) {
        (0, false) => format!("tcp flags ! {}", names(mask)),
        (0, true) => format!("tcp flags {}", names(mask)),
        _ => format!("tcp flags {sign}{} / {}", names(set), names(mask)),
    };
    let holds = |value: u8| (value & mask == set) != is_negated;
    let values: Vec<Valued> =
        (0..=255u8).filter(|value| holds(*value)).map(|value| ((value.into(), value.into()), String::new())).collect();
    if values.is_empty() {
        return Test::Never;
    }
    Test::Field(Condition { text, ..Condition::one_of("tcp flags", &values) })
}

/// Types that iptables-save writes as names or numbers, with a code behind a `/`.
const ICMP_TYPES: [(&str, u8); 8] = [
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
];

fn icmp(tests: &mut Vec<Test>, text: &str, is_negated: bool, is_ipv6: bool) {
    let word = if is_ipv6 { "icmpv6" } else { "icmp" };
    if text == "any" || text == "255" && !is_ipv6 {
        return;
    }
    let (kind, code) = match text.split_once('/') {
        Some((kind, code)) => (kind, Some(code)),
        None => (text, None),
    };
    let number = kind
        .parse()
        .ok()
        .or_else(|| ICMP_TYPES.iter().find(|(name, _)| *name == kind && !is_ipv6).map(|(_, number)| *number));
    let Some(number) = number else {
        return tests.push(Test::Foreign(format!("the type {text} cannot be read")));
    };
    let name = ICMP_TYPES.iter().find(|(_, known)| *known == number && !is_ipv6 && number != 13);
    let shown = name.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned());
    let code: Option<Option<u8>> = code.map(|code| code.parse().ok());
    let kinds = [((number.into(), number.into()), shown)];
    match (code, is_negated) {
        (None, _) => tests.push(test(&format!("{word} type"), is_negated, &kinds)),
        (Some(Some(code)), false) => {
            tests.push(test(&format!("{word} type"), false, &kinds));
            tests.push(test(&format!("{word} code"), false, &[((code.into(), code.into()), code.to_string())]));
        }
        _ => tests.push(Test::Foreign("not a type with a code".to_owned())),
    }
}

fn state(tests: &mut Vec<Test>, name: &str, is_negated: bool, words: &mut Words) -> bool {
    if name != "--ctstate" && name != "--state" {
        return false;
    }
    let text = words.next().unwrap_or_default().to_lowercase();
    let one = |name: &str| -> Option<Valued> {
        let at = STATES.iter().position(|state| *state == name)? as u128;
        Some(((at, at), name.to_owned()))
    };
    let values: Option<Vec<Valued>> = text.split(',').map(one).collect();
    tests.push(match values {
        Some(values) => {
            let Test::Field(condition) = test("ct state", is_negated, &values) else { return true };
            let list = condition.text.strip_prefix("ct state { ").and_then(|list| list.strip_suffix(" }"));
            let text =
                list.map_or_else(|| condition.text.clone(), |list| format!("ct state {}", list.replace(", ", ",")));
            Test::Field(Condition { text, ..condition })
        }
        None => Test::Foreign(format!("the states {text}: Weir translates no addresses")),
    });
    true
}

/// Modules whose name says nothing that their options do not say.
const SILENT: [&str; 21] = [
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "conntrack",
    "state",
    "multiport",
    "iprange",
    "limit",
    "hashlimit",
    "connlimit",
    "set",
    "comment",
    "length",
    "addrtype",
    "mac",
    "sctp",
    "dccp",
    "udplite",
    "dscp",
    "hl",
];

fn other(
    rule: &mut Rule,
    tests: &mut Vec<Test>,
    alternatives: &mut Vec<Vec<Test>>,
    name: &str,
    not: bool,
    words: &mut Words,
    context: &mut Context<'_>,
) -> bool {
    let ip = context.ip();
    let mut value = || words.next().unwrap_or_default();
    match name {
        "-m" => {
            let module = value();
            if !SILENT.contains(&module.as_str()) && module != "ttl" {
                tests.push(Test::Foreign(format!(
                    "the module `{module}` of iptables is not there in Weir{}",
                    hint(&module)
                )));
            }
        }
        "--comment" => rule.comment = Some(value()),
        "--length" => {
            let text = value();
            tests.push(length(&text, not, context.is_ipv6));
        }
        "--ttl-eq" | "--ttl-lt" | "--ttl-gt" | "--hl-eq" | "--hl-lt" | "--hl-gt" => {
            let field = if context.is_ipv6 { "ip6 hoplimit" } else { "ip ttl" };
            let Ok(number) = value().parse::<u8>() else { return false };
            let range = match &name[name.len() - 2..] {
                "lt" => (0, u128::from(number).saturating_sub(1)),
                "gt" => (u128::from(number) + 1, 255),
                _ => (number.into(), number.into()),
            };
            let shown = if range.0 == range.1 { range.0.to_string() } else { format!("{}-{}", range.0, range.1) };
            tests.push(if range.0 > range.1 || name.ends_with("lt") && number == 0 {
                Test::Never
            } else {
                test(field, not, &[(range, shown)])
            });
        }
        "--dscp" => {
            let text = value();
            tests.push(match condition::number(&text) {
                Some(number) => test(&format!("{ip} dscp"), not, &[((number, number), text)]),
                None => Test::Foreign("its DSCP cannot be read".to_owned()),
            });
        }
        "--mac-source" => {
            let octets: String = value().split(':').collect();
            let sign = if not { "!= " } else { "" };
            tests.push(Test::Field(Condition::opaque("@ll,48,48", format!("@ll,48,48 {sign}0x{octets}"))));
        }
        "--match-set" => {
            let (set, sides) = (value(), value());
            let found = context.sets.matched(&set, &sides, not, context.is_ipv6, context.at);
            *alternatives = alternatives
                .iter()
                .flat_map(|known| found.iter().map(|tests| [known.clone(), tests.clone()].concat()))
                .collect();
        }
        "--dst-type" | "--src-type" => {
            let text = value();
            address_type(rule, tests, name == "--src-type", &text, not, context);
        }
        _ => return false,
    }
    true
}

/// Lengths from the network header on. The kernel has removed padding, so the header's own length is what it compares.
fn length(text: &str, is_negated: bool, is_ipv6: bool) -> Test {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let first = if first.is_empty() { Some(0) } else { condition::number(first) };
    let last = if last.is_empty() { Some(65_535) } else { condition::number(last) };
    let (Some(first), Some(last)) = (first, last) else { return Test::Foreign("its length cannot be read".to_owned()) };
    // The length in an IPv6 header does not count the header.
    let (field, header) = if is_ipv6 { ("ip6 length", 40) } else { ("ip length", 0) };
    if last < header {
        return if is_negated { Test::Field(Condition::family(condition::IPV6)) } else { Test::Never };
    }
    let range = (first.saturating_sub(header), last - header);
    let shown = if range.0 == range.1 { range.0.to_string() } else { format!("{}-{}", range.0, range.1) };
    test(field, is_negated, &[(range, shown)])
}

/// What to write instead of a module.
fn hint(module: &str) -> &'static str {
    match module {
        "recent" => "; `limit each ip saddr` limits each source, `add @NAME { ip saddr timeout 1m }` remembers it",
        "string" | "u32" | "bpf" => "; `@th,OFFSET,BITS` compares bits at fixed places",
        "owner" => "; packets of other hosts belong to no process of this one",
        "rpfilter" => "; `inside { ... }` drops forged inside addresses (--inside)",
        "geoip" => "; a table of type `ipv4 : label` with a list of countries does it",
        "tcpmss" => "; a TCP option has no fixed place in the packet",
        "mark" | "connmark" => "; packets have no marks",
        "statistic" | "random" => "; Weir decides a packet by its bytes and by time, not by chance",
        "time" => "; `weir ctl activate` changes postures",
        _ => "",
    }
}

/// `--dst-type`: what the routing table says about an address.
fn address_type(rule: &mut Rule, tests: &mut Vec<Test>, is_source: bool, text: &str, not: bool, context: &Context<'_>) {
    let field = format!("{} {}", context.ip(), if is_source { "saddr" } else { "daddr" });
    let value = |text: &str| condition::address(text).expect("it is an address");
    let multicast = value(if context.is_ipv6 { "ff00::/8" } else { "224.0.0.0/4" });
    let broadcast = value("255.255.255.255");
    let assume = |reason: &str| (reason.to_owned(), Effect::Unknown);
    let is_input = rule.text.contains("-A INPUT") || rule.text.contains("-A ufw-not-local");
    match text {
        "MULTICAST" => tests.push(test(&field, not, &[multicast])),
        "BROADCAST" if !context.is_ipv6 => {
            rule.approximations.push(assume("Weir knows 255.255.255.255, and not the broadcast addresses of networks"));
            tests.push(test(&field, not, &[broadcast]));
        }
        "LOCAL" if !is_source && !not && is_input => {
            rule.approximations
                .push(assume("packets for the host are taken as those that are neither multicast nor broadcast"));
            let others = if context.is_ipv6 { vec![multicast] } else { vec![multicast, broadcast] };
            tests.push(test(&field, true, &others));
        }
        _ => tests.push(Test::Foreign(format!("the type {text} of an address: Weir routes no packets"))),
    }
}
