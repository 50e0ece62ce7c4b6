//! Rulesets of the kinds that the paper measures: each tests one kind of metadata, or several together. The paper shows
//! the rules of one (Fig. 4); of the others it says what they are of.

use crate::data;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use weir::failure::Failure;
use weir_loading::{Policy, load};

/// The destination ports of packets.
pub const PORTS: [u16; 8] = [53, 80, 123, 161, 389, 443, 1900, 11211];

/// Whether rules only count, or some accept, too.
pub const ENDINGS: [&str; 2] = ["counting", "terminating"];

/// What a ruleset is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// O: ports. Metadata 3, or 4 where rules accept.
    Ports,
    /// P0: ports, and a field that the card does not compare. Metadata 2.
    PortsAndTtl,
    /// P1: lookups of the source. Metadata 1.
    Lookups,
    /// P2: lookups with ports in the same rule. Metadata 1 and 2.
    LookupsWithPorts,
    /// P1 and O: lookups in some rules, ports in others.
    LookupsAndPorts,
    /// The rules of Fig. 4.
    Realistic,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Kind::Ports, Kind::PortsAndTtl, Kind::Lookups, Kind::LookupsWithPorts, Kind::LookupsAndPorts, Kind::Realistic];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Ports => "ports",
            Kind::PortsAndTtl => "ports-and-ttl",
            Kind::Lookups => "lookups",
            Kind::LookupsWithPorts => "lookups-with-ports",
            Kind::LookupsAndPorts => "lookups-and-ports",
            Kind::Realistic => "realistic",
        }
    }

    /// The rules. `end` is what follows `counter`: nothing, or `accept`.
    fn rules(self, end: &str) -> String {
        let ports = |ports: &[u16]| -> String {
            ports.iter().map(|port| format!("  udp dport {port} counter {end}\n")).collect()
        };
        match self {
            Kind::Ports => ports(&PORTS),
            Kind::PortsAndTtl => {
                PORTS.iter().map(|port| format!("  udp dport {port} ip ttl > 32 counter {end}\n")).collect()
            }
            Kind::Lookups => format!(
                "  ip saddr @country {{ HR, SI, AT }} counter {end}\n  ip saddr @allow counter {end}\n  \
                 ip saddr @block counter {end}\n"
            ),
            Kind::LookupsWithPorts => format!(
                "  ip saddr @country {{ HR, SI, AT }} udp dport {{ 80, 443 }} counter {end}\n  \
                 ip saddr @allow udp dport 53 counter {end}\n  ip saddr @block udp dport {{ 123, 1900 }} counter {end}\n"
            ),
            Kind::LookupsAndPorts => {
                format!("{}{}", ports(&PORTS[..4]), Kind::Lookups.rules(end))
            }
            Kind::Realistic => format!(
                "  ip saddr @admin udp dport {{ 161, 443 }} counter {end}\n  ip daddr != @public counter {}\n  \
                 ip saddr @block counter {}\n  ip saddr @suspect counter\n  ip saddr @allow counter {end}\n  \
                 ip saddr @country {{ HR, SI, AT }} counter {end}\n  counter {end}\n",
                if end.is_empty() { "" } else { "drop" },
                if end.is_empty() { "" } else { "drop" },
            ),
        }
    }
}

/// The lists of tables.
pub struct Lists {
    pub country: PathBuf,
    pub allowed: Vec<u32>,
    pub blocked: Vec<u32>,
}

/// A ruleset in a file.
pub struct Ruleset {
    pub kind: Kind,
    pub ends: &'static str,
    path: PathBuf,
    _directory: TempDir,
}

impl Ruleset {
    /// Writes the policy and its lists.
    ///
    /// # Errors
    /// Files cannot be written.
    pub fn new(kind: Kind, ends: &'static str, lists: &Lists) -> Result<Self, Failure> {
        let directory =
            tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        write(&directory.path().join("allow.txt"), &data::list(&lists.allowed))?;
        write(&directory.path().join("block.txt"), &data::list(&lists.blocked))?;
        let text = format!(
            "table allow   {{ type ipv4; file \"allow.txt\" }}\ntable block   {{ type ipv4; file \"block.txt\" }}\n\
             table admin   {{ type ipv4; elements = {{ 198.51.100.0/24, 192.0.2.7 }} }}\n\
             table public  {{ type ipv4; elements = {{ 203.0.113.0/24, 10.1.0.0/16 }} }}\n\
             table suspect {{ type ipv4; elements = {{ 100.64.0.0/10, 5.0.0.0/8 }} }}\n\
             table country {{ type ipv4 : label; file \"{}\" }}\nupstream {{\n{}  accept\n}}\ndownstream {{ accept }}\n",
            lists.country.display(),
            kind.rules(if ends == "terminating" { "accept" } else { "" }),
        );
        let path = directory.path().join(format!("{}.weir", kind.name()));
        write(&path, &text)?;
        Ok(Ruleset { kind, ends, path, _directory: directory })
    }

    /// Loads the policy.
    ///
    /// # Errors
    /// The lists cannot be read.
    pub fn load(&self) -> Result<Policy, Failure> {
        Ok(load(&self.path)?)
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::file(path, error))
}
