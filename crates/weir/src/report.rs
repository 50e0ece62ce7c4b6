//! Numbers for people, and the pieces of JSON that several commands share.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use weir_abi::{Counter, Reason};
use weir_policy::ir::Program;

/// A rule's counter in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    /// `edge.weir:12`
    pub at: String,
    /// The rule.
    pub rule: String,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
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

/// Name of a reason: its own, or where its rule stands.
pub fn reason_name(program: &Program, reason: Reason) -> String {
    match reason.rule_index() {
        Some(index) => program.rules.get(usize::from(index)).map_or_else(|| format!("rule {index}"), |r| r.at.clone()),
        None => reason.builtin_name().map_or_else(|| format!("reason {}", reason.0), str::to_owned),
    }
}

/// Packets by the reason of their verdict. Built-in reasons and rules with a verdict decide, and nothing else does, so the
/// packets add up to those received.
pub fn reason_counts(program: &Program, counters: &[Counter]) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    for (index, counter) in counters.iter().enumerate().filter(|(_, counter)| counter.packets > 0) {
        let reason = Reason(index as u16);
        let decides = match reason.rule_index() {
            Some(rule) => program.rules[usize::from(rule)].verdict().is_some(),
            None => true,
        };
        if decides {
            *reasons.entry(reason_name(program, reason)).or_insert(0) += counter.packets;
        }
    }
    reasons
}

/// `1,234,567`
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `12.3 MB`, decimal units.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `42.0 %`; nothing of nothing is 0.
pub fn share(part: u64, whole: u64) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    format!("{percent:.1} %")
}

/// A text cut to so many characters.
pub fn cut(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

/// Prints an object as JSON on standard output.
///
/// # Errors
/// The output cannot be written.
pub fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(object).expect("reports have string keys");
    print(&format!("{text}\n"))
}

/// Prints text on standard output. Whoever closes it before the end has read enough.
///
/// # Errors
/// The output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
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
    use super::{bytes, cut, grouped, share};

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0, 999, 1000, 1_234_567].map(grouped).each_ref().map(|s| s.as_str())
        );
        assert_eq!((bytes(0), bytes(1234), bytes(5_000_000)), ("0 B".into(), "1.2 kB".into(), "5.0 MB".into()));
        assert_eq!((share(1, 3), share(0, 0)), ("33.3 %".into(), "0.0 %".into()));
        assert_eq!(cut("abcdefgh", 6), "abc...");
    }
}
