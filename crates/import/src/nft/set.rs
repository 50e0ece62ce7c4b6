//! Named sets, maps and limits of a ruleset.

use super::field::{Field, Kind};
use super::render::single;
use crate::finding::{Effect, Findings};
use crate::sets::{Table, table_name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A named object belongs to a table of a family.
type Owner = (String, String);

/// The named objects, and the tables that they become.
#[derive(Default)]
pub struct Sets {
    objects: BTreeMap<(Owner, String), Value>,
    limits: BTreeMap<(Owner, String), Value>,
    /// Index of the table of a set of addresses.
    of: BTreeMap<(Owner, String), usize>,
    filled: BTreeSet<(Owner, String)>,
    referenced: BTreeSet<(Owner, String)>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The table of nftables whose rules are read.
    pub owner: Owner,
}

/// The table that an object belongs to.
pub fn owner(object: &Value) -> Owner {
    let word = |key: &str| object[key].as_str().unwrap_or("").to_owned();
    (word("family"), word("table"))
}

impl Sets {
    /// Adds a set, a map or a limit.
    pub fn declare(&mut self, kind: &str, object: &Value) {
        let key = (owner(object), object["name"].as_str().unwrap_or("").to_owned());
        match kind {
            "limit" => _ = self.limits.insert(key, object.clone()),
            _ => _ = self.objects.insert(key, object.clone()),
        }
    }

    /// Notes which sets rules fill, and which they match.
    pub fn note_uses(&mut self, owner: &Owner, expressions: &Value) {
        match expressions {
            Value::Array(list) => list.iter().for_each(|value| self.note_uses(owner, value)),
            Value::Object(object) => {
                for (name, value) in object {
                    let is_changed = name == "set" && value.get("op").is_some();
                    if let Some(set) = value["set"].as_str().filter(|_| is_changed) {
                        self.filled.insert((owner.clone(), set.trim_start_matches('@').to_owned()));
                    } else if let Some(set) = value.as_str().and_then(|text| text.strip_prefix('@')) {
                        self.referenced.insert((owner.clone(), set.to_owned()));
                    }
                    self.note_uses(owner, value);
                }
            }
            _ => {}
        }
    }

    /// Makes tables of the sets of addresses.
    pub fn make_tables(&mut self, findings: &mut Findings) {
        let mut taken = BTreeSet::new();
        for (key, object) in &self.objects {
            let is_ipv6 = match object["type"].as_str() {
                Some("ipv4_addr") if object.get("map").is_none() => false,
                Some("ipv6_addr") if object.get("map").is_none() => true,
                _ => continue,
            };
            let ((family, table), name) = key;
            let origin = format!("set {name} of table {family} {table}");
            let flags = |flag: &str| match &object["flags"] {
                Value::Array(list) => list.iter().any(|known| known == flag),
                known => known == flag,
            };
            let timeout_s = object["timeout"].as_u64();
            let is_dynamic = self.filled.contains(key) || flags("dynamic") || flags("timeout");
            let mut made = Table {
                name: table_name(name, &mut taken),
                origin: origin.clone(),
                is_ipv6,
                is_dynamic,
                size: object["size"].as_u64().filter(|_| is_dynamic),
                timeout_s: timeout_s.filter(|_| is_dynamic),
                entries: Vec::new(),
            };
            let field = Field { name: "ip saddr".to_owned(), guards: Vec::new(), kind: Kind::Address, mask: None };
            let mut with_timeout = 0;
            for element in object["elem"].as_array().unwrap_or(&Vec::new()) {
                let body = single(element).filter(|(name, _)| *name == "elem").map(|(_, body)| body);
                with_timeout += usize::from(body.is_some_and(|body| body["timeout"].as_u64().is_some()));
                let comment = body.and_then(|body| body["comment"].as_str()).map(str::to_owned);
                match field.value(element) {
                    Some((_, text)) => made.entries.push((text, comment)),
                    None => findings.left_out(&origin, &element.to_string(), "it is no address", Effect::Unknown),
                }
            }
            if with_timeout > 0 {
                let reason = "a table has one timeout for all its entries";
                findings.approximate(
                    &origin,
                    &format!("{with_timeout} elements with a timeout"),
                    reason,
                    Effect::Unknown,
                );
            }
            self.of.insert(key.clone(), self.tables.len());
            self.tables.push(made);
        }
    }

    fn key(&self, name: &str) -> (Owner, String) {
        (self.owner.clone(), name.to_owned())
    }

    /// The name of the policy's table.
    pub fn table(&self, name: &str) -> Option<&str> {
        self.of.get(&self.key(name)).map(|at| self.tables[*at].name.as_str())
    }

    /// Whether rules match the set, besides filling it.
    pub fn is_matched(&self, name: &str) -> bool {
        self.referenced.contains(&self.key(name))
    }

    /// Whether rules add to the set.
    pub fn is_filled_by_rules(&self, name: &str) -> bool {
        self.filled.contains(&self.key(name))
    }

    /// The elements of a named set or map.
    pub fn elements(&self, name: &str) -> Option<Vec<Value>> {
        let object = self.objects.get(&self.key(name))?;
        Some(object["elem"].as_array().cloned().unwrap_or_default())
    }

    /// A named limit.
    pub fn limit(&self, name: &str) -> Option<&Value> {
        self.limits.get(&self.key(name))
    }
}
