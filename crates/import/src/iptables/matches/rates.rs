//! `limit`, `hashlimit` and `connlimit`.

use super::Context;
use crate::iptables::line::Words;
use crate::ruleset::{Limit, Rule, Test};

/// The burst of `limit` and `hashlimit` without one.
const BURST: u64 = 5;

/// Reads an option of a limit, with the options that follow it.
pub fn read(rule: &mut Rule, name: &str, is_negated: bool, words: &mut Words, context: &Context<'_>) -> bool {
    match name {
        "--limit" => {
            let rate = words.next().unwrap_or_default();
            let burst = if words.take("--limit-burst") { words.next() } else { None };
            put(rule, packets("limit rate", &rate, burst.as_deref()), is_negated);
        }
        "--hashlimit" | "--hashlimit-upto" | "--hashlimit-above" => {
            hashlimit(rule, name, is_negated, words, context);
        }
        "--connlimit-above" | "--connlimit-upto" => connlimit(rule, name, is_negated, words, context),
        _ => return false,
    }
    true
}

fn put(rule: &mut Rule, statement: Result<String, String>, is_over: bool) {
    match statement {
        Ok(_) if rule.limit.is_some() => rule.tests.push(Test::Foreign("a rule with two limits".to_owned())),
        Ok(statement) => rule.limit = Some(Limit { statement, is_over, counts_connections: false }),
        Err(reason) => rule.tests.push(Test::Foreign(reason)),
    }
}

/// A rate of packets: `10/sec`, `5/minute`.
fn packets(word: &str, rate: &str, burst: Option<&str>) -> Result<String, String> {
    let unreadable = || format!("the rate {rate} cannot be read");
    let (amount, unit) = rate.split_once('/').unwrap_or((rate, "second"));
    let amount: u64 = amount.parse().map_err(|_| unreadable())?;
    let (per, divisor) = match unit {
        "s" | "sec" | "second" => ("second", 1),
        "m" | "min" | "minute" => ("minute", 1),
        "h" | "hour" => ("hour", 1),
        "d" | "day" if amount.is_multiple_of(24) => ("hour", 24),
        "d" | "day" => return Err(format!("the rate {rate} is no whole number an hour")),
        _ => return Err(unreadable()),
    };
    let burst =
        burst.map_or(Ok(BURST), |burst| burst.parse().map_err(|_| format!("the burst {burst} cannot be read")))?;
    Ok(format!("{word} {}/{per} burst {burst} packets", amount / divisor))
}

fn hashlimit(rule: &mut Rule, name: &str, is_negated: bool, words: &mut Words, context: &Context<'_>) {
    let rate = words.next().unwrap_or_default();
    let (mut burst, mut mode, mut lengths) = (None, String::new(), [None, None]);
    while let Some(option) = words.peek().filter(|word| word.starts_with("--hashlimit")).map(str::to_owned) {
        words.next();
        let value = words.next();
        match option.as_str() {
            "--hashlimit-burst" => burst = value,
            "--hashlimit-mode" => mode = value.unwrap_or_default(),
            "--hashlimit-srcmask" => lengths[0] = value.and_then(|value| value.parse::<u8>().ok()),
            "--hashlimit-dstmask" => lengths[1] = value.and_then(|value| value.parse::<u8>().ok()),
            // They size the table of the kernel.
            _ => {}
        }
    }
    let (side, length) = match mode.as_str() {
        "srcip" => ("saddr", lengths[0]),
        "dstip" => ("daddr", lengths[1]),
        "" => ("", None),
        _ => {
            return rule.tests.push(Test::Foreign(format!("a limit for each {mode}: Weir has one for each address")));
        }
    };
    let family = if context.is_ipv6 { "ip6" } else { "ip" };
    let length = length.map(|length| format!("/{length}")).unwrap_or_default();
    let word = if side.is_empty() { "limit rate".to_owned() } else { format!("limit each {family} {side}{length}") };
    if rate.ends_with('b') || rate.contains("b/") {
        return rule
            .tests
            .push(Test::Foreign("a hashlimit of bytes: `limit each ip saddr 10mbit` is one in Weir".to_owned()));
    }
    put(rule, packets(&word, &rate, burst.as_deref()), (name == "--hashlimit-above") != is_negated);
}

fn connlimit(rule: &mut Rule, name: &str, is_negated: bool, words: &mut Words, context: &Context<'_>) {
    let count = words.next().unwrap_or_default();
    let (mut side, mut length) = ("saddr", if context.is_ipv6 { 128 } else { 32 });
    loop {
        if words.take("--connlimit-mask") {
            length = words.next().and_then(|value| value.parse().ok()).unwrap_or(length);
        } else if words.take("--connlimit-daddr") {
            side = "daddr";
        } else if !words.take("--connlimit-saddr") {
            break;
        }
    }
    if length == 0 {
        let reason = "it counts the connections of all addresses together; Weir counts those of each";
        return rule.tests.push(Test::Foreign(reason.to_owned()));
    }
    let family = if context.is_ipv6 { "ip6" } else { "ip" };
    let whole = if context.is_ipv6 { 128 } else { 32 };
    let length = if length == whole { String::new() } else { format!("/{length}") };
    let statement = format!("limit each {family} {side}{length} connections {count}");
    if rule.limit.is_some() {
        return rule.tests.push(Test::Foreign("a rule with two limits".to_owned()));
    }
    let is_over = (name == "--connlimit-above") != is_negated;
    rule.limit = Some(Limit { statement, is_over, counts_connections: true });
}
