//! Statements: what a rule does.

use super::field::{Left, left};
use super::matches::{self, Alternatives, listed};
use super::render::{self, single, text};
use super::set::Sets;
use crate::finding::Effect;
use crate::ruleset::{Limit, Rule, Test, Verdict};
use crate::sets::time;
use serde_json::Value;
use std::collections::BTreeMap;

/// The chains that rules of a table can call, by name.
pub type Chains = BTreeMap<String, usize>;

/// The statement of a limit, and whether it holds above.
pub struct Rate {
    /// `10/second burst 5 packets`.
    pub text: String,
    /// Whether packets above the limit match.
    pub is_over: bool,
    /// Whether bytes are counted.
    pub is_bytes: bool,
}

/// Reads a rule. It becomes several if its values are combinations or verdicts.
pub fn rules(base: &Rule, expressions: &[Value], chains: &Chains, sets: &mut Sets) -> Vec<Rule> {
    let mut rules = vec![Rule { text: render::rule(expressions), ..base.clone() }];
    for expression in expressions {
        let Some((name, body)) = single(expression) else {
            foreign(&mut rules, "Weir cannot read it".to_owned());
            continue;
        };
        match name {
            "match" => rules = multiply(&rules, &matches::read(body, sets)),
            "vmap" => rules = with_verdicts(&rules, body, chains, sets),
            _ => rules.iter_mut().for_each(|rule| statement(rule, name, body, chains, sets)),
        }
    }
    let has_limit = rules.iter().any(|rule| rule.limit.is_some());
    if has_limit && rules.len() > 1 {
        foreign(&mut rules, "its one limit would become several".to_owned());
        rules.truncate(1);
    }
    rules
}

fn foreign(rules: &mut [Rule], reason: String) {
    rules.iter_mut().for_each(|rule| rule.tests.push(Test::Foreign(reason.clone())));
}

fn multiply(rules: &[Rule], alternatives: &Alternatives) -> Vec<Rule> {
    let with = |rule: &Rule, tests: &Vec<Test>| {
        let mut rule = rule.clone();
        rule.tests.extend(tests.iter().cloned());
        rule
    };
    rules.iter().flat_map(|rule| alternatives.iter().map(move |tests| with(rule, tests))).collect()
}

fn verdict(value: &Value, chains: &Chains) -> Option<Verdict> {
    let (name, body) = single(value)?;
    let target = || {
        let name = body["target"].as_str()?;
        chains.get(name).copied()
    };
    Some(match name {
        "accept" => Verdict::Accept,
        "drop" => Verdict::Drop,
        "return" => Verdict::Return,
        "continue" => Verdict::Continue,
        "jump" => target().map_or_else(|| missing(body), Verdict::Jump),
        "goto" => target().map_or_else(|| missing(body), Verdict::Goto),
        _ => return None,
    })
}

fn missing(body: &Value) -> Verdict {
    Verdict::Foreign(format!("the chain {} is not in the ruleset", text(&body["target"])))
}

/// A map of verdicts becomes a rule for each verdict. Neighbours with the same verdict are one.
fn with_verdicts(rules: &[Rule], body: &Value, chains: &Chains, sets: &mut Sets) -> Vec<Rule> {
    let key = left(&body["key"]);
    let pairs = listed(&body["data"], sets).unwrap_or_default();
    let mut groups: Vec<(Vec<Value>, Verdict)> = Vec::new();
    for pair in &pairs {
        let value = match single(&pair[0]) {
            Some(("elem", body)) => body["val"].clone(),
            _ => pair[0].clone(),
        };
        let Some(verdict) = verdict(&pair[1], chains) else {
            groups.push((vec![value], Verdict::Foreign("it is no verdict of Weir".to_owned())));
            continue;
        };
        let is_single = !matches!(key, Left::Concat(_)) && value != "*";
        match groups.last_mut() {
            Some((values, known)) if is_single && *known == verdict => values.push(value),
            _ => groups.push((vec![value], verdict)),
        }
    }
    let mut all = Vec::new();
    for (values, verdict) in groups {
        let right = if values.len() == 1 { values[0].clone() } else { serde_json::json!({ "set": values }) };
        let alternatives = match (&key, single(&right)) {
            (Left::Concat(parts), Some(("concat", Value::Array(values)))) => {
                vec![matches::combination(parts, values, sets)]
            }
            _ if right == "*" => vec![Vec::new()],
            _ => matches::compare(&key, "==", &right, sets),
        };
        all.extend(multiply(rules, &alternatives).into_iter().map(|rule| Rule { verdict: verdict.clone(), ..rule }));
    }
    all
}

/// Statements that change packets or their metadata, with what Weir does instead.
const IGNORED: &[(&str, &str)] = &[
    ("log", "Weir logs no packets; every rule counts, and `sample 1/N` copies packets to the divert interface"),
    ("mangle", "Weir forwards packets unchanged, and they have no marks"),
    ("last", "Weir has no time of a rule's last packet"),
    ("flow", "every engine of Weir is a fast path"),
    ("dup", "`sample 1/1` copies packets to the divert interface"),
    ("ct helper", "Weir has no helpers of conntrack"),
    ("ct timeout", "`tracking { timeout ... }` sets the timeouts of all flows"),
    ("ct expectation", "Weir has no expectations"),
    ("tcp option", "Weir forwards packets unchanged"),
    ("secmark", "packets of other hosts have no security context"),
];
/// Statements that end packets in a way that Weir does not have.
const ENDS: &[(&str, &str)] = &[
    ("queue", "a program decides the packet; `divert` sends it to the divert interface"),
    ("tproxy", "Weir forwards packets unchanged"),
    ("fwd", "`divert` sends packets to the divert interface"),
    ("synproxy", "`tcp synproxy` answers SYNs; it needs `tracking { synproxy ... }`"),
    ("dnat", "Weir forwards packets unchanged"),
    ("snat", "Weir forwards packets unchanged"),
    ("masquerade", "Weir forwards packets unchanged"),
    ("redirect", "Weir forwards packets unchanged"),
    ("xt", "a part of iptables that nft cannot show: import the output of iptables-save instead"),
    ("quota", "`limit rate` bounds bytes a second, nothing bounds their sum"),
];

fn statement(rule: &mut Rule, name: &str, body: &Value, chains: &Chains, sets: &Sets) {
    let object = serde_json::json!({ name: body });
    if let Some(found) = verdict(&object, chains) {
        rule.verdict = found;
        return;
    }
    if let Some((_, reason)) = IGNORED.iter().find(|(known, _)| *known == name) {
        rule.ignored.push(format!("{name}: {reason}"));
        return;
    }
    if let Some((_, reason)) = ENDS.iter().find(|(known, _)| *known == name) {
        rule.verdict = Verdict::Foreign(format!("{name}: {reason}"));
        return;
    }
    match name {
        "counter" => rule.counts = true,
        "comment" => rule.comment = body.as_str().map(str::to_owned),
        "reject" => {
            rule.verdict = Verdict::Drop;
            rule.approximations.push(("no answer is sent: `reject` becomes `drop`".to_owned(), Effect::Same));
        }
        "notrack" => {
            let reason = "Weir tracks every packet that reaches `ct state`: rules for untracked packets do not see it";
            rule.approximations.push((reason.to_owned(), Effect::Unknown));
        }
        "limit" => limit(rule, body, sets),
        "set" => set(rule, body, sets),
        "meter" => meter(rule, body),
        "ct count" => {
            let reason = "it counts the connections of all addresses together; `limit each ip saddr connections N` \
                          counts those of each";
            rule.tests.push(Test::Foreign(reason.to_owned()));
        }
        _ => rule.tests.push(Test::Foreign(format!("`{name}` is not there in Weir"))),
    }
}

fn limit(rule: &mut Rule, body: &Value, sets: &Sets) {
    let named = body.as_str().map(|name| sets.limit(name).cloned());
    let body = match &named {
        Some(None) => return rule.tests.push(Test::Foreign("its limit is not in the ruleset".to_owned())),
        Some(Some(named)) => named,
        None => body,
    };
    if named.is_some() {
        let reason = "rules that name one limit share its bucket; in Weir each rule has its own";
        rule.approximations.push((reason.to_owned(), Effect::PassesMore));
    }
    match rate(body) {
        Ok(rate) => add_limit(rule, "limit rate", &rate),
        Err(reason) => rule.tests.push(Test::Foreign(reason)),
    }
}

fn add_limit(rule: &mut Rule, word: &str, rate: &Rate) {
    if rate.is_bytes {
        let reason = "Weir counts bytes with the link header, and bits with powers of 1000";
        rule.approximations.push((reason.to_owned(), Effect::PassesLess));
    }
    if rule.limit.is_some() {
        return rule.tests.push(Test::Foreign("a rule with two limits".to_owned()));
    }
    let (statement, is_over) = (format!("{word} {}", rate.text), rate.is_over);
    rule.limit = Some(Limit { statement, is_over, counts_connections: false });
}

/// A rate of packets or bytes.
pub fn rate(body: &Value) -> Result<Rate, String> {
    let number = |key: &str| body[key].as_u64().or_else(|| body[key].as_str().and_then(|text| text.parse().ok()));
    let amount = number("rate").ok_or("a limit without a rate")?;
    let (hours, per) = match body["per"].as_str().unwrap_or("second") {
        "day" => (24, "hour"),
        "week" => (168, "hour"),
        per => (1, per),
    };
    let is_over = body["inv"] == true;
    let unit = body["rate_unit"].as_str().unwrap_or("packets");
    let burst = number("burst").unwrap_or(0);
    if unit == "packets" {
        if amount % hours != 0 {
            return Err(format!("the rate {amount}/{} is no whole number an hour", text(&body["per"])));
        }
        // The kernel's default.
        let burst = if burst == 0 { 5 } else { burst };
        return Ok(Rate { text: format!("{}/{per} burst {burst} packets", amount / hours), is_over, is_bytes: false });
    }
    let size = |unit: &str| match unit {
        "kbytes" => Some(1 << 10),
        "mbytes" => Some(1 << 20),
        "bytes" => Some(1u64),
        _ => None,
    };
    let seconds = match body["per"].as_str().unwrap_or("second") {
        "second" => 1,
        "minute" => 60,
        "hour" => 3600,
        _ => return Err("a rate of bytes a day".to_owned()),
    };
    let bytes = size(unit).and_then(|size| amount.checked_mul(size)).ok_or("an unknown unit of a rate")?;
    let burst = size(body["burst_unit"].as_str().unwrap_or("bytes")).and_then(|size| burst.checked_mul(size));
    // The kernel's bucket has room for the bytes of one unit of time, and for the burst.
    let burst = burst.and_then(|burst| burst.checked_add(bytes)).ok_or("an unknown unit of a burst")?.max(1514);
    let kilobits = bytes.checked_mul(8).ok_or("the rate is too large")?.div_ceil(1000 * seconds).max(8);
    Ok(Rate { text: format!("{kilobits}kbit burst {burst} bytes"), is_over, is_bytes: true })
}

/// An address of a packet as `add` and `limit each` name it, and a timeout in seconds.
fn subject(element: &Value) -> Result<(String, Option<u64>), String> {
    let (value, timeout) = match single(element) {
        Some(("elem", body)) => (&body["val"], body["timeout"].as_u64()),
        _ => (element, None),
    };
    let Left::Field(field) = left(value) else {
        return Err("tables and limits of Weir have single addresses".to_owned());
    };
    if !field.name.ends_with("addr") || field.name.starts_with('@') {
        return Err(format!("tables and limits of Weir have addresses, not `{}`", field.name));
    }
    let Some((mask, _)) = field.mask else { return Ok((field.name, timeout)) };
    let bits = if field.name.starts_with("ip6") { 128 } else { 32 };
    let length = (mask << (128 - bits)).leading_ones();
    if mask != (u128::MAX << (128 - length.max(1))) >> (128 - bits) || length == 0 {
        return Err("its mask is no prefix".to_owned());
    }
    Ok((format!("{}/{length}", field.name), timeout))
}

fn set(rule: &mut Rule, body: &Value, sets: &Sets) {
    let name = text(&body["set"]);
    let name = name.trim_start_matches('@');
    let op = match body["op"].as_str() {
        Some(op @ ("add" | "update")) => op,
        _ => return rule.tests.push(Test::Foreign("entries leave a table of Weir by their timeout".to_owned())),
    };
    let (subject, timeout) = match subject(&body["elem"]) {
        Ok(found) => found,
        Err(reason) => return rule.tests.push(Test::Foreign(reason)),
    };
    let statements = body["stmt"].as_array().cloned().unwrap_or_default();
    let limits = statements.iter().filter(|statement| !matches!(single(statement), Some(("counter", _))));
    let limits: Vec<&Value> = limits.collect();
    if let [limit] = limits.as_slice() {
        if sets.is_matched(name) {
            let reason = format!("the set {name} has the addresses of all packets, and other rules match it");
            return rule.tests.push(Test::Foreign(reason));
        }
        return limit_each(rule, &subject, limit);
    }
    let Some(table) = sets.table(name).filter(|_| limits.is_empty()) else {
        return rule.tests.push(Test::Foreign(format!("the set {name} is no table of Weir")));
    };
    let timeout = timeout.map(|seconds| format!(" timeout {}", time(seconds))).unwrap_or_default();
    rule.adds.push(format!("{op} @{table} {{ {subject}{timeout} }}"));
}

/// The elements of a dynamic set each have a limit.
fn limit_each(rule: &mut Rule, subject: &str, body: &Value) {
    match single(body) {
        Some(("limit", body)) => match rate(body) {
            Ok(rate) => add_limit(rule, &format!("limit each {subject}"), &rate),
            Err(reason) => rule.tests.push(Test::Foreign(reason)),
        },
        Some(("ct count", body)) => {
            let statement = format!("limit each {subject} connections {}", text(&body["val"]));
            rule.limit = Some(Limit { statement, is_over: body["inv"] == true, counts_connections: true });
        }
        _ => rule.tests.push(Test::Foreign("elements of a set with something that Weir does not have".to_owned())),
    }
}

fn meter(rule: &mut Rule, body: &Value) {
    match subject(&body["key"]) {
        Ok((subject, _)) => limit_each(rule, &subject, &body["stmt"]),
        Err(reason) => rule.tests.push(Test::Foreign(reason)),
    }
}
