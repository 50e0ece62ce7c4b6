//! ipset: the output of `ipset save`.

mod exceptions;

use crate::condition;
use crate::finding::{Effect, Findings};
use crate::policy_text::Writer;
use crate::sets::{Table, table_name};
use crate::{Import, Options, Refused, Source};
use std::collections::BTreeSet;

/// A set.
#[derive(Clone, Debug)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// `hash:ip`, `list:set`.
    pub kind: String,
    /// Whether its addresses are IPv6.
    pub is_ipv6: bool,
    /// Seconds after which entries leave; 0 if they stay.
    pub timeout_s: u64,
    /// Most entries.
    pub size: Option<u64>,
    /// `netmask N`: addresses stand for prefixes of this length.
    netmask: Option<String>,
    /// Where it is created.
    pub at: String,
    /// Its entries.
    pub entries: Vec<Entry>,
}

/// An entry of a set.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The text of its value.
    pub value: String,
    /// Seconds until it leaves.
    timeout_s: Option<u64>,
    /// Whether it is an exception.
    is_exception: bool,
    comment: Option<String>,
}

impl Set {
    /// Whether its entries are single addresses or prefixes.
    pub fn has_addresses(&self) -> bool {
        matches!(self.kind.as_str(), "hash:ip" | "hash:net" | "bitmap:ip")
    }

    /// The table of a set of addresses. Entries that cannot be carried over become findings.
    pub fn table(&self, name: String, is_filled: bool, findings: &mut Findings) -> Table {
        let mut entries = Vec::new();
        let mut exceptions = Vec::new();
        for entry in &self.entries {
            let netmask = self.netmask.as_ref().filter(|_| !entry.value.contains(['/', '-']));
            let value = netmask.map_or_else(|| entry.value.clone(), |mask| format!("{}/{mask}", entry.value));
            let read = match value.split_once('-') {
                Some((first, last)) => condition::address(first)
                    .zip(condition::address(last))
                    .map(|((first, _), (last, _))| ((first.0, last.1), value.clone())),
                None => condition::address(&value),
            };
            match read {
                Some((range, _)) if entry.is_exception => exceptions.push(range),
                Some((range, text)) => entries.push((range, text, entry.comment.clone())),
                None => findings.left_out(&self.at, &entry.value, "it is no address", Effect::Unknown),
            }
        }
        let has_exceptions = !exceptions.is_empty();
        let entries = if has_exceptions {
            findings.note(&self.at, &self.name, "entries with `nomatch` are cut out of the prefixes around them");
            let ranges: Vec<_> = entries.iter().map(|(range, ..)| *range).collect();
            exceptions::cut_out(&ranges, &exceptions, self.is_ipv6).into_iter().map(|text| (text, None)).collect()
        } else {
            entries.into_iter().map(|(_, text, comment)| (text, comment)).collect()
        };
        let with_timeout = self.entries.iter().filter(|entry| entry.timeout_s.is_some_and(|left| left > 0)).count();
        let is_dynamic = is_filled || self.timeout_s > 0;
        if with_timeout > 0 {
            let reason = match self.timeout_s {
                0 => {
                    "entries of this table stay: `weir ctl table NAME add ENTRY timeout T` gives single ones a timeout"
                }
                _ => "a table has one timeout for all its entries, which begins when the policy is loaded",
            };
            let text = format!("{with_timeout} entries with a timeout");
            findings.approximate(&self.at, &text, reason, Effect::Unknown);
        }
        Table {
            name,
            origin: format!("ipset {} ({})", self.name, self.kind),
            is_ipv6: self.is_ipv6,
            is_dynamic,
            size: self.size.filter(|_| is_dynamic),
            timeout_s: Some(self.timeout_s).filter(|seconds| *seconds > 0),
            entries,
        }
    }
}

/// Reads all sets of a file.
///
/// # Errors
/// A line is none of `ipset save`.
pub fn read(source: &Source, sets: &mut Vec<Set>) -> Result<(), Refused> {
    for (number, line) in source.text.lines().enumerate() {
        let at = format!("{}:{}", source.name, number + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = words(line);
        let refused = |what: &str| Refused(format!("{at}: {what}: {}", line.chars().take(80).collect::<String>()));
        match words.next().as_deref() {
            Some("create") => {
                let name = words.next().ok_or_else(|| refused("a set without a name"))?;
                let kind = words.next().ok_or_else(|| refused("a set without a type"))?;
                sets.push(created(name, kind, words, at.clone()));
            }
            Some("add") => {
                let name = words.next().ok_or_else(|| refused("an entry without a set"))?;
                let value = words.next().ok_or_else(|| refused("an entry without a value"))?;
                let known = sets.iter_mut().find(|set| set.name == name);
                let set = known.ok_or_else(|| refused("no line creates this set"))?;
                set.entries.push(added(value, words));
            }
            _ => return Err(refused("this is no line of `ipset save`")),
        }
    }
    Ok(())
}

/// The words of a line. A comment stands in quotes.
fn words(line: &str) -> impl Iterator<Item = String> {
    let mut words = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words.into_iter()
}

fn created(name: String, kind: String, mut words: impl Iterator<Item = String>, at: String) -> Set {
    let (is_ipv6, timeout_s, size, netmask) = (false, 0, None, None);
    let mut set = Set { name, kind, is_ipv6, timeout_s, size, netmask, at, entries: Vec::new() };
    while let Some(option) = words.next() {
        match option.as_str() {
            "family" => set.is_ipv6 = words.next().as_deref() == Some("inet6"),
            "timeout" => set.timeout_s = words.next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0),
            "maxelem" => set.size = words.next().and_then(|count| count.parse().ok()),
            "netmask" => set.netmask = words.next(),
            _ => {}
        }
    }
    set
}

fn added(value: String, mut words: impl Iterator<Item = String>) -> Entry {
    let mut entry = Entry { value, timeout_s: None, is_exception: false, comment: None };
    while let Some(option) = words.next() {
        match option.as_str() {
            "timeout" => entry.timeout_s = words.next().and_then(|seconds| seconds.parse().ok()),
            "nomatch" => entry.is_exception = true,
            "comment" => entry.comment = words.next(),
            _ => {}
        }
    }
    entry
}

/// Turns the output of `ipset save` into tables. Which rules name them is not in it.
///
/// # Errors
/// A line is none of `ipset save`.
pub fn ipset(sources: &[Source], options: &Options) -> Result<Import, Refused> {
    let mut sets = Vec::new();
    for source in sources {
        read(source, &mut sets)?;
    }
    if sets.is_empty() {
        return Err(Refused("no set: this is not the output of `ipset save`".to_owned()));
    }
    let mut findings = Findings::default();
    let mut taken = BTreeSet::new();
    let mut tables = Vec::new();
    for set in &sets {
        if set.has_addresses() {
            tables.push(set.table(table_name(&set.name, &mut taken), false, &mut findings));
            continue;
        }
        let reason = match set.kind.as_str() {
            "list:set" => "a list of sets: write a rule for each of its sets".to_owned(),
            "bitmap:port" => "ports: write `define NAME = { ... }` and `tcp dport $NAME`".to_owned(),
            kind => format!(
                "tables of Weir have addresses; rules that match a set of type {kind} are imported with it: \
                             `weir import iptables RULES SETS`"
            ),
        };
        let values: Vec<&str> = set.entries.iter().map(|entry| entry.value.as_str()).take(8).collect();
        let text = format!("set {} ({}, {} entries: {} ...)", set.name, set.kind, set.entries.len(), values.join(" "));
        findings.left_out(&set.at, &text, &reason, Effect::Same);
    }
    let mut writer = Writer::new("ipset", options);
    writer.tables(&tables.iter().collect::<Vec<_>>());
    let rules = tables.iter().map(|table| {
        let family = if table.is_ipv6 { "ip6" } else { "ip" };
        format!("  # {family} saddr @{} drop\n", table.name)
    });
    let rules: String = rules.collect();
    findings.note(
        "rules",
        "the sets",
        "`ipset save` does not say what happens to the addresses of a set: the policy has rules \
                                        as comments",
    );
    let question = "What happens to these addresses? Remove the `#` of the rules that you want.";
    writer.item(&format!("upstream {{\n  # {question}\n{rules}  accept\n}}"));
    writer.item("downstream { accept }");
    writer.finish(findings)
}
