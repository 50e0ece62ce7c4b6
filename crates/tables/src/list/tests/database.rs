//! Tests MaxMind DB files, which a writer here produces: valid, corrupt and hostile ones.

use super::*;

/// Writes databases. The tree is built from (address bits from the top, length, record).
#[derive(Default)]
struct Database {
    nodes: Vec<[u64; 2]>,
    data: Vec<u8>,
}

/// A tree record that is not final yet: no data, or data at an offset.
const NOTHING: u64 = u64::MAX;
const DATA: u64 = 1 << 40;

impl Database {
    fn new() -> Self {
        Database { nodes: vec![[NOTHING; 2]], data: Vec::new() }
    }

    fn add(&mut self, bits: u128, len: u8, data: usize) {
        let mut node = 0;
        for depth in 0..len {
            let bit = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == len {
                self.nodes[node][bit] = DATA + data as u64;
            } else if self.nodes[node][bit] >= DATA {
                self.nodes.push([self.nodes[node][bit]; 2]);
                self.nodes[node][bit] = self.nodes.len() as u64 - 1;
            }
            node = self.nodes[node][bit] as usize;
        }
    }

    /// Appends a record, a map inside a map, and returns its offset.
    fn record(&mut self, outer: &str, inner: &str, value: &[u8]) -> usize {
        let offset = self.data.len();
        self.data.extend([&map(1), &text(outer)[..], &map(1), &text(inner), value].concat());
        offset
    }

    fn write(&self, record_size: u16, ip_version: u16) -> Vec<u8> {
        let nodes = self.nodes.len() as u64;
        let number = |record: u64| match record {
            NOTHING => nodes as u32,
            data if data >= DATA => (nodes + 16 + data - DATA) as u32,
            node => node as u32,
        };
        let mut bytes = Vec::new();
        for &[left, right] in &self.nodes {
            let (left, right) = (number(left).to_be_bytes(), number(right).to_be_bytes());
            match record_size {
                24 => bytes.extend([&left[1..], &right[1..]].concat()),
                28 => bytes.extend([&left[1..], &[left[0] << 4 | right[0]], &right[1..]].concat()),
                _ => bytes.extend([left, right].concat()),
            }
        }
        bytes.extend([0; 16]);
        bytes.extend(&self.data);
        bytes.extend(b"\xab\xcd\xefMaxMind.com");
        bytes.extend(map(9));
        bytes.extend([text("node_count"), uint32(nodes as u32)].concat());
        let fields = [("record_size", record_size), ("ip_version", ip_version)];
        fields.iter().for_each(|&(name, value)| bytes.extend([text(name), uint16(value)].concat()));
        bytes.extend([text("binary_format_major_version"), uint16(2)].concat());
        bytes.extend([text("binary_format_minor_version"), uint16(0)].concat());
        bytes.extend([&text("build_epoch")[..], b"\x01\x02\x05"].concat());
        bytes.extend([text("database_type"), text("Test")].concat());
        bytes.extend([text("description"), map(0).to_vec()].concat());
        bytes.extend([&text("languages")[..], b"\x00\x04"].concat());
        bytes
    }
}

fn map(fields: u8) -> [u8; 1] {
    [7 << 5 | fields]
}

fn text(text: &str) -> Vec<u8> {
    [&[2 << 5 | text.len() as u8], text.as_bytes()].concat()
}

fn uint16(value: u16) -> Vec<u8> {
    [&[5 << 5 | 2], &value.to_be_bytes()[..]].concat()
}

fn uint32(value: u32) -> Vec<u8> {
    [&[6 << 5 | 4], &value.to_be_bytes()[..]].concat()
}

fn sample() -> Database {
    let mut database = Database::new();
    let au = database.record("country", "iso_code", &text("AU"));
    let hr = database.record("country", "iso_code", &text("HR"));
    let none = database.record("continent", "code", &text("EU"));
    let number = database.record("country", "iso_code", &uint16(191));
    database.add(0x0100_0000 << 96, 24, au);
    database.add(0x0100_0100 << 96, 24, hr);
    database.add(0x0200_0000 << 96, 8, none);
    database.add(0x0300_0000 << 96, 32, number);
    database
}

fn with_path(path: &str) -> ReadOptions {
    ReadOptions { field_path: Some(path.to_owned()), ..ReadOptions::default() }
}

fn labels(bytes: &[u8], path: &str) -> Result<Vec<String>, String> {
    let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
    entries.read("c.mmdb", bytes, &with_path(path)).map_err(|error| error.to_string())?;
    Ok(shown4(entries))
}

#[test]
fn labels_stand_at_the_field_path() {
    for record_size in [24, 28, 32] {
        let bytes = sample().write(record_size, 4);
        assert_eq!(Format::detect("renamed", &bytes), Format::Mmdb);
        assert_eq!(labels(&bytes, "country.iso_code").unwrap(), ["1.0.0.0/24 AU", "1.0.1.0/24 HR", "3.0.0.0/32 191"]);
        assert_eq!(labels(&bytes, "continent.code").unwrap(), ["2.0.0.0/8 EU"]);
    }
}

#[test]
fn sets_take_networks_with_data_or_with_the_field() {
    let bytes = sample().write(24, 4);
    let read = |options: &ReadOptions| {
        let mut entries = Entries::new(Family::Ipv4, Kind::Set);
        let report = entries.read("c", &bytes, options).unwrap();
        (report.lines, report.prefixes)
    };
    assert_eq!(read(&ReadOptions::default()), (4, 4));
    assert_eq!(read(&with_path("country.iso_code")), (4, 3));
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    assert_eq!(entries.read("c", &bytes, &with_path("country.iso_code")).unwrap().without_field, 1);
}

/// As in other formats, an empty label is left out and counted.
#[test]
fn an_empty_field_is_no_label() {
    let mut database = sample();
    let empty = database.record("country", "iso_code", &text(""));
    database.add(0x0400_0000 << 96, 8, empty);
    let bytes = database.write(24, 4);
    for (kind, prefixes) in [(Kind::Labels, 3), (Kind::Set, 3)] {
        let report = Entries::new(Family::Ipv4, kind).read("c", &bytes, &with_path("country.iso_code")).unwrap();
        assert_eq!((report.prefixes, report.without_field, report.unlabelled.count), (prefixes, 1, 1));
    }
    let mut database = Database::new();
    let empty = database.record("country", "iso_code", &text(""));
    database.add(0x0400_0000 << 96, 8, empty);
    let said = "c.mmdb: the field `country.iso_code` is empty in all networks that have it";
    assert_eq!(labels(&database.write(24, 4), "country.iso_code").unwrap_err(), said);
}

#[test]
fn an_ipv6_database_serves_both_families() {
    let mut database = Database::new();
    let au = database.record("country", "iso_code", &text("AU"));
    let hr = database.record("country", "iso_code", &text("HR"));
    database.add(0x0102_0000, 112, au);
    database.add(0x2001_0db8 << 96, 32, hr);
    // The IPv4 networks again, as an alias under 2002::/16.
    database.add(0x2002 << 112, 16, 0);
    let mut ipv4 = 0;
    (0..96).for_each(|_| ipv4 = database.nodes[ipv4][0] as usize);
    let mut parent = 0;
    (0..15).for_each(|depth| parent = database.nodes[parent][0x2002 >> (15 - depth) & 1] as usize);
    database.nodes[parent][0] = ipv4 as u64;
    let bytes = database.write(24, 6);
    assert_eq!(labels(&bytes, "country.iso_code").unwrap(), ["1.2.0.0/16 AU"]);
    let mut entries = Entries::new(Family::Ipv6, Kind::Labels);
    entries.read("c", &bytes, &with_path("country.iso_code")).unwrap();
    let table = entries.settle();
    assert_eq!(table.prefixes6().iter().map(Prefix6::to_string).collect::<Vec<_>>(), ["2001:db8::/32"]);
}

#[test]
fn what_a_database_lacks_is_named() {
    let bytes = sample().write(24, 4);
    assert_eq!(labels(&bytes, "contry.iso_code").unwrap_err(), "c.mmdb: no network has the field `contry.iso_code`");
    assert_eq!(labels(&bytes, "country.").unwrap_err(), "c.mmdb: field path `country.` has an empty part");
    let broken = labels(&bytes, "country").unwrap_err();
    assert!(broken.starts_with("c.mmdb: record of 1.0.0.0/24: "), "{broken}");
    let error = Entries::new(Family::Ipv4, Kind::Labels).read("c", &bytes, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "c: a MaxMind DB needs a field path for the labels, such as `country.iso_code`");
    let error = Entries::new(Family::Ipv6, Kind::Set).read("c", &bytes, &ReadOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "c: an IPv4 database for an IPv6 table");
    assert!(labels(b"", "x").unwrap_err().starts_with("c.mmdb: "));
}

/// A set does not read the records, but refuses them too.
#[test]
fn a_database_with_a_hole_is_refused() {
    let whole = sample().write(24, 4);
    let read = |bytes: &[u8]| {
        let read = Entries::new(Family::Ipv4, Kind::Set).read("c", bytes, &ReadOptions::default());
        read.map_err(|error| error.to_string())
    };
    assert_eq!(read(&whole).unwrap().without_field, 0);
    let data = sample().nodes.len() * 6;
    let without = |from: usize, to: usize| [&whole[..from], &whole[to..]].concat();
    assert_eq!(read(&without(6, 30)).unwrap_err(), "c: damaged: no data section follows the search tree");
    let marker = whole.windows(14).position(|window| window == b"\xab\xcd\xefMaxMind.com").unwrap();
    assert_eq!(read(&without(data + 20, marker)).unwrap_err(), "c: damaged: a record lies outside of the data section");
}

#[test]
fn a_tree_with_more_paths_than_time_is_refused() {
    // Both children of each node are the next node: 2^128 paths in 128 nodes, and none has data.
    let mut database = Database::new();
    database.nodes = (1..=128).map(|next| [if next < 128 { next } else { NOTHING }; 2]).collect();
    database.data = vec![0];
    let error = Entries::new(Family::Ipv6, Kind::Set).read("c", &database.write(24, 6), &ReadOptions::default());
    assert_eq!(error.unwrap_err().to_string(), "c: search tree of more than 67108864 steps");
    database.nodes = vec![[0; 2]];
    let error = Entries::new(Family::Ipv4, Kind::Set).read("c", &database.write(24, 4), &ReadOptions::default());
    assert_eq!(error.unwrap_err().to_string(), "c: search tree deeper than an address");
}

proptest! {
    #[test]
    fn no_database_panics(at in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6), cut: bool) {
        for ip_version in [4, 6] {
            let mut bytes = sample().write(24, ip_version);
            for (index, value) in &at {
                let index = index.index(bytes.len());
                bytes[index] = *value;
            }
            if cut {
                bytes.truncate(at[0].0.index(bytes.len()));
            }
            for family in [Family::Ipv4, Family::Ipv6] {
                let _ = Entries::new(family, Kind::Labels).read("c.mmdb", &bytes, &with_path("country.iso_code"));
                let _ = Entries::new(family, Kind::Set).read("c.mmdb", &bytes, &ReadOptions::default());
            }
        }
    }
}
