//! The lists for scenarios: files of the data directory, or synthetic ones if a file does not exist. Each row names its
//! source.
//!
//! Synthetic lists are the same in every run on every machine. They are modelled on Table 1 of the RFPF paper
//! ([`shapes`]). Uniformly random addresses would be harder to look up than the addresses of any real list.

pub mod geo;
pub mod hosts;
pub mod keys;
pub mod shapes;

#[cfg(test)]
mod tests;

use geo::GeoShape;
use hosts::HostShape;
use std::collections::HashSet;
use std::fmt::{Display, Write};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use weir_abi::Family;
use weir_command::failure::Failure;
use weir_engine::traffic::SplitMix;
use weir_tables::{Entries, Kind, ReadOptions, Table};

/// A list with a stable name.
#[derive(Clone, Copy, Debug)]
pub struct Dataset {
    /// Its name in benchmark rows and of its file.
    pub name: &'static str,
    /// Extension of its file.
    extension: &'static str,
    /// Its address family.
    pub family: Family,
    kind: Kind,
    recipe: Recipe,
}

/// How a synthetic list is generated.
#[derive(Clone, Copy, Debug)]
enum Recipe {
    Hosts(&'static HostShape),
    /// A number of /64s and /128s.
    Hosts6(usize),
    Geo(&'static GeoShape),
    Reserved,
}

impl Dataset {
    /// The paper's blacklist_1.
    pub const BLOCK_178K: Dataset = Dataset::hosts("block-178k", &shapes::BLOCK_178K);
    /// The paper's blacklist_3.
    pub const BLOCK_1_1M: Dataset = Dataset::hosts("block-1.1m", &shapes::BLOCK_1_1M);
    /// A list of a size between the paper's whitelist_1 and whitelist_2.
    pub const ALLOW_100K: Dataset = Dataset::hosts("allow-100k", &shapes::ALLOW_100K);
    /// The paper's gl2_country.
    pub const COUNTRY: Dataset = Dataset::geo("country", Family::Ipv4, &shapes::COUNTRY);
    /// The paper's gl2_asn.
    pub const ASN: Dataset = Dataset::geo("asn", Family::Ipv4, &shapes::ASN);
    /// The paper's gl2_city.
    pub const CITY: Dataset = Dataset::geo("city", Family::Ipv4, &shapes::CITY);
    /// The reserved addresses of IANA.
    pub const PRIVATE: Dataset =
        Dataset { name: "private", extension: "txt", family: Family::Ipv4, kind: Kind::Set, recipe: Recipe::Reserved };
    /// Countries for IPv6, which the paper leaves out.
    pub const COUNTRY6: Dataset = Dataset::geo("country6", Family::Ipv6, &shapes::COUNTRY6);
    /// Autonomous systems for IPv6.
    pub const ASN6: Dataset = Dataset::geo("asn6", Family::Ipv6, &shapes::ASN6);

    /// An IPv6 block list with as many entries as the paper's blacklist_1.
    pub const BLOCK6_178K: Dataset = Dataset {
        name: "block6-178k",
        extension: "txt",
        family: Family::Ipv6,
        kind: Kind::Set,
        recipe: Recipe::Hosts6(177_935),
    };

    /// An IPv6 allow list with as many entries as the one of IPv4.
    pub const ALLOW6_100K: Dataset = Dataset {
        name: "allow6-100k",
        extension: "txt",
        family: Family::Ipv6,
        kind: Kind::Set,
        recipe: Recipe::Hosts6(100_000),
    };

    /// All lists.
    pub const ALL: [Dataset; 11] = [
        Dataset::BLOCK_178K,
        Dataset::BLOCK_1_1M,
        Dataset::ALLOW_100K,
        Dataset::COUNTRY,
        Dataset::ASN,
        Dataset::CITY,
        Dataset::PRIVATE,
        Dataset::COUNTRY6,
        Dataset::ASN6,
        Dataset::BLOCK6_178K,
        Dataset::ALLOW6_100K,
    ];

    const fn hosts(name: &'static str, shape: &'static HostShape) -> Self {
        Dataset { name, extension: "txt", family: Family::Ipv4, kind: Kind::Set, recipe: Recipe::Hosts(shape) }
    }

    const fn geo(name: &'static str, family: Family, shape: &'static GeoShape) -> Self {
        Dataset { name, extension: "csv", family, kind: Kind::Labels, recipe: Recipe::Geo(shape) }
    }

    /// The path of its file.
    pub fn path(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.{}", self.name, self.extension))
    }

    /// Loads the list from `directory`, or generates it if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a list.
    pub fn load(&self, directory: &Path) -> Result<Data, Failure> {
        self.load_part(directory, usize::MAX)
    }

    /// Loads the list like `load`. From a list with more than `prefixes_max` prefixes it keeps every nth prefix, and one of
    /// each label.
    ///
    /// # Errors
    /// The file cannot be read, or is not a list.
    pub fn load_part(&self, directory: &Path, prefixes_max: usize) -> Result<Data, Failure> {
        let path = self.path(directory);
        let mut entries = Entries::new(self.family, self.kind);
        let source = if path.exists() {
            let bytes = fs::read(&path).map_err(|error| Failure::file(&path, error))?;
            let name = path.display().to_string();
            let read = entries.read(&name, &bytes, &ReadOptions::default());
            read.map_err(|error| Failure::Rejected(format!("weir: {error}")))?;
            "file"
        } else {
            self.invent(&mut entries, prefixes_max);
            "synthetic"
        };
        Ok(Data { name: self.name.to_owned(), source, table: entries.settle() }.part(prefixes_max))
    }

    fn invent(&self, entries: &mut Entries, prefixes_max: usize) {
        match self.recipe {
            Recipe::Hosts(shape) => {
                for host in hosts::invent(shape, prefixes_max, &mut self.random()) {
                    insert(entries, Ipv4Addr::from(host).into(), 32, None);
                }
            }
            Recipe::Hosts6(count) => {
                for (addr, len) in hosts::invent6(count.min(prefixes_max), &mut self.random()) {
                    insert(entries, Ipv6Addr::from(addr).into(), len, None);
                }
            }
            Recipe::Geo(shape) => {
                let labels: Vec<String> = (1..=shape.labels).map(|label| label.to_string()).collect();
                geo::invent(shape, &mut self.random(), |addr, len, label| {
                    let address = match self.family {
                        Family::Ipv4 => Ipv4Addr::from(addr as u32).into(),
                        Family::Ipv6 => Ipv6Addr::from(u128::from(addr) << 64).into(),
                    };
                    insert(entries, address, len, Some(&labels[label as usize - 1]));
                });
            }
            Recipe::Reserved => {
                shapes::RESERVED
                    .into_iter()
                    .for_each(|(addr, len)| insert(entries, Ipv4Addr::from(addr).into(), len, None));
            }
        }
    }

    /// The random sequence of this list.
    fn random(&self) -> SplitMix {
        SplitMix::new(self.name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(byte.into())))
    }
}

fn insert(entries: &mut Entries, addr: IpAddr, len: u8, label: Option<&str>) {
    entries.insert_prefix(addr, len, label).expect("what is made up is valid");
}

/// A list file with the addresses.
pub fn list(addresses: &[u32]) -> String {
    addresses.iter().fold(String::new(), |mut text, &address| {
        let _ = writeln!(text, "{}", Ipv4Addr::from(address));
        text
    })
}

/// A list as a table.
#[derive(Debug)]
pub struct Data {
    /// The name of the list or of the file.
    pub name: String,
    /// `file` or `synthetic`.
    pub source: &'static str,
    /// The entries.
    pub table: Table,
}

impl Data {
    /// Reads a list of any name. It has labels unless the extension is `txt`, and is for IPv6 if the name says so.
    ///
    /// # Errors
    /// The file cannot be read, or is not a list.
    pub fn read(name: &str, path: &Path) -> Result<Self, Failure> {
        let is_ending = |ending: &str| path.extension().is_some_and(|extension| extension == ending);
        let is_ipv6 = name.contains("ipv6") || name.ends_with('6');
        let family = if is_ipv6 { Family::Ipv6 } else { Family::Ipv4 };
        let mut entries = Entries::new(family, if is_ending("txt") { Kind::Set } else { Kind::Labels });
        let bytes = fs::read(path).map_err(|error| Failure::file(path, error))?;
        let options = match is_ending("mmdb") {
            true => ReadOptions { field_path: Some("city".to_owned()), lenient: true, ..ReadOptions::default() },
            false => ReadOptions::default(),
        };
        let read = entries.read(&path.display().to_string(), &bytes, &options);
        read.map_err(|error| Failure::Rejected(format!("weir: {error}")))?;
        Ok(Data { name: name.to_owned(), source: "file", table: entries.settle() })
    }

    /// A synthetic set of `count` prefixes of a length, some of them neighbours. It is for IPv6 if the name ends with
    /// 6.
    pub fn small(name: &str, count: usize, length: u8) -> Self {
        let family = if name.ends_with('6') { Family::Ipv6 } else { Family::Ipv4 };
        let mut entries = Entries::new(family, Kind::Set);
        let mut random = SplitMix::new(7);
        for _ in 0..count {
            let drawn = random.draw();
            let address = match family {
                Family::Ipv4 => Ipv4Addr::from(drawn as u32).into(),
                // Addresses in 2001:db0::/28: 16 allocations with many networks each.
                Family::Ipv6 => Ipv6Addr::from(0x2001_0db0 << 96 | u128::from(drawn) << 36 | u128::from(drawn)).into(),
            };
            insert(&mut entries, address, length, None);
        }
        Data { name: name.to_owned(), source: "synthetic", table: entries.settle() }
    }

    /// A part of the list with about `prefixes_max` prefixes, and one of each label. All of it, if it is no longer.
    pub fn part(self, prefixes_max: usize) -> Self {
        let step = self.table.facts().entries.div_ceil(prefixes_max);
        if step <= 1 {
            return self;
        }
        let Data { name, source, table } = self;
        let mut entries = Entries::new(table.family(), table.kind());
        let mut known = HashSet::new();
        let mut is_kept = |at: usize, label: u32| known.insert(label) || at.is_multiple_of(step);
        let label_of = |label: u32| table.labels().get(label as usize - 1).map(AsRef::as_ref);
        for (at, prefix) in table.prefixes4().iter().enumerate() {
            if is_kept(at, prefix.label) {
                insert(&mut entries, Ipv4Addr::from(prefix.addr).into(), prefix.len, label_of(prefix.label));
            }
        }
        for (at, prefix) in table.prefixes6().iter().enumerate() {
            if is_kept(at, prefix.label) {
                insert(&mut entries, Ipv6Addr::from(prefix.addr).into(), prefix.len, label_of(prefix.label));
            }
        }
        Data { name, source, table: entries.settle() }
    }

    /// The prefixes as a list file, with their labels if they have any.
    pub fn text(&self) -> String {
        let line = |prefix: &dyn Display, label: u32| match self.table.labels().get(label as usize - 1) {
            Some(label) => format!("{prefix},{label}\n"),
            None => format!("{prefix}\n"),
        };
        let of4 = self.table.prefixes4().iter().map(|prefix| line(prefix, prefix.label));
        of4.chain(self.table.prefixes6().iter().map(|prefix| line(prefix, prefix.label))).collect()
    }

    /// First address of each IPv4 prefix, sorted.
    pub fn addresses(&self) -> Vec<u32> {
        self.table.prefixes4().iter().map(|prefix| prefix.addr).collect()
    }
}
