//! Targets of iptables.

use super::line::Words;
use super::set::Sets;
use crate::finding::Effect;
use crate::ruleset::{Rule, Test, Verdict};
use crate::sets::time;

/// Targets that do not decide packets, with what Weir does instead.
const IGNORED: &[(&str, &str)] = &[
    ("LOG", "log: Weir logs no packets; every rule counts, and `sample 1/N` copies packets to the divert interface"),
    ("NFLOG", "log: Weir logs no packets; `sample 1/N` copies packets to the divert interface"),
    ("ULOG", "log: Weir logs no packets; `sample 1/N` copies packets to the divert interface"),
    ("AUDIT", "log: Weir logs no packets"),
    ("TRACE", "`weir why` shows which rules a packet of a capture meets"),
    ("MARK", "packets have no marks in Weir"),
    ("CONNMARK", "flows have no marks in Weir"),
    ("CLASSIFY", "Weir forwards packets in their order"),
    ("DSCP", "Weir forwards packets unchanged"),
    ("TOS", "Weir forwards packets unchanged"),
    ("TTL", "Weir forwards packets unchanged"),
    ("HL", "Weir forwards packets unchanged"),
    ("ECN", "Weir forwards packets unchanged"),
    ("TCPMSS", "Weir forwards packets unchanged"),
    ("TCPOPTSTRIP", "Weir forwards packets unchanged"),
    ("CHECKSUM", "Weir forwards packets unchanged"),
    ("TEE", "`sample 1/1` copies packets to the divert interface"),
    ("SECMARK", "packets have no security context"),
    ("CONNSECMARK", "packets have no security context"),
];

/// Reads a target that is no chain, with its options.
pub fn read(rule: &mut Rule, target: &str, words: &mut Words, sets: &mut Sets, is_ipv6: bool) {
    match target {
        "ACCEPT" => rule.verdict = Verdict::Accept,
        "DROP" => rule.verdict = Verdict::Drop,
        "RETURN" => rule.verdict = Verdict::Return,
        "REJECT" => {
            skip(words);
            rule.verdict = Verdict::Drop;
            rule.approximations.push(("no answer is sent: REJECT becomes `drop`".to_owned(), Effect::Same));
        }
        "SET" => set(rule, words, sets, is_ipv6),
        "NOTRACK" | "CT" => {
            skip(words);
            let reason = "Weir tracks every packet that reaches `ct state`: rules for untracked packets do not see it";
            rule.approximations.push((reason.to_owned(), Effect::Unknown));
        }
        _ => {
            skip(words);
            if let Some((_, reason)) = IGNORED.iter().find(|(name, _)| *name == target) {
                rule.ignored.push((*reason).to_owned());
            } else {
                rule.verdict = Verdict::Foreign(format!("the target {target} is not there in Weir{}", hint(target)));
            }
        }
    }
}

fn hint(target: &str) -> &'static str {
    match target {
        "NFQUEUE" | "QUEUE" => "; `divert` sends packets to the divert interface",
        "SYNPROXY" => "; `tcp synproxy` answers SYNs, with `tracking { synproxy ... }`",
        "TARPIT" => "; `drop` ends the packet without an answer",
        "TPROXY" | "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" => "; Weir forwards packets unchanged",
        _ => "",
    }
}

/// Skips the options of a target. Only matches may follow, and iptables-save writes them before the target.
fn skip(words: &mut Words) {
    while words.peek().is_some() {
        words.next();
    }
}

/// `--add-set NAME src [--exist] [--timeout N]`
fn set(rule: &mut Rule, words: &mut Words, sets: &mut Sets, is_ipv6: bool) {
    let (mut name, mut side, mut timeout, mut op) = (String::new(), String::new(), None, "add");
    let mut reason = None;
    while let Some(option) = words.next() {
        match option.as_str() {
            "--add-set" => {
                name = words.next().unwrap_or_default();
                side = words.next().unwrap_or_default();
            }
            "--exist" => op = "update",
            "--timeout" => timeout = words.next().and_then(|seconds| seconds.parse::<u64>().ok()),
            _ => reason = Some("entries leave a table of Weir by their timeout"),
        }
    }
    let field = match side.as_str() {
        "src" => "saddr",
        "dst" => "daddr",
        _ => {
            return rule.tests.push(Test::Foreign(reason.unwrap_or("tables of Weir have single addresses").to_owned()));
        }
    };
    let Some(table) = sets.filled(&name, is_ipv6).filter(|_| reason.is_none()) else {
        return rule.tests.push(Test::Foreign(reason.unwrap_or("its set has no single addresses").to_owned()));
    };
    let family = if is_ipv6 { "ip6" } else { "ip" };
    let timeout = timeout.filter(|seconds| *seconds > 0).map(|seconds| format!(" timeout {}", time(seconds)));
    rule.adds.push(format!("{op} @{table} {{ {family} {field}{} }}", timeout.unwrap_or_default()));
}
