//! Correct lists of every format, small enough to be truncated after every byte.

use crate::count::{self, Columns};
use crate::damage::Damaged;
use std::path::Path;

/// A correct list.
pub struct Seed {
    pub name: &'static str,
    /// File name in the policy.
    pub file: &'static str,
    /// The type of the table; `limits` for a list of limits.
    pub kind: &'static str,
    pub field: Option<&'static str>,
    pub columns: Columns,
    pub content: Content,
}

/// The content of a seed.
pub enum Content {
    Text(&'static str),
    /// A file below the repository's root, and its number of entries.
    File(&'static str, u64),
}

impl Seed {
    const fn text(name: &'static str, file: &'static str, kind: &'static str, text: &'static str) -> Self {
        Seed { name, file, kind, field: None, columns: Columns::Single, content: Content::Text(text) }
    }

    const fn ranges(name: &'static str, file: &'static str, kind: &'static str, text: &'static str) -> Self {
        Seed { columns: Columns::StartEnd, ..Seed::text(name, file, kind, text) }
    }

    const fn database(
        name: &'static str,
        file: &'static str,
        kind: &'static str,
        path: &'static str,
        entries: u64,
    ) -> Self {
        let content = Content::File(path, entries);
        Seed { name, file, kind, field: Some("country.iso_code"), columns: Columns::Single, content }
    }

    pub fn bytes(&self) -> Vec<u8> {
        match &self.content {
            Content::Text(text) => text.as_bytes().to_vec(),
            Content::File(path, _) => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
                std::fs::read(root.join(path)).expect("the seed is there")
            }
        }
    }

    /// The number of entries that a person would count in a damaged list.
    pub fn count(&self, damaged: &Damaged) -> u64 {
        match self.content {
            Content::Text(_) => count::entries(&damaged.text, self.columns),
            Content::File(_, entries) => entries,
        }
    }
}

pub const SEEDS: &[Seed] = &[
    Seed::text("addresses", "list.txt", "ipv4", "198.51.100.7\n203.0.113.9\n192.0.2.33\n10.20.30.40\n172.16.5.6\n"),
    Seed::text(
        "netset",
        "list.netset",
        "ipv4",
        "# Bad sources\n#\n# Made today: 5 entries\n198.51.100.0/25\n203.0.113.9\n10.0.0.1-10.0.0.9\n\n192.0.2.16/28\n10.20.0.0 - 10.20.0.255\n",
    ),
    Seed::text(
        "counts",
        "list.txt",
        "ipv4",
        "# ip count\n198.51.100.7\t12\n203.0.113.9\t7\n192.0.2.33\t7\n10.20.30.40\t3\n",
    ),
    Seed::text(
        "drop",
        "drop.txt",
        "ipv4",
        "; Spamhaus DROP\n; Expires: Sun\n198.51.100.0/24 ; SBL1\n203.0.113.0/26 ; SBL22\n192.0.2.0/28 ; SBL333\n",
    ),
    Seed::text(
        "addresses6",
        "list6.txt",
        "ipv6",
        "# v6\n2001:db8::1\n2001:db8:1::/48\n2001:db8:2::1-2001:db8:2::7\n2001:db8:3:4:5:6:7:8\n",
    ),
    Seed::text("plain csv", "set.csv", "ipv4", "198.51.100.7\n203.0.113.0/24\n192.0.2.33\n10.20.30.40\n"),
    Seed::text(
        "csv set",
        "set.csv",
        "ipv4",
        "network,seen,by\n198.51.100.0/24,12,a\n203.0.113.9,7,b\n192.0.2.0/28,7,c\n10.20.30.0/24,1,d\n",
    ),
    Seed::ranges(
        "csv range set",
        "set.csv",
        "ipv4",
        "198.51.100.0,198.51.100.9,x\n203.0.113.0,203.0.113.255,y\n192.0.2.33,192.0.2.33,z\n",
    ),
    Seed::ranges(
        "geo",
        "geo.csv",
        "ipv4 : label",
        "start_ip,end_ip,country\n198.51.100.0,198.51.100.255,HR\n203.0.113.0,203.0.113.127,SI\n203.0.113.128,203.0.114.7,\"AT\"\n192.0.2.0,192.0.2.15,DE\n",
    ),
    Seed::text(
        "labels",
        "as.csv",
        "ipv4 : label",
        "network,asn\n198.51.100.0/24,AS64500\n203.0.113.0/25,\"AS64501, Inc\"\n192.0.2.33,AS64502\n",
    ),
    Seed::ranges(
        "geo6",
        "geo6",
        "ipv6 : label",
        "2001:db8::,2001:db8::ffff,HR\n2001:db8:1::,2001:db8:1:ffff:ffff:ffff:ffff:ffff,SI\n2001:db8:5::1,2001:db8:5::7,AT\n",
    ),
    Seed::text(
        "ipset",
        "bad.ipset",
        "ipv4",
        "create bad hash:net family inet hashsize 1024 maxelem 65536\nadd bad 198.51.100.0/25\nadd bad 203.0.113.9 comment \"x y\"\nadd bad 192.0.2.1-192.0.2.6\n",
    ),
    Seed::text(
        "ipset6",
        "bad6",
        "ipv6",
        "create bad6 hash:ip family inet6 hashsize 1024\nadd bad6 2001:db8::1\nadd bad6 2001:db8::2\nadd bad6 2001:db8::9\n",
    ),
    Seed::text(
        "limits",
        "limits.csv",
        "limits",
        "prefix,rate,burst\n198.51.100.0/24,20kpps,100\n203.0.113.9,10mbit,64kbytes\n2001:db8::/32,400/minute,50 # office\n192.0.2.0/28,500,90\n",
    ),
    Seed::text(
        "simple limits",
        "limits.txt",
        "limits",
        "198.51.100.0/24,20kpps\n203.0.113.0/25,10mbit\n192.0.2.0/28,500\n",
    ),
    Seed::database("database", "geo.mmdb", "ipv4 : label", "fuzz/seeds/list_mmdb/ipv4", 2),
    Seed { field: None, ..Seed::database("database set", "geo", "ipv4", "fuzz/seeds/list_mmdb/ipv4", 2) },
    Seed::database("database6", "geo6.mmdb", "ipv6 : label", "fuzz/seeds/list_mmdb/ipv6", 1),
];
