//! Matches of `-m set`, and the sets that they name.

use crate::condition::{self, Condition};
use crate::finding::Findings;
use crate::ipset::{self, Set};
use crate::ruleset::Test;
use crate::sets::{Table, table_name};
use crate::{Refused, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Most rules that one rule becomes because its set has pairs.
const ALTERNATIVES_MAX: usize = 256;

/// The sets of the files, and those that rules use.
#[derive(Default)]
pub struct Sets {
    all: Vec<Set>,
    names: BTreeMap<String, String>,
    taken: BTreeSet<String>,
    filled: BTreeSet<String>,
    missing: BTreeSet<String>,
    tables: Vec<Table>,
}

impl Sets {
    /// Reads the output of `ipset save`.
    ///
    /// # Errors
    /// A line cannot be read.
    pub fn read(&mut self, source: &Source, findings: &mut Findings) -> Result<(), Refused> {
        let known = self.all.len();
        ipset::read(source, &mut self.all)?;
        for set in self.all[known..].iter().filter(|set| set.has_addresses()) {
            let name = table_name(&set.name, &mut self.taken);
            self.names.insert(set.name.clone(), name.clone());
            self.tables.push(set.table(name, false, findings));
        }
        Ok(())
    }

    /// The tables of all sets of addresses.
    pub fn tables(&self) -> Vec<Table> {
        let dynamic = |table: &Table| Table {
            is_dynamic: table.is_dynamic || self.filled.contains(&table.name),
            ..table.clone()
        };
        self.tables.iter().map(dynamic).collect()
    }

    /// Says which sets are not in the files.
    pub fn say_missing(&self, findings: &mut Findings) {
        for name in &self.missing {
            findings.note("sets", name, "the set is in no file: give the output of `ipset save` as another FILE");
        }
    }

    /// The table of a set to which rules add. `None` if it has no single addresses of the family.
    pub fn filled(&mut self, name: &str, is_ipv6: bool) -> Option<String> {
        let set = self.all.iter().find(|set| set.name == name)?;
        let table = self.names.get(name).filter(|_| set.is_ipv6 == is_ipv6)?;
        self.filled.insert(table.clone());
        Some(table.clone())
    }

    /// The tests of `--match-set NAME SIDES`. A packet matches if all tests of one alternative hold.
    pub fn matched(&mut self, name: &str, sides: &str, not: bool, is_ipv6: bool, at: &str) -> Vec<Vec<Test>> {
        let foreign = |reason: String| vec![vec![Test::Foreign(reason)]];
        let Some(set) = self.all.iter().find(|set| set.name == name) else {
            self.missing.insert(name.to_owned());
            return foreign(format!("the set {name} is in no file"));
        };
        let _ = at;
        match set.kind.as_str() {
            "list:set" => {
                let names: Vec<String> = set.entries.iter().map(|entry| entry.value.clone()).collect();
                self.of_list(&names, sides, not, is_ipv6)
            }
            "bitmap:port" => ports(set, sides, not),
            "hash:ip,port" | "hash:net,port" if not => foreign("not in a set of addresses and ports".to_owned()),
            "hash:ip,port" | "hash:net,port" => pairs(set, sides, is_ipv6),
            _ if !set.has_addresses() => foreign(format!("a set of type {}", set.kind)),
            _ if set.is_ipv6 != is_ipv6 => vec![vec![Test::Never]],
            _ => match side(sides.split(',').next().unwrap_or("")) {
                Some(side) => {
                    let field = format!("{} {side}addr", if is_ipv6 { "ip6" } else { "ip" });
                    let sign = if not { "!= " } else { "" };
                    let table = &self.names[name];
                    vec![vec![Test::Field(Condition::opaque(&field, format!("{field} {sign}@{table}")))]]
                }
                None => foreign(format!("the sides {sides}")),
            },
        }
    }

    fn of_list(&mut self, names: &[String], sides: &str, not: bool, is_ipv6: bool) -> Vec<Vec<Test>> {
        let is_list = |name: &String| self.all.iter().any(|set| &set.name == name && set.kind == "list:set");
        if names.iter().any(is_list) {
            return vec![vec![Test::Foreign("a list of lists of sets".to_owned())]];
        }
        let members: Vec<Vec<Vec<Test>>> =
            names.iter().map(|name| self.matched(name, sides, not, is_ipv6, "")).collect();
        if not {
            // Sets of the other family have no address of the packet.
            let tests = members.into_iter().flatten().flatten().filter(|test| *test != Test::Never);
            return vec![tests.collect()];
        }
        if members.is_empty() { vec![vec![Test::Never]] } else { members.into_iter().flatten().collect() }
    }
}

/// `src` and `dst` as the beginnings of fields.
fn side(name: &str) -> Option<&'static str> {
    match name {
        "src" => Some("s"),
        "dst" => Some("d"),
        _ => None,
    }
}

type Valued = (condition::Range, String);

/// `80`, `80-90`.
fn port(text: &str) -> Option<Valued> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    Some(((range.0.into(), range.1.into()), text.to_owned()))
}

fn ports(set: &Set, sides: &str, not: bool) -> Vec<Vec<Test>> {
    let values: Option<Vec<Valued>> = set.entries.iter().map(|entry| port(&entry.value)).collect();
    let (Some(values), Some(side)) = (values, side(sides)) else {
        return vec![vec![Test::Foreign(format!("the ports of the set {} cannot be read", set.name))]];
    };
    if values.is_empty() || not {
        let reason = format!("not in a set of ports, or an empty one: {}", set.name);
        return vec![vec![if not { Test::Foreign(reason) } else { Test::Never }]];
    }
    let protocols = [((6, 6), "tcp".to_owned()), ((17, 17), "udp".to_owned())];
    let protocols = Condition::one_of("meta l4proto", &protocols);
    vec![vec![Test::Field(protocols), Test::Field(Condition::one_of(&format!("th {side}port"), &values))]]
}

/// `192.0.2.1,tcp:80`
fn pairs(set: &Set, sides: &str, is_ipv6: bool) -> Vec<Vec<Test>> {
    let foreign = |reason: String| vec![vec![Test::Foreign(reason)]];
    if set.is_ipv6 != is_ipv6 {
        return vec![vec![Test::Never]];
    }
    let mut both = sides.split(',').map(side);
    let (Some(Some(of_address)), Some(Some(of_port))) = (both.next(), both.next()) else {
        return foreign(format!("the sides {sides}"));
    };
    if set.entries.len() > ALTERNATIVES_MAX {
        return foreign(format!("{} pairs: at most {ALTERNATIVES_MAX} become rules", set.entries.len()));
    }
    let family = if is_ipv6 { "ip6" } else { "ip" };
    let one = |value: &str| -> Option<Vec<Test>> {
        let (address, service) = value.split_once(',')?;
        let (protocol, number) = service.split_once(':')?;
        let protocol = Some(protocol).filter(|name| matches!(*name, "tcp" | "udp"))?;
        let address = Condition::one_of(&format!("{family} {of_address}addr"), &[condition::address(address)?]);
        let port = Condition::one_of(&format!("{protocol} {of_port}port"), &[port(number)?]);
        Some(vec![Test::Field(address), Test::Field(port)])
    };
    let entries = set.entries.iter().map(|entry| {
        one(&entry.value).unwrap_or_else(|| vec![Test::Foreign(format!("the entry {} of a set", entry.value))])
    });
    let alternatives: Vec<Vec<Test>> = entries.collect();
    if alternatives.is_empty() { vec![vec![Test::Never]] } else { alternatives }
}
