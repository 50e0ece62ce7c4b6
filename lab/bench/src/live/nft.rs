//! nftables in the way in which an operator blocks a list: a named set and a rule at the ingress hook of the interface.

use super::contender::Contender;
use super::wire::{self, Port};
use serde_json::Value;
use std::fmt::Write;
use std::net::Ipv4Addr;
use weir_command::failure::Failure;

/// Number of addresses per run of nft, and per command.
const ADDRESSES_A_RUN: usize = 1 << 16;
const ADDRESSES_A_COMMAND: usize = 1 << 12;

/// A set in its own table.
pub struct NftSet {
    name: &'static str,
    table: &'static str,
}

impl NftSet {
    /// A hash table of addresses.
    ///
    /// # Errors
    /// nft is missing or fails.
    pub fn hash(name: &'static str, addresses: &[u32]) -> Result<Self, Failure> {
        NftSet::load(name, "weir_hash", "", addresses)
    }

    /// A set that could also contain ranges, which lists of prefixes require. nftables uses a red-black tree for it, or
    /// pipapo for several fields.
    ///
    /// # Errors
    /// nft is missing or fails.
    pub fn interval(name: &'static str, addresses: &[u32]) -> Result<Self, Failure> {
        NftSet::load(name, "weir_interval", "flags interval;", addresses)
    }

    fn load(name: &'static str, table: &'static str, flags: &str, addresses: &[u32]) -> Result<Self, Failure> {
        let set = format!("add table netdev {table}\nadd set netdev {table} bad {{ type ipv4_addr; {flags} }}\n");
        wire::call("nft", "-f -", &set)?;
        for part in addresses.chunks(ADDRESSES_A_RUN) {
            wire::call("nft", "-f -", &elements("netdev", table, part))?;
        }
        Ok(NftSet { name, table })
    }
}

impl Contender for NftSet {
    fn name(&self) -> &'static str {
        self.name
    }

    fn enter(&mut self, port: &Port) -> Result<(), Failure> {
        let NftSet { table, .. } = self;
        // The last rule counts the packets that are not in the set. There must be none.
        let chain = format!(
            "add chain netdev {table} judge {{ type filter hook ingress device {} priority 0; }}
             add rule netdev {table} judge ip saddr @bad drop
             add rule netdev {table} judge counter\n",
            port.name
        );
        wire::call("nft", "-f -", &chain).map(drop)
    }

    fn leave(&mut self) -> Result<u64, Failure> {
        let listed = wire::call("nft", &format!("-j list chain netdev {} judge", self.table), "")?;
        wire::call("nft", &format!("delete chain netdev {} judge", self.table), "")?;
        counted(&listed).ok_or_else(|| Failure::Runtime("nft -j list chain: the output has no counter".to_owned()))
    }
}

/// Commands that add addresses to the set `bad` of a table.
pub fn elements(family: &str, table: &str, addresses: &[u32]) -> String {
    let mut text = String::with_capacity(addresses.len() * 16);
    for part in addresses.chunks(ADDRESSES_A_COMMAND) {
        let _ = write!(text, "add element {family} {table} bad {{ ");
        for (index, &address) in part.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}{}", Ipv4Addr::from(address));
        }
        text += " }\n";
    }
    text
}

/// Packets of the first counter in a JSON listing.
fn counted(json: &str) -> Option<u64> {
    let listing: Value = serde_json::from_str(json).ok()?;
    let rules = listing["nftables"].as_array()?.iter().filter_map(|object| object["rule"]["expr"].as_array());
    rules.flatten().find_map(|expression| expression["counter"]["packets"].as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_added_in_parts() {
        assert_eq!(
            elements("netdev", "t", &[0x0102_0304, 0xff00_0001]),
            "add element netdev t bad { 1.2.3.4, 255.0.0.1 }\n"
        );
        let many: Vec<u32> = (0..ADDRESSES_A_COMMAND as u32 + 1).collect();
        let text = elements("netdev", "t", &many);
        assert_eq!(text.lines().count(), 2);
        assert_eq!(text.lines().last(), Some("add element netdev t bad { 0.0.16.0 }"));
    }

    #[test]
    fn the_counter_is_found_in_a_listing() {
        let listing = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "netdev", "table": "t", "name": "judge", "handle": 2}},
            {"rule": {"expr": [{"match": {"op": "==", "left": {}, "right": "@bad"}}, {"drop": null}]}},
            {"rule": {"expr": [{"counter": {"packets": 17, "bytes": 1020}}]}}]}"#;
        assert_eq!(counted(listing), Some(17));
        assert_eq!(counted("{\"nftables\": []}"), None);
        assert_eq!(counted("no JSON"), None);
    }
}
