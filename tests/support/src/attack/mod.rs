//! Attacks as files, for `tests/adversary`: who the attacker is, the packets of attacker and customers, and what must
//! happen.
//!
//! ```text
//! who      somebody who sends from addresses that are not his       all three are required
//! wants    nobody else to reach the web server
//! promise  questions of UDP never keep a connection out
//! policy   dns.weir                                                  beside the file; or `policy`, lines, `end`
//! slot     attacks udp sport 53 drop                                 a rule in a slot of the policy
//! inside   192.0.2.0/24                                              the protected prefixes, for detection
//!
//! let ask  ip saddr=[10.0.0.0 + $] daddr=192.0.2.53 / udp sport=[1024 + $] dport=53
//! at 2s                                                              the time, from the beginning
//! each 0-2499 every 20ms
//!   attacker > $ask / payload 30
//! +0.1 customer > ip / tcp flags=syn : new in syn-sent               seconds after the line before it
//!
//! expect customer accepted all
//! expect attacker from 30s until 50s state-full at least 90%
//! expect flows established 1
//! expect detect attack on 192.0.2.53 before 4s
//! ```
//! A packet has a sender, which is any word; a side, `>` (upstream, from outside) or `<` (downstream, from inside); and
//! a packet in the usual notation ([`crate::notation`]). All packets are sorted by their times, so attacker and
//! customers are written one after the other, with `at` between them. `/ at=S` in a packet is a timestamp that differs
//! from the time at which it comes.
//!
//! Behind ` : ` stands what must happen to the packet: a verdict (`accept`, `drop`, `divert`, `reply`), a reason
//! (`bad-ack`), a state, if the policy has a rule `ct state STATE accept`, or `any`. `in STATES` lists the states of
//! all flows after the packet, sorted, or `none`.
//!
//! `$` is the number of the innermost loop, `$NAME` that of `each NAME = A-B`. `[...]` is an expression
//! ([`expression`]): `[10.0.0.0 + $ * 256]`, `[mix($) % 65536]`. `C` as a value is the number of the last SYN-ACK that
//! the SYN proxy has sent, `C+1` the next one.
//!
//! | `expect` | |
//! | --- | --- |
//! | `SENDER [from TIME] [until TIME] FATE AMOUNT` | FATE is `accepted`, `dropped`, `diverted`, `replied`, a reason or a state. The sender `everyone` is all |
//! | `flows STATE AMOUNT` | flows in a state at the end; `all` for every state |
//! | `detect SENDER [from TIME] [until TIME] dropped AMOUNT` | what detection drops of the packets that the policy passes |
//! | `detect attack on PREFIX [before TIME]`, `detect no attack` | what detection reports |
//! | `detect blocks SOURCE`, `detect spares SOURCE` | whom it blocks; `somebody`, `everybody` |
//!
//! AMOUNT is `all`, `none`, `N`, `at least N`, `at most N`, `at least N%` or `at most N%`. A file without anything
//! expected is an error, and so is an expectation about a sender without packets.

pub mod expectation;
mod expression;
mod lines;
#[cfg(test)]
mod tests;

use crate::{Packet, notation};
use expectation::{Claim, Expectation};
use lines::{Abbreviations, Line, happening};

/// The sender that stands for all.
pub const EVERYONE: &str = "everyone";
/// Time 0 of an attack, ns. The clocks of a case begin here.
pub const START_NS: u64 = 1_000_000_000_000;

/// The policy of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicySource {
    /// A file beside the attack.
    File(String),
    /// Its text.
    Text(String),
}

/// A file.
#[derive(Clone, Debug, Default)]
pub struct Attack {
    /// Who the attacker is.
    pub who: String,
    /// What he wants.
    pub wants: String,
    /// What Weir promises.
    pub promise: String,
    /// The policy that judges the packets.
    pub policy: Option<PolicySource>,
    /// The rules of its slots: the slot and the rule.
    pub slots: Vec<(String, String)>,
    /// The protected prefixes, for detection.
    pub inside: Vec<String>,
    /// The packets in the order of their times.
    pub steps: Vec<Step>,
    /// What must have happened at the end.
    pub expectations: Vec<Expectation>,
}

/// A packet of an attack.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its sender.
    pub sender: String,
    /// Whether it goes upstream.
    pub is_upstream: bool,
    /// When it comes, ns from the beginning.
    pub time_ns: u64,
    /// The packet, with its timestamp. A cookie counts as 0.
    pub packet: Packet,
    /// The packet as text, if it returns a cookie.
    pub cookie: Option<String>,
    /// The expected verdict, reason or state.
    pub expected: Option<String>,
    /// The expected states of all flows.
    pub flows: Option<Vec<String>>,
}

impl Step {
    /// The packet for the last cookie that was sent.
    pub fn with_cookie(&self, cookie: u32) -> Result<Packet, String> {
        let Some(text) = &self.cookie else { return Ok(self.packet.clone()) };
        let packet = notation::packet(&with_cookie(text, cookie)).map_err(|error| error.message)?;
        Ok(Packet { time_ns: self.packet.time_ns, ..packet })
    }
}

/// Parses a file. The error begins with the line.
pub fn attack(text: &str) -> Result<Attack, String> {
    let mut attack = Attack::default();
    let (mut abbreviations, mut packets) = (Abbreviations::default(), Vec::new());
    let mut lines = (1..).zip(text.lines());
    while let Some((line, written)) = lines.next() {
        let content = written.split('#').next().unwrap_or("").trim();
        let (word, rest) = content.split_once(char::is_whitespace).unwrap_or((content, ""));
        let rest = rest.trim();
        let taken = match word {
            "" => Ok(()),
            "who" => once(&mut attack.who, word, rest),
            "wants" => once(&mut attack.wants, word, rest),
            "promise" => once(&mut attack.promise, word, rest),
            "policy" if attack.policy.is_some() => Err("a second policy".to_owned()),
            "policy" if rest.is_empty() => {
                let block = lines.by_ref().take_while(|(_, line)| line.trim() != "end");
                attack.policy = Some(PolicySource::Text(block.map(|(_, line)| format!("{line}\n")).collect()));
                Ok(())
            }
            "policy" => {
                attack.policy = Some(PolicySource::File(rest.to_owned()));
                Ok(())
            }
            "slot" => match rest.split_once(char::is_whitespace) {
                Some((slot, rule)) => {
                    attack.slots.push((slot.to_owned(), rule.trim().to_owned()));
                    Ok(())
                }
                None => Err("`slot` has a name and a rule".to_owned()),
            },
            "inside" => {
                attack.inside.extend(rest.split(',').map(|prefix| prefix.trim().to_owned()));
                Ok(())
            }
            "let" => abbreviations.add(rest),
            "expect" => Claim::parse(rest).map(|claim| attack.expectations.push(Expectation { line, claim })),
            _ => {
                packets.push((line, abbreviations.written_out(content)));
                Ok(())
            }
        };
        taken.map_err(|error| format!("line {line}: {error}"))?;
    }
    let step = |line: Line| step(&line).map_err(|error| format!("line {}: {error}", line.number));
    attack.steps = happening(&packets)?.into_iter().map(step).collect::<Result<_, _>>()?;
    attack.check()?;
    Ok(attack)
}

fn once(field: &mut String, word: &str, text: &str) -> Result<(), String> {
    match (field.is_empty(), text.is_empty()) {
        (_, true) => Err(format!("`{word}` says nothing")),
        (false, _) => Err(format!("a second `{word}`")),
        (true, false) => {
            text.clone_into(field);
            Ok(())
        }
    }
}

fn step(line: &Line) -> Result<Step, String> {
    let (packet, expected) = line.text.split_once(" : ").map_or((&*line.text, None), |(p, e)| (p, Some(e)));
    let (sender, text) = packet.split_once(char::is_whitespace).unwrap_or((packet, ""));
    let text = text.trim();
    let (is_upstream, text) = match (text.strip_prefix("> "), text.strip_prefix("< ")) {
        (Some(text), _) => (true, text.trim()),
        (_, Some(text)) => (false, text.trim()),
        _ => return Err(format!("`{}` is no packet such as `attacker > ip / udp`", line.text)),
    };
    if sender == EVERYONE {
        return Err("`everyone` sends no packets".into());
    }
    let cookie = has_cookie(text).then(|| text.to_owned());
    let packet = notation::packet(&with_cookie(text, 0)).map_err(|error| error.message)?;
    let stamp_ns = if text.contains(" at=") { packet.time_ns } else { line.time_ns };
    let (expected, flows) = match expected.map(|expected| expected.split_once(" in ").unwrap_or((expected, ""))) {
        None => (None, None),
        Some((expected, "")) => (Some(expected.trim().to_owned()), None),
        Some((expected, states)) => (Some(expected.trim().to_owned()), Some(names(states))),
    };
    if expected.as_ref().is_some_and(|word| word.is_empty() || word == "any" && flows.is_none()) {
        return Err("nothing is expected behind ` : `".into());
    }
    Ok(Step {
        line: line.number,
        sender: sender.to_owned(),
        is_upstream,
        time_ns: line.time_ns,
        packet: Packet { time_ns: START_NS + stamp_ns, ..packet },
        cookie,
        expected,
        flows,
    })
}

fn names(states: &str) -> Vec<String> {
    match states.trim() {
        "none" => vec![],
        states => states.split(',').map(|name| name.trim().to_owned()).collect(),
    }
}

/// Whether a value is `C`, or begins with `C+` or `C-`.
fn is_cookie(value: &str) -> bool {
    value.strip_prefix('C').is_some_and(|offset| offset.is_empty() || offset.starts_with(['+', '-']))
}

fn has_cookie(text: &str) -> bool {
    text.split_whitespace().filter_map(|word| word.split_once('=')).any(|(_, value)| is_cookie(value))
}

/// Writes the number of a cookie in place of `C`.
fn with_cookie(text: &str, cookie: u32) -> String {
    if !has_cookie(text) {
        return text.to_owned();
    }
    let word = |word: &str| match word.split_once('=') {
        Some((name, value)) if is_cookie(value) => {
            let offset = value[1..].parse::<i64>().unwrap_or(0);
            format!("{name}={}", (i64::from(cookie) + offset).rem_euclid(1 << 32))
        }
        _ => word.to_owned(),
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

impl Attack {
    /// Whether anything is expected of engines.
    pub fn is_for_engines(&self) -> bool {
        self.expectations.iter().any(|expectation| !expectation.claim.is_of_detection())
            || self.steps.iter().any(|step| step.expected.is_some())
    }

    /// Whether anything is expected of detection.
    pub fn is_for_detection(&self) -> bool {
        self.expectations.iter().any(|expectation| expectation.claim.is_of_detection())
    }

    fn check(&self) -> Result<(), String> {
        for (word, text) in [("who", &self.who), ("wants", &self.wants), ("promise", &self.promise)] {
            if text.is_empty() {
                return Err(format!("line 1: `{word}` is missing"));
            }
        }
        if self.steps.is_empty() {
            return Err("line 1: there are no packets".into());
        }
        if !self.is_for_engines() && !self.is_for_detection() {
            return Err("line 1: nothing is expected".into());
        }
        if self.is_for_engines() && self.policy.is_none() {
            return Err("line 1: a policy is missing".into());
        }
        if self.is_for_detection() && self.inside.is_empty() {
            return Err("line 1: `inside` is missing".into());
        }
        for Expectation { line, claim } in &self.expectations {
            let sender = claim.sender().filter(|sender| *sender != EVERYONE);
            if let Some(sender) = sender.filter(|sender| self.steps.iter().all(|step| step.sender != **sender)) {
                return Err(format!("line {line}: `{sender}` sends no packets"));
            }
        }
        Ok(())
    }
}
