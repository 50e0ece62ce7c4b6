//! Output of commands: reports, failures, messages, and the parts of JSON that several commands share.

use crate::failure::{self, Failure};
use crate::journal::{self, Field, Level};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use weir_abi::{Action, Counter, Reason};
use weir_control::RuleCount;
use weir_loading::{Policy, Unverified};
use weir_policy::diag::printable::{is_unprintable, printable};
use weir_policy::diag::render::{self, Style};
use weir_policy::ir::{Fallback, Program, RuleId};

/// The output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// One JSON object on standard output, whether the command succeeds or fails.
    Json,
}

/// Every rule of the program with its counter.
pub fn rule_counts(program: &Program, counters: &[Counter]) -> Vec<RuleCount> {
    let counters = &counters[usize::from(Reason::RULE_BASE)..];
    let count = |(rule, counter): (&weir_policy::ir::Rule, &Counter)| RuleCount {
        at: rule.at.clone(),
        rule: rule.text.clone(),
        packets: counter.packets,
        bytes: counter.bytes,
    };
    program.rules.iter().zip(counters).map(count).collect()
}

/// The name of a reason: built in, or the citation of its rule.
pub fn reason_name(program: &Program, reason: Reason) -> String {
    match reason.rule_index() {
        Some(index) => program.rules.get(usize::from(index)).map_or_else(|| format!("rule {index}"), |r| r.at.clone()),
        None => reason.builtin_name().map_or_else(|| format!("reason {}", reason.0), str::to_owned),
    }
}

/// A group of packets that were decided for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The reason.
    pub reason: Reason,
    /// The rule that decided, or whose limit was exceeded.
    pub rule: Option<RuleId>,
    /// The action.
    pub action: Action,
    /// The number of packets and bytes.
    pub counter: Counter,
}

/// All decided packets, by built-in reasons, rules with a verdict, and limits. They add up to the received packets.
pub fn decided(program: &Program, counters: &[Counter]) -> Vec<Decided> {
    let (builtin, rest) = counters.split_at(usize::from(Reason::RULE_BASE));
    let (rules, limited) = rest.split_at(program.rules.len());
    let mut decided = Vec::new();
    for (counter, reason) in builtin.iter().zip((0..).map(Reason)) {
        if let Some(action) = builtin_action(program, reason) {
            decided.push(Decided { reason, rule: None, action, counter: *counter });
        }
    }
    let mut remaining = rules.to_vec();
    for ((rule, action, reason), counter) in program.limited().into_iter().zip(limited) {
        let matched = &mut remaining[usize::from(rule.0)];
        // The counter of a limit is read after the counter of its rule. A worker may have counted in between.
        matched.packets = matched.packets.saturating_sub(counter.packets);
        matched.bytes = matched.bytes.saturating_sub(counter.bytes);
        decided.push(Decided { reason, rule: Some(rule), action, counter: *counter });
    }
    for (index, (rule, counter)) in (0..).zip(program.rules.iter().zip(remaining)) {
        if let Some(action) = rule.verdict() {
            decided.push(Decided { reason: Reason::rule(index), rule: Some(RuleId(index)), action, counter });
        }
    }
    decided
}

/// The action for a built-in reason. `None` if the rules decide such packets, or if each rule with a limit
/// or slot has a counter of them.
fn builtin_action(program: &Program, reason: Reason) -> Option<Action> {
    let defaults = &program.defaults;
    let decided = |fallback| match fallback {
        Fallback::Decide(action) => Some(action),
        Fallback::Rules => None,
    };
    match reason {
        Reason::NO_MATCH => Some(defaults.no_match),
        Reason::ARP => decided(defaults.arp),
        Reason::NOT_IP => decided(defaults.not_ip),
        Reason::FRAGMENT => decided(defaults.fragment),
        Reason::IP_OPTIONS => decided(defaults.ip_options),
        Reason::LIMIT | Reason::SLOT => None,
        Reason::UNKNOWN_INTERFACE | Reason::UNSEALED | Reason::CARD_CONTROL => Some(Action::Drop),
        Reason::SYN_COOKIE => Some(Action::Reply),
        Reason(number) if (Reason::BAD_FLAGS.0..=Reason::STATE_FULL.0).contains(&number) => {
            program.tracking.map(|tracking| tracking.invalid.verdict())
        }
        reason => reason.builtin_name().map(|_| defaults.malformed),
    }
}

/// Packets by the reason of their verdict.
pub fn reason_counts(program: &Program, counters: &[Counter]) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    for Decided { reason, counter, .. } in decided(program, counters) {
        if counter.packets > 0 {
            *reasons.entry(reason_name(program, reason)).or_insert(0) += counter.packets;
        }
    }
    reasons
}

/// Prints an object as JSON on standard output.
///
/// # Errors
/// The output cannot be written.
pub fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(object).expect("reports have string keys");
    write_out(&(ascii_controls(&text) + "\n"))
}

/// Escapes characters in JSON that a terminal may interpret. Outside of strings, JSON has no such characters except
/// line ends.
fn ascii_controls(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_unprintable(c) {
            text.push(c);
        } else {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        }
    }
    text
}

/// Prints text on standard output. Characters that a terminal may interpret are escaped.
///
/// # Errors
/// The output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    write_out(&printable(text))
}

/// Prints a message of the level info on standard error, escaped as in [`print`].
pub fn say(text: &str) {
    say_with(Level::Info, &[], text);
}

/// Prints a message with a level and fields on standard error, escaped as in [`print`].
pub fn say_with(level: Level, fields: &[(Field, String)], text: &str) {
    journal::say(level, fields, &printable(text));
}

/// Prints escaped text, which may have colours, on standard error.
pub fn say_rendered(level: Level, text: &str) {
    journal::say(level, &[], text);
}

impl Failure {
    /// Reports the failure with which the process ends, on standard error and, for JSON, on standard output. Returns the
    /// exit code.
    pub fn tell(&self, format: Format) -> ExitCode {
        if format == Format::Json && !matches!(self, Failure::Reported(_)) {
            // If standard output is what failed, standard error must be enough.
            let _ = print_json(&self.to_json());
        }
        self.say();
        ExitCode::from(self.exit_code())
    }

    fn say(&self) {
        match self {
            Failure::Mistakes { rejected, .. } => {
                journal::say_last(Level::Error, &failure::rendered(rejected, style()));
            }
            Failure::Reported(failure) => failure.say(),
            Failure::Rejected(_) | Failure::Nothing(_) | Failure::Runtime(_) | Failure::NoDescriptors(_) => {
                journal::say_last(Level::Error, &printable(&self.to_string()));
            }
        }
    }
}

/// Prints the warnings and notices of a valid policy on standard error.
pub fn say_warnings(policy: &Policy) {
    match policy.unverified() {
        Some(Unverified::Text(path)) => {
            say(&format!("note: {}: is text and has no signature; --trust applies to bundles", path.display()));
        }
        Some(Unverified::Bundle(path)) => {
            say(&format!("note: {}: the signature is not verified, because no --trust KEY is given", path.display()));
        }
        None => {}
    }
    let Some(text) = policy.text() else { return };
    if !text.checked.warnings.is_empty() {
        let warnings = render::render(&text.checked.warnings, &text.sources, style());
        say_rendered(Level::Warning, warnings.trim_end());
    }
    text.notices.iter().for_each(|notice| say(&format!("note: {notice}")));
}

/// Colours, if standard error is a terminal and `NO_COLOR` is not set.
pub fn style() -> Style {
    let wanted = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if wanted { Style::Coloured } else { Style::Plain }
}

/// Writes to standard output. A closed pipe is not an error.
fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Decided, ascii_controls, decided};
    use weir_abi::{Action, Counter, Reason};
    use weir_policy::ir::parse::parse;

    #[test]
    fn counters_may_be_read_while_a_worker_counts() {
        let program = parse(
            "program p\nlimiter 0 p upstream 0 rate 5pps burst 10packets log off\n\
             rule 0 p:1 [limit 0 exceed drop, accept] limit rate 5 accept\nchain upstream\n  rule 0\n",
        )
        .expect("a program");
        // When the rule's counter was read, it had matched 3 packets. When the limit's counter was read, 4 had exceeded
        // the limit.
        let mut counters = vec![Counter::default(); program.counters()];
        counters[usize::from(Reason::rule(0).0)] = Counter { packets: 3, bytes: 180 };
        *counters.last_mut().expect("what the limit ended") = Counter { packets: 4, bytes: 240 };
        let of_rule = |one: &&Decided| one.rule.is_some();
        let decided: Vec<_> =
            decided(&program, &counters).iter().filter(of_rule).map(|one| (one.action, one.counter)).collect();
        assert_eq!(decided, [(Action::Drop, Counter { packets: 4, bytes: 240 }), (Action::Accept, Counter::default())]);
    }

    #[test]
    fn json_contains_no_terminal_controls() {
        let json = ascii_controls("{\n  \"a\": \"\u{9b}31m\u{7f}\u{202e}\"\n}");
        assert_eq!(json, "{\n  \"a\": \"\\u009b31m\\u007f\\u202e\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["a"], "\u{9b}31m\u{7f}\u{202e}");
    }
}
