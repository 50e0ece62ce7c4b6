//! nftables: the output of `nft -j list ruleset`, as libnftables-json(5) describes it.

mod field;
mod matches;
mod render;
mod set;
mod statement;

use crate::condition::{Condition, IPV4, IPV6};
use crate::finding::{Effect, Findings};
use crate::policy_text;
use crate::ruleset::{Base, Chain, Hook, Rule, Ruleset};
use crate::{Import, Options, Refused, Source};
use render::single;
use serde_json::Value;
use set::Sets;
use statement::Chains;
use std::collections::BTreeMap;

/// Objects that say nothing about packets.
const SILENT: [&str; 5] = ["metainfo", "table", "counter", "limit", "rule"];

/// Turns the output of `nft -j list ruleset` into a policy.
///
/// # Errors
/// It is no such output, or too large.
pub fn nft(source: &Source, options: &Options) -> Result<Import, Refused> {
    let value: Value = serde_json::from_str(&source.text)
        .map_err(|error| Refused(format!("{}: {error}; `nft -j list ruleset` writes JSON", source.name)))?;
    let objects = value["nftables"].as_array().ok_or_else(|| {
        Refused(format!("{}: no list `nftables`: this is not the output of `nft -j list ruleset`", source.name))
    })?;
    let mut reader = Reader::default();
    reader.declare(objects);
    reader.sets.make_tables(&mut reader.findings);
    reader.rules(objects);
    let Reader { ruleset, sets, findings, .. } = reader;
    policy_text::import(ruleset, &sets.tables, "nftables", options, findings)
}

/// What was read.
#[derive(Default)]
struct Reader {
    ruleset: Ruleset,
    sets: Sets,
    findings: Findings,
    /// Chains of each table.
    chains: BTreeMap<(String, String), Chains>,
}

impl Reader {
    /// Chains and sets, which rules name.
    fn declare(&mut self, objects: &[Value]) {
        for object in objects {
            let Some((kind, body)) = single(object) else { continue };
            match kind {
                "chain" => self.chain(body),
                "set" | "map" | "limit" => self.sets.declare(kind, body),
                "rule" => self.sets.note_uses(&set::owner(body), &body["expr"]),
                _ if SILENT.contains(&kind) => {}
                _ => {
                    let at = format!("{kind} {}", render::text(&body["name"]));
                    self.findings.left_out(&at, &body.to_string(), "Weir has no such object", Effect::Same);
                }
            }
        }
    }

    fn chain(&mut self, body: &Value) {
        let (family, table) = set::owner(body);
        let chain = render::text(&body["name"]);
        let name = format!("{family} {table} {chain}");
        let scope = match family.as_str() {
            "ip" => vec![Condition::family(IPV4)],
            "ip6" => vec![Condition::family(IPV6)],
            _ => Vec::new(),
        };
        let is_foreign = matches!(family.as_str(), "bridge" | "arp") || body["type"] == "nat";
        let hook = body["hook"].as_str().and_then(Hook::of).filter(|_| !is_foreign);
        let base = hook.map(|hook| Base {
            hook,
            priority: body["prio"].as_i64().unwrap_or(0),
            drops: body["policy"] == "drop",
            device: match &body["dev"] {
                Value::Array(list) => list.iter().map(render::text).collect(),
                Value::Null => Vec::new(),
                one => vec![render::text(one)],
            },
            at: name.clone(),
        });
        self.chains.entry((family, table)).or_default().insert(chain, self.ruleset.chains.len());
        self.ruleset.chains.push(Chain { name, base, scope, rules: Vec::new() });
    }

    fn rules(&mut self, objects: &[Value]) {
        let foreign = foreign_chains(objects);
        for object in objects {
            let Some(("rule", body)) = single(object) else { continue };
            let owner = set::owner(body);
            let none = Chains::new();
            let chains = self.chains.get(&owner).unwrap_or(&none);
            let name = render::text(&body["chain"]);
            let expressions = body["expr"].as_array().cloned().unwrap_or_default();
            let Some(&chain) = chains.get(&name) else {
                self.findings.left_out(&name, &render::rule(&expressions), "its chain is missing", Effect::Unknown);
                continue;
            };
            let count = &mut self.ruleset.chains[chain].rules;
            let number = count.iter().map(|rule| rule.at.as_str()).collect::<std::collections::BTreeSet<_>>().len() + 1;
            let at =
                format!("{} {} {name}, rule {number} (handle {})", owner.0, owner.1, render::text(&body["handle"]));
            if let Some(reason) = foreign.get(&chain_key(body)) {
                let effect = if reason.starts_with("NAT") { Effect::Unknown } else { Effect::Same };
                self.findings.left_out(&at, &render::rule(&expressions), reason, effect);
                continue;
            }
            self.sets.owner = owner;
            let comment = body["comment"].as_str().map(str::to_owned);
            let base = Rule { at, comment, ..Rule::default() };
            let rules = statement::rules(&base, &expressions, chains, &mut self.sets);
            self.ruleset.chains[chain].rules.extend(rules);
        }
    }
}

/// Identifies a chain: family, table and name. Rules have the name under another key than chains.
fn chain_key(body: &Value) -> [String; 3] {
    let name = body.get("chain").unwrap_or(&body["name"]);
    [render::text(&body["family"]), render::text(&body["table"]), render::text(name)]
}

/// Base chains whose rules cannot be imported at all, with the reason.
fn foreign_chains(objects: &[Value]) -> BTreeMap<[String; 3], &'static str> {
    let chains = objects.iter().filter_map(|object| match single(object) {
        Some(("chain", body)) => Some(body),
        _ => None,
    });
    let reason = |body: &Value| match body["family"].as_str() {
        _ if body["type"] == "nat" => {
            Some("NAT: Weir forwards packets unchanged, and its rules see the addresses on the wire")
        }
        Some("bridge") => Some("Weir has no chains of bridges; import the rules of ip, ip6 or inet"),
        Some("arp") => Some("rules see ARP only with `defaults { arp rules }`"),
        _ => None,
    };
    chains.filter_map(|body| Some((chain_key(body), reason(body)?))).collect()
}
