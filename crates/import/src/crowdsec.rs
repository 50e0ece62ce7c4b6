//! CrowdSec: decisions as `cscli decisions list -o json` or `-o raw` prints them, as the local API streams them
//! (`/v1/decisions/stream`), and as `cscli decisions import` reads them from CSV.
//!
//! Decisions expire one by one. A table of a policy has one timeout, so each family also gets lines for
//! `weir ctl table NAME stream`, which give every entry its own.

use crate::condition;
use crate::finding::{Effect, Findings};
use crate::policy_text::Writer;
use crate::sets::{Table, time};
use crate::{Import, Options, Refused, Source};
use serde_json::Value;

/// The longest timeout of an entry, in seconds.
const TIMEOUT_MAX: u64 = 365 * 86_400;
/// Room in the tables for decisions to come.
const SIZE: u64 = 1_048_576;

/// A decision. Empty texts are missing.
#[derive(Default)]
struct Decision {
    at: String,
    value: String,
    scope: String,
    kind: String,
    duration: String,
    is_deleted: bool,
    is_simulated: bool,
    reason: String,
}

/// What was read.
#[derive(Default)]
struct Reader {
    findings: Findings,
    decisions: Vec<Decision>,
}

/// Turns decisions into tables of blocked addresses, and lines that change them.
///
/// # Errors
/// A file has no decisions of a form that CrowdSec writes.
pub fn crowdsec(sources: &[Source], options: &Options) -> Result<Import, Refused> {
    let mut reader = Reader::default();
    for source in sources {
        let text = source.text.trim_start_matches('\u{feff}').trim_start();
        if text.starts_with(['{', '[']) || text.trim() == "null" {
            let value: Value =
                serde_json::from_str(text).map_err(|error| Refused(format!("{}: {error}", source.name)))?;
            reader.json(&source.name, &value)?;
        } else {
            reader.csv(source)?;
        }
    }
    let Reader { mut findings, decisions } = reader;
    let mut tables = [("crowdsec", false), ("crowdsec6", true)].map(|(name, is_ipv6)| Table {
        name: name.to_owned(),
        origin: "decisions of CrowdSec".to_owned(),
        is_ipv6,
        is_dynamic: true,
        size: Some(SIZE),
        ..Table::default()
    });
    let mut streams = [String::new(), String::new()];
    for decision in &decisions {
        if let Some((is_ipv6, address, seconds)) = blocked(decision, &mut findings) {
            let family = usize::from(is_ipv6);
            if decision.is_deleted {
                streams[family] += &format!("del {address}\n");
                continue;
            }
            streams[family] += &format!("update {address} timeout {}\n", time(seconds));
            let reason = Some(decision.reason.clone()).filter(|reason| !reason.is_empty());
            tables[family].entries.push((address, reason));
        }
    }
    for table in &mut tables {
        table.size = Some(SIZE.max(2 * table.entries.len() as u64));
    }
    let mut writer = Writer::new("CrowdSec", options);
    writer.tables(&tables.iter().collect::<Vec<_>>());
    writer.item("upstream {\n  ip saddr @crowdsec drop\n  ip6 saddr @crowdsec6 drop\n  accept\n}");
    writer.item("downstream { accept }");
    findings.note(
        "decisions",
        "durations",
        "each decision has its own: with -o DIR, `weir ctl table crowdsec stream < DIR/lists/crowdsec.stream` gives \
         the entries of a running Weir their timeouts, and removes deleted ones; crowdsec6 likewise",
    );
    let mut import = writer.finish(findings)?;
    let [v4, v6] = streams;
    import.lists.push(("lists/crowdsec.stream".to_owned(), v4));
    import.lists.push(("lists/crowdsec6.stream".to_owned(), v6));
    Ok(import)
}

/// The family, address and seconds of a decision that Weir can apply. Others become findings.
fn blocked(decision: &Decision, findings: &mut Findings) -> Option<(bool, String, u64)> {
    let text = format!("{} {} {}", decision.kind, decision.scope, decision.value);
    let kind = decision.kind.to_lowercase();
    if decision.is_simulated {
        findings.note(&decision.at, &text, "a simulated decision blocks nothing");
        return None;
    }
    if !kind.is_empty() && kind != "ban" {
        findings.left_out(&decision.at, &text, "Weir can only block", Effect::PassesMore);
        return None;
    }
    if !matches!(decision.scope.to_lowercase().as_str(), "" | "ip" | "range") {
        let reason = "tables of Weir have addresses; a map with labels has countries and networks (AS)";
        findings.left_out(&decision.at, &text, reason, Effect::PassesMore);
        return None;
    }
    let Some((_, address)) = condition::address(&decision.value) else {
        findings.left_out(&decision.at, &text, "it is no address", Effect::PassesMore);
        return None;
    };
    let is_ipv6 = address.contains(':');
    if decision.is_deleted {
        return Some((is_ipv6, address, 0));
    }
    match seconds(&decision.duration) {
        Some(0) => {
            findings.note(&decision.at, &text, "the decision has expired");
            None
        }
        Some(seconds) => Some((is_ipv6, address, seconds.min(TIMEOUT_MAX))),
        None => {
            let reason = format!("the duration `{}` cannot be read", decision.duration);
            findings.left_out(&decision.at, &text, &reason, Effect::PassesMore);
            None
        }
    }
}

/// Seconds of a duration of Go, such as `3h59m12.5s`. Expired ones are negative, which is 0 here.
fn seconds(text: &str) -> Option<u64> {
    if text.starts_with('-') {
        return Some(0);
    }
    let mut total: u64 = 0;
    let mut number = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_ascii_digit() || letter == '.' {
            number.push(letter);
            continue;
        }
        let unit = match (letter, letters.peek()) {
            ('m' | 'u' | 'µ' | 'n', Some('s')) => {
                letters.next();
                0
            }
            ('d', _) => 86_400,
            ('h', _) => 3600,
            ('m', _) => 60,
            ('s', _) => 1,
            _ => return None,
        };
        let whole: u64 = number.split('.').next()?.parse().ok()?;
        total = total.checked_add(whole.checked_mul(unit)?)?;
        number.clear();
    }
    // What is left for less than a second is left for one.
    (number.is_empty() && !text.is_empty()).then(|| total.max(1))
}

impl Reader {
    fn json(&mut self, name: &str, value: &Value) -> Result<(), Refused> {
        match value {
            Value::Null => Ok(()),
            Value::Array(list) => {
                for (index, entry) in list.iter().enumerate() {
                    let at = format!("{name}, entry {}", index + 1);
                    match entry["decisions"].as_array() {
                        Some(decisions) => decisions.iter().for_each(|decision| self.decision(&at, decision, false)),
                        None => self.decision(&at, entry, false),
                    }
                }
                Ok(())
            }
            Value::Object(object) if object.contains_key("new") || object.contains_key("deleted") => {
                // CrowdSec's bouncers remove before they add.
                for (key, is_deleted) in [("deleted", true), ("new", false)] {
                    for (index, decision) in value[key].as_array().into_iter().flatten().enumerate() {
                        self.decision(&format!("{name}, {key} {}", index + 1), decision, is_deleted);
                    }
                }
                Ok(())
            }
            _ => Err(Refused(format!("{name}: neither a list of decisions nor `new` and `deleted`"))),
        }
    }

    fn decision(&mut self, at: &str, value: &Value, is_deleted: bool) {
        let text = |key: &str| value[key].as_str().unwrap_or("").to_owned();
        self.decisions.push(Decision {
            at: at.to_owned(),
            value: text("value"),
            scope: text("scope"),
            kind: text("type"),
            duration: text("duration"),
            is_deleted,
            is_simulated: value["simulated"] == true,
            reason: text("scenario"),
        });
    }

    /// CSV with a header: `duration,scope,value` for imports, `id,source,ip,reason,action,...,expiration` as printed.
    fn csv(&mut self, source: &Source) -> Result<(), Refused> {
        let mut lines = source.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (_, header) = lines.next().ok_or_else(|| Refused(format!("{}: it is empty", source.name)))?;
        let names = fields(&header.to_lowercase());
        let column = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
        let (Some(value), Some(duration)) = (column(&["value", "ip"]), column(&["duration", "expiration"])) else {
            let reason = "its first line names no columns `duration` and `value`";
            return Err(Refused(format!("{}: {reason}: {header}", source.name)));
        };
        let (scope, kind) = (column(&["scope"]), column(&["type", "action"]));
        let (reason, simulated) = (column(&["reason", "scenario"]), column(&["simulated"]));
        for (number, line) in lines {
            let fields = fields(line);
            let at = format!("{}:{}", source.name, number + 1);
            if fields.len() != names.len() {
                return Err(Refused(format!("{at}: {} fields, the header has {}", fields.len(), names.len())));
            }
            let of = |column: Option<usize>| column.map(|column| fields[column].clone()).unwrap_or_default();
            // As printed, the scope stands in front of the value: `Ip:192.0.2.1`.
            let (scope, value) = match fields[value].split_once(':') {
                Some((scope, value)) if matches!(scope, "Ip" | "Range" | "Country" | "AS") => {
                    (scope.to_owned(), value.to_owned())
                }
                _ => (of(scope), fields[value].clone()),
            };
            self.decisions.push(Decision {
                at,
                value,
                scope,
                kind: of(kind),
                duration: fields[duration].clone(),
                is_deleted: false,
                is_simulated: of(simulated) == "true",
                reason: of(reason),
            });
        }
        Ok(())
    }
}

/// The fields of a line of CSV (RFC 4180).
fn fields(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.trim_end().chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(String::new()),
            letter => all.last_mut().expect("it begins with one").push(letter),
        }
    }
    all.into_iter().map(|field| field.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        assert_eq!(seconds("3h59m12.5s"), Some(14_352));
        assert_eq!(seconds("-5m"), Some(0));
        assert_eq!(seconds("120ms"), Some(1));
        assert_eq!(seconds("1x"), None);
        assert_eq!(seconds(""), None);
        assert_eq!(seconds("5"), None, "a number without a unit may be anything");
    }
}
