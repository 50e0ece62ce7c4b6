//! Matches: a left side, an operator and values become tests of a policy.

use super::field::{Field, Kind, Left, flag_names, flags, left};
use super::render::{single, text};
use super::set::Sets;
use crate::condition::{Condition, Range};
use crate::ruleset::{InterfaceTest, Test};
use serde_json::Value;

/// Most rules that one rule becomes because its values are pairs.
const ALTERNATIVES_MAX: usize = 256;

/// The tests of one match. A packet matches if all tests of one alternative hold.
pub type Alternatives = Vec<Vec<Test>>;

/// Reads a match.
pub fn read(body: &Value, sets: &mut Sets) -> Alternatives {
    let op = body["op"].as_str().unwrap_or("==");
    compare(&left(&body["left"]), op, &body["right"], sets)
}

fn foreign(reason: impl Into<String>) -> Alternatives {
    vec![vec![Test::Foreign(reason.into())]]
}

/// Compares a left side with values.
pub fn compare(left: &Left, op: &str, right: &Value, sets: &mut Sets) -> Alternatives {
    match left {
        Left::Foreign(reason) => foreign(reason.clone()),
        Left::Interface(is_incoming) => interface(*is_incoming, op, right, sets),
        Left::Concat(parts) => concat(parts, op, right, sets),
        Left::Field(field) => vec![compare_field(field, op, right, sets)],
    }
}

fn interface(is_incoming: bool, op: &str, right: &Value, sets: &Sets) -> Alternatives {
    let is_negated = match op {
        "==" | "in" => false,
        "!=" => true,
        _ => return foreign("interfaces have no order"),
    };
    let Some(values) = listed(right, sets) else { return foreign("its set is not in the ruleset") };
    if values.is_empty() {
        return if is_negated { vec![Vec::new()] } else { vec![vec![Test::Never]] };
    }
    let names: Option<Vec<String>> = values.iter().map(|value| value.as_str().map(str::to_owned)).collect();
    match names {
        Some(names) => vec![vec![Test::Interface(InterfaceTest { is_incoming, is_negated, names })]],
        None => foreign("its interfaces have no names"),
    }
}

/// The single values of a right side: of a set, of a named set, or the value itself. `None` if a named set is missing.
pub fn listed(right: &Value, sets: &Sets) -> Option<Vec<Value>> {
    if let Some(name) = right.as_str().and_then(|text| text.strip_prefix('@')) {
        return sets.elements(name);
    }
    match single(right) {
        Some(("set", Value::Array(list))) => Some(list.clone()),
        Some(("set", one)) => Some(vec![one.clone()]),
        _ => Some(vec![right.clone()]),
    }
}

fn concat(parts: &[Left], op: &str, right: &Value, sets: &mut Sets) -> Alternatives {
    if op != "==" && op != "in" {
        return foreign("a policy cannot say that several fields together are not in a set");
    }
    if let Some(name) = right.as_str().and_then(|text| text.strip_prefix('@'))
        && sets.is_filled_by_rules(name)
    {
        return foreign(format!("rules add to the set {name}, and tables of Weir have single addresses"));
    }
    let Some(values) = listed(right, sets) else { return foreign("its set is not in the ruleset") };
    if values.len() > ALTERNATIVES_MAX {
        return foreign(format!("{} combinations: at most {ALTERNATIVES_MAX} become rules", values.len()));
    }
    let mut alternatives = Vec::new();
    for value in &values {
        let value = match single(value) {
            Some(("elem", body)) => &body["val"],
            _ => value,
        };
        let Some(("concat", Value::Array(values))) = single(value) else {
            return foreign("its combinations cannot be read");
        };
        alternatives.push(combination(parts, values, sets));
    }
    if alternatives.is_empty() { vec![vec![Test::Never]] } else { alternatives }
}

/// The tests of one element of a concatenation.
pub fn combination(parts: &[Left], values: &[Value], sets: &mut Sets) -> Vec<Test> {
    if parts.len() != values.len() {
        return vec![Test::Foreign("its combination has another number of values".to_owned())];
    }
    let mut tests = Vec::new();
    for (part, value) in parts.iter().zip(values) {
        for mut alternative in compare(part, "==", value, sets).into_iter().take(1) {
            tests.append(&mut alternative);
        }
    }
    tests
}

fn compare_field(field: &Field, op: &str, right: &Value, sets: &mut Sets) -> Vec<Test> {
    let guards = field.guards.iter().cloned().map(Test::Field);
    let mut tests: Vec<Test> = guards.collect();
    match test(field, op, right, sets) {
        Ok(Some(found)) => tests.push(found),
        Ok(None) => {}
        Err(reason) => tests.push(Test::Foreign(reason)),
    }
    tests
}

/// The test of one field. `None` if it holds for every packet.
fn test(field: &Field, op: &str, right: &Value, sets: &mut Sets) -> Result<Option<Test>, String> {
    if let Value::Bool(exists) = right {
        let is_positive = *exists == (op != "!=");
        let text = format!("{} {}", field.name, if is_positive { "exists" } else { "missing" });
        let is_known = field.kind == Kind::Presence;
        return if is_known { Ok(Some(Test::Field(Condition::opaque(&field.name, text)))) } else { Err(odd(right)) };
    }
    if let Some(name) = right.as_str().and_then(|text| text.strip_prefix('@'))
        && field.kind == Kind::Address
        && field.mask.is_none()
        && (op == "==" || op == "!=" || op == "in")
    {
        if let Some(table) = sets.table(name) {
            let sign = if op == "!=" { "!= " } else { "" };
            return Ok(Some(Test::Field(Condition::opaque(&field.name, format!("{} {sign}@{table}", field.name)))));
        }
        return Err(format!("the set {name} has no single addresses, or is not in the ruleset"));
    }
    if let Some(name) = right.as_str().and_then(|text| text.strip_prefix('@'))
        && sets.is_filled_by_rules(name)
    {
        return Err(format!("rules add to the set {name}, and tables of Weir have addresses only"));
    }
    match field.kind {
        Kind::Flags => flag_test(field, op, right, sets).map(Some),
        Kind::State => state_test(field, op, right, sets),
        _ => plain_test(field, op, right, sets).map(Some),
    }
}

fn odd(right: &Value) -> String {
    format!("Weir cannot read the value {}", super::render::expression(right))
}

/// `tcp flags`: any of some bits, none of them, or bits under a mask.
fn flag_test(field: &Field, op: &str, right: &Value, sets: &Sets) -> Result<Test, String> {
    let values = listed(right, sets).ok_or("its set is not in the ruleset")?;
    let is_set =
        single(right).is_some_and(|(name, _)| name == "set") || right.as_str().is_some_and(|t| t.starts_with('@'));
    let bits: Option<Vec<u8>> = values.iter().map(flags).collect();
    let bits = bits.ok_or_else(|| odd(right))?;
    let one = || (bits.len() == 1).then(|| bits[0]).ok_or_else(|| odd(right));
    let mask = field.mask.as_ref().map_or(0xff, |(mask, _)| *mask as u8);
    let names = |bits: u8| flag_names(bits).trim_matches(['(', ')']).replace(" | ", ",");
    let (text, holds): (String, Box<dyn Fn(u8) -> bool>) = match (op, &field.mask) {
        ("in", None) if !is_set => {
            let bits = one()?;
            (format!("tcp flags {}", names(bits)), Box::new(move |value| value & bits != 0))
        }
        ("!", None) => {
            let bits = one()?;
            (format!("tcp flags ! {}", names(bits)), Box::new(move |value| value & bits == 0))
        }
        ("==" | "in" | "!=", _) => {
            let is_equal = op != "!=";
            let shown: Vec<String> = bits.iter().map(|bits| flag_names(*bits)).collect();
            let shown =
                if is_set { format!("{{ {} }}", shown.join(", ").replace(['(', ')'], "")) } else { shown[0].clone() };
            let sign = if is_equal { "==" } else { "!=" };
            let text = match &field.mask {
                Some((_, mask)) if is_set => format!("tcp flags & {mask} {}{shown}", if is_equal { "" } else { "!= " }),
                Some((_, mask)) => format!("tcp flags & {mask} {sign} {shown}"),
                None if is_set => format!("tcp flags {}{shown}", if is_equal { "" } else { "!= " }),
                None => format!("tcp flags {sign} {}", names(one()?)),
            };
            (text, Box::new(move |value| bits.contains(&(value & mask)) == is_equal))
        }
        _ => return Err("TCP flags have no order".to_owned()),
    };
    let values: Vec<(Range, String)> =
        (0..=255u8).filter(|value| holds(*value)).map(|value| ((value.into(), value.into()), String::new())).collect();
    if values.is_empty() {
        return Ok(Test::Never);
    }
    Ok(Test::Field(Condition { text, ..Condition::one_of("tcp flags", &values) }))
}

/// `ct state`: a packet has one state.
fn state_test(field: &Field, op: &str, right: &Value, sets: &Sets) -> Result<Option<Test>, String> {
    if field.mask.is_some() {
        return Err("a mask on `ct state`".to_owned());
    }
    if op == "!=" && right.is_array() {
        // No packet has both states.
        return Ok(None);
    }
    let values = match right {
        Value::Array(list) => list.clone(),
        right => listed(right, sets).ok_or("its set is not in the ruleset")?,
    };
    let read: Option<Vec<(Range, String)>> =
        values.iter().map(|value| field.value(value).and_then(|(range, text)| Some((range?, text)))).collect();
    let read = read.ok_or_else(|| odd(right))?;
    let condition = match op {
        "==" | "in" => Condition::one_of("ct state", &read),
        "!=" => Condition::none_of("ct state", &read),
        "!" => Condition::none_of("ct state", &read),
        _ => return Err("states have no order".to_owned()),
    };
    // As operators write it.
    let text = match condition.text.strip_prefix("ct state { ") {
        Some(list) => format!("ct state {}", list.trim_end_matches(" }").replace(", ", ",")),
        None => condition.text.clone(),
    };
    Ok(Some(Test::Field(Condition { text, ..condition })))
}

fn plain_test(field: &Field, op: &str, right: &Value, sets: &Sets) -> Result<Test, String> {
    let values = listed(right, sets).ok_or("its set is not in the ruleset")?;
    if values.is_empty() {
        return if op == "!=" { Err("a set without elements, negated".to_owned()) } else { Ok(Test::Never) };
    }
    let read: Option<Vec<(Option<Range>, String)>> = values.iter().map(|value| field.value(value)).collect();
    let read = read.ok_or_else(|| odd(right))?;
    if let Some((_, mask)) = &field.mask {
        let shown: Vec<&str> = read.iter().map(|(_, text)| text.as_str()).collect();
        let shown =
            if let [one] = shown.as_slice() { (*one).to_owned() } else { format!("{{ {} }}", shown.join(", ")) };
        let sign = match op {
            "==" | "in" => "==",
            "!=" => "!=",
            _ => return Err(format!("`{op}` behind a mask")),
        };
        let sign = if shown.starts_with('{') && sign == "==" { String::new() } else { format!("{sign} ") };
        let text = format!("{} & {mask} {sign}{shown}", field.name);
        return Ok(Test::Field(Condition::opaque(&format!("{} & {mask}", field.name), text)));
    }
    let known: Option<Vec<(Range, String)>> =
        read.iter().map(|(range, text)| Some(((*range)?, text.clone()))).collect();
    let condition = match (op, known) {
        ("==" | "in", Some(values)) => Condition::one_of(&field.name, &values),
        ("!=", Some(values)) => Condition::none_of(&field.name, &values),
        ("==" | "in" | "!=", None) => {
            let shown: Vec<(Range, String)> = read.into_iter().map(|(_, text)| ((0, 0), text)).collect();
            let condition = Condition::one_of(&field.name, &shown);
            let negated = Condition::none_of(&field.name, &shown);
            Condition { values: None, ..if op == "!=" { negated } else { condition } }
        }
        ("<" | "<=" | ">" | ">=", Some(values)) if values.len() == 1 => ordered(field, op, values[0].0, &values[0].1)?,
        _ => return Err(format!("the operator `{op}` with {}", text(right))),
    };
    Ok(Test::Field(condition))
}

fn ordered(field: &Field, op: &str, (low, high): Range, text: &str) -> Result<Condition, String> {
    let below = |end: u128| end.checked_sub(1).ok_or("nothing is below 0".to_owned());
    let range = match op {
        "<" => (0, below(low)?),
        "<=" => (0, high),
        ">" => (high.saturating_add(1), u128::MAX),
        _ => (low, u128::MAX),
    };
    let shown = Condition::one_of(&field.name, &[(range, text.to_owned())]);
    Ok(Condition { text: format!("{} {op} {text}", field.name), ..shown })
}
