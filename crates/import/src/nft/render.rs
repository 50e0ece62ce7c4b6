//! Shows expressions of nftables' JSON as text, for comments and reports. It is close to what `nft list ruleset`
//! prints.

use serde_json::{Map, Value};

/// The text of a rule.
pub fn rule(expressions: &[Value]) -> String {
    let texts: Vec<String> = expressions.iter().map(statement).filter(|text| !text.is_empty()).collect();
    texts.join(" ")
}

fn statement(value: &Value) -> String {
    let Some((name, body)) = single(value) else { return value.to_string() };
    match name {
        "match" => matched(body),
        "counter" => "counter".to_owned(),
        "accept" | "drop" | "return" | "continue" | "notrack" => name.to_owned(),
        "jump" | "goto" => format!("{name} {}", text(&body["target"])),
        "limit" => limit(body),
        "log" => match body["prefix"].as_str() {
            Some(prefix) => format!("log prefix \"{prefix}\""),
            None => "log".to_owned(),
        },
        "reject" => match body["type"].as_str() {
            Some(kind) => ["reject with", kind].into_iter().chain(body["expr"].as_str()).collect::<Vec<_>>().join(" "),
            None => "reject".to_owned(),
        },
        "vmap" => format!("{} vmap {}", expression(&body["key"]), expression(&body["data"])),
        "mangle" => format!("{} set {}", expression(&body["key"]), expression(&body["value"])),
        "set" => {
            let statements = body["stmt"].as_array().map(|list| rule(list)).unwrap_or_default();
            let element = format!("{} {statements}", expression(&body["elem"]));
            format!("{} {} {{ {} }}", text(&body["op"]), text(&body["set"]), element.trim())
        }
        "meter" => {
            format!("meter {} {{ {} {} }}", text(&body["name"]), expression(&body["key"]), statement(&body["stmt"]))
        }
        "ct count" => format!("ct count {}{}", if body["inv"] == true { "over " } else { "" }, text(&body["val"])),
        "dnat" | "snat" | "masquerade" | "redirect" => {
            let port = body.get("port").map(|port| format!(":{}", expression(port))).unwrap_or_default();
            match body.get("addr") {
                Some(address) => format!("{name} to {}{port}", expression(address)),
                None if port.is_empty() => name.to_owned(),
                None => format!("{name} to {port}"),
            }
        }
        _ if body.is_null() => name.to_owned(),
        _ => format!("{name} {}", text(body)),
    }
}

fn matched(body: &Value) -> String {
    let op = body["op"].as_str().unwrap_or("==");
    let right = match &body["right"] {
        Value::Bool(true) => "exists".to_owned(),
        Value::Bool(false) => "missing".to_owned(),
        right => expression(right),
    };
    let is_plain = op == "in" || op == "==" && body["left"].get("&").is_none() && !right.contains('|');
    let is_flags = body["left"]["payload"]["field"] == "flags";
    if is_plain && !(op == "==" && is_flags) {
        format!("{} {right}", expression(&body["left"]))
    } else {
        format!("{} {op} {right}", expression(&body["left"]))
    }
}

fn limit(body: &Value) -> String {
    if let Some(name) = body.as_str() {
        return format!("limit name \"{name}\"");
    }
    let over = if body["inv"] == true { "over " } else { "" };
    let unit = body["rate_unit"].as_str().filter(|unit| *unit != "packets").map(|unit| format!(" {unit}"));
    let burst = match body["burst"].as_u64() {
        Some(burst) if burst > 0 => format!(" burst {burst} {}", body["burst_unit"].as_str().unwrap_or("packets")),
        _ => String::new(),
    };
    format!("limit rate {over}{}{}/{}{burst}", text(&body["rate"]), unit.unwrap_or_default(), text(&body["per"]))
}

/// The text of an expression.
pub fn expression(value: &Value) -> String {
    if let Value::Array(list) = value {
        return list.iter().map(expression).collect::<Vec<_>>().join(",");
    }
    let Some((name, body)) = single(value) else { return text(value) };
    match name {
        "payload" if body.get("base").is_some() => {
            format!("@{},{},{}", text(&body["base"]), text(&body["offset"]), text(&body["len"]))
        }
        "payload" => format!("{} {}", text(&body["protocol"]), text(&body["field"])),
        "meta" => match body["key"].as_str() {
            Some(key @ ("iif" | "oif" | "iifname" | "oifname")) => key.to_owned(),
            _ => format!("meta {}", text(&body["key"])),
        },
        "ct" => ["ct", body["dir"].as_str().unwrap_or(""), body["key"].as_str().unwrap_or("")]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" "),
        "exthdr" | "tcp option" | "ip option" => [Some(name), body["name"].as_str(), body["field"].as_str()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" "),
        "prefix" => format!("{}/{}", expression(&body["addr"]), text(&body["len"])),
        "range" => format!("{}-{}", expression(&body[0]), expression(&body[1])),
        "concat" => listed(body, " . "),
        "set" => format!("{{ {} }}", body.as_array().map(|list| elements(list)).unwrap_or_default()),
        "&" => format!("{} & {}", expression(&body[0]), masked(&body[1])),
        "|" => listed(body, " | "),
        "elem" => {
            let timeout = body["timeout"].as_u64().map(|seconds| format!(" timeout {seconds}s"));
            format!("{}{}", expression(&body["val"]), timeout.unwrap_or_default())
        }
        "fib" => format!("fib {} {}", listed(&body["flags"], " . "), text(&body["result"])),
        _ => value.to_string(),
    }
}

fn masked(mask: &Value) -> String {
    match mask {
        Value::Array(list) => format!("({})", list.iter().map(expression).collect::<Vec<_>>().join(" | ")),
        mask => expression(mask),
    }
}

fn listed(list: &Value, separator: &str) -> String {
    let texts: Vec<String> = list.as_array().map(|list| list.iter().map(expression).collect()).unwrap_or_default();
    texts.join(separator)
}

/// Elements of a set, or pairs of a map.
fn elements(list: &[Value]) -> String {
    let shown = list.iter().map(|element| match element {
        Value::Array(pair) if pair.len() == 2 && single(&pair[1]).is_some() => {
            format!("{} : {}", expression(&pair[0]), statement(&pair[1]))
        }
        element => expression(element),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The only entry of an object.
pub fn single(value: &Value) -> Option<(&str, &Value)> {
    let object: &Map<String, Value> = value.as_object()?;
    let mut entries = object.iter();
    let first = entries.next()?;
    entries.next().is_none().then_some((first.0.as_str(), first.1))
}

/// A value as a word.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
