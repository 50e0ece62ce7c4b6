//! MaxMind DB (format 2.0): a binary search tree over address bits. Its leaves point to records.
//!
//! This file walks the tree within a limit on steps, because a corrupt or hostile one can be a graph with too many
//! paths. The `maxminddb` crate decodes each record once, even if many networks share it. An IPv6 database has the IPv4
//! networks under ::/96 and, as aliases, under ::ffff:0:0/96, 2001::/32 and 2002::/16. An IPv6 table gets none of
//! these.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use maxminddb::{PathElement, Reader};
use serde::de::{Deserialize, Deserializer, Visitor};
use weir_abi::Family;

use super::error::ListError;
use super::format::Format;
use super::report::{ReadOptions, ReadReport};
use crate::entries::{Entries, Kind, Labels, TableAddress};
use crate::prefix::Prefix;
use crate::problem::{LABEL_BYTES_MAX, PREFIXES_MAX};

const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// The separator between the search tree and the data.
const SEPARATOR: [u8; 16] = [0; 16];
/// Maximum size of the metadata at the end of the file (format 2.0).
const METADATA_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of visited nodes and leaves. A city database has about ten million.
const STEPS_MAX: u64 = 1 << 26;
const IPV4_DEPTH: u8 = 96;

/// Whether the bytes contain MaxMind DB metadata near the end.
pub(crate) fn is_mmdb(bytes: &[u8]) -> bool {
    bytes[bytes.len().saturating_sub(METADATA_BYTES_MAX)..].windows(MARKER.len()).any(|window| window == MARKER)
}

/// Adds the networks of the table's family.
pub(crate) fn read(
    entries: &mut Entries,
    name: &str,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<ReadReport, ListError> {
    let result = match entries.family() {
        Family::Ipv4 => read_as::<u32>(entries, bytes, options, |bits| (bits >> 96) as u32),
        Family::Ipv6 => read_as::<u128>(entries, bytes, options, |bits| bits),
    };
    result.map_err(|problem| ListError::Database { name: name.to_owned(), problem })
}

fn read_as<A: TableAddress>(
    entries: &mut Entries,
    bytes: &[u8],
    options: &ReadOptions,
    addr: impl Fn(u128) -> A,
) -> Result<ReadReport, String> {
    let path = options.field_path.as_deref().map(parse_path).transpose()?;
    if entries.kind() == Kind::Labels && path.is_none() {
        return Err("a MaxMind DB needs a field path for the labels, such as `country.iso_code`".to_owned());
    }
    let reader = Reader::from_source(bytes).map_err(|error| error.to_string())?;
    let mut labeller =
        Labeller { reader: &reader, kind: entries.kind(), path, labels: Labels::default(), known: HashMap::new() };
    let mut report = ReadReport { format: Format::Mmdb, ..ReadReport::default() };
    let mut prefixes = Vec::new();
    let tree = Tree::new(&reader, bytes)?;
    tree.walk(A::FAMILY, |network| {
        report.lines += 1;
        match labeller.label(&network)? {
            Label::Known(label) => prefixes.push(Prefix::new(addr(network.bits), network.len, label)),
            Label::NoField => report.without_field += 1,
            Label::Empty => report.unlabelled.count += 1,
        }
        match entries.len() + prefixes.len() > PREFIXES_MAX {
            true => Err(format!("more than {PREFIXES_MAX} prefixes")),
            false => Ok(()),
        }
    })?;
    if prefixes.is_empty() && report.lines > 0 {
        let field = options.field_path.as_deref().unwrap_or_default();
        return Err(match report.unlabelled.count {
            0 => format!("no network has the field `{field}`"),
            _ => format!("the field `{field}` is empty in all networks that have it"),
        });
    }
    report.prefixes = prefixes.len() as u64;
    entries.absorb(prefixes, Vec::new(), &labeller.labels);
    Ok(report)
}

fn parse_path(path: &str) -> Result<Vec<PathElement<'_>>, String> {
    let element = |part| match str::parse(part) {
        _ if part.is_empty() => Err(format!("field path `{path}` has an empty part")),
        Ok(index) => Ok(PathElement::Index(index)),
        Err(_) => Ok(PathElement::Key(part)),
    };
    path.split('.').map(element).collect()
}

/// A network with data.
struct Network {
    /// Its address bits, with the first one highest, also for IPv4 networks.
    bits: u128,
    len: u8,
    /// The number of its record.
    record: u32,
    family: Family,
}

/// The search tree: `nodes` nodes of two records. A record is a node, `nodes` itself (no data), or a larger number (a
/// data record).
struct Tree<'a> {
    bytes: &'a [u8],
    nodes: u32,
    /// Size of the data section, which contains the records.
    data_bytes: usize,
    record_bits: u16,
    is_ipv6: bool,
}

impl<'a> Tree<'a> {
    fn new(reader: &Reader<&[u8]>, bytes: &'a [u8]) -> Result<Self, String> {
        let metadata = reader.metadata();
        let (nodes, record_bits) = (metadata.node_count, metadata.record_size);
        let data_start = (nodes as usize).saturating_mul(usize::from(record_bits) / 4).saturating_add(SEPARATOR.len());
        let data_end = bytes.windows(MARKER.len()).rposition(|window| window == MARKER).unwrap_or(0);
        let separator = bytes.get(data_start.saturating_sub(SEPARATOR.len())..data_start);
        if data_start > data_end || separator != Some(&SEPARATOR) {
            return Err("damaged: no data section follows the search tree".to_owned());
        }
        let is_ipv6 = metadata.ip_version == 6;
        Ok(Tree { bytes, nodes, data_bytes: data_end - data_start, record_bits, is_ipv6 })
    }

    /// The record of a node for the address bit `bit`.
    fn record(&self, node: u32, bit: usize) -> Option<u32> {
        let node_bytes = usize::from(self.record_bits) / 4;
        let start = (node as usize).checked_mul(node_bytes)?;
        let node = self.bytes.get(start..start.checked_add(node_bytes)?)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
        match (self.record_bits, bit) {
            (24, 0) => Some(number(&node[..3])),
            (24, _) => Some(number(&node[3..])),
            // The middle byte holds the high four bits of both records.
            (28, 0) => Some(u32::from(node[3] >> 4) << 24 | number(&node[..3])),
            (28, _) => Some(u32::from(node[3] & 15) << 24 | number(&node[4..])),
            (32, 0) => Some(number(&node[..4])),
            (32, _) => Some(number(&node[4..])),
            _ => None,
        }
    }

    /// The node at which IPv4 lookups start.
    fn ipv4_start(&self) -> Result<u32, String> {
        let mut node = 0;
        for _ in 0..if self.is_ipv6 { IPV4_DEPTH } else { 0 } {
            if node >= self.nodes {
                break;
            }
            node = self.record(node, 0).ok_or("search tree cut short")?;
        }
        Ok(node)
    }

    /// Calls `visit` for every network of the family that has data, in address order.
    fn walk(&self, family: Family, mut visit: impl FnMut(Network) -> Result<(), String>) -> Result<(), String> {
        let ipv4_start = self.ipv4_start()?;
        let (start, alias) = match family {
            Family::Ipv4 => (ipv4_start, None),
            Family::Ipv6 if !self.is_ipv6 => return Err("an IPv4 database for an IPv6 table".to_owned()),
            Family::Ipv6 => (0, Some(ipv4_start).filter(|&node| node < self.nodes)),
        };
        let mut steps = 0;
        let mut stack = vec![(start, 0u128, 0u8)];
        while let Some((node, bits, len)) = stack.pop() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err(format!("search tree of more than {STEPS_MAX} steps"));
            }
            if Some(node) == alias || node == self.nodes {
                continue;
            }
            if node > self.nodes {
                // Offsets behind the nodes include the separator.
                let offset = ((node - self.nodes) as usize).checked_sub(SEPARATOR.len());
                if offset.is_none_or(|offset| offset >= self.data_bytes) {
                    return Err("damaged: a record lies outside of the data section".to_owned());
                }
                visit(Network { bits, len, record: node, family })?;
                continue;
            }
            if len == family.bits() {
                return Err("search tree deeper than an address".to_owned());
            }
            let child = |bit| self.record(node, bit).ok_or("search tree cut short");
            stack.push((child(1)?, bits | 1 << (127 - len), len + 1));
            stack.push((child(0)?, bits, len + 1));
        }
        Ok(())
    }
}

/// Converts records to labels.
struct Labeller<'a> {
    reader: &'a Reader<&'a [u8]>,
    kind: Kind,
    path: Option<Vec<PathElement<'a>>>,
    labels: Labels,
    /// The label of each record seen.
    known: HashMap<u32, Label>,
}

/// The label of a network.
#[derive(Clone, Copy)]
enum Label {
    Known(u32),
    /// Its record lacks the field.
    NoField,
    /// The field is an empty string.
    Empty,
}

impl Labeller<'_> {
    fn label(&mut self, network: &Network) -> Result<Label, String> {
        let Some(path) = &self.path else { return Ok(Label::Known(1)) };
        if let Some(&label) = self.known.get(&network.record) {
            return Ok(label);
        }
        let addr = match network.family {
            Family::Ipv4 => IpAddr::V4(Ipv4Addr::from((network.bits >> 96) as u32)),
            Family::Ipv6 => IpAddr::V6(Ipv6Addr::from(network.bits)),
        };
        let broken = |error: maxminddb::MaxMindDbError| format!("record of {addr}/{}: {error}", network.len);
        let found = self.reader.lookup(addr).map_err(broken)?;
        let label = match found.decode_path::<Scalar>(path).map_err(broken)? {
            None => Label::NoField,
            Some(Scalar(text)) if text.is_empty() => Label::Empty,
            Some(_) if self.kind == Kind::Set => Label::Known(1),
            Some(Scalar(text)) if text.len() > LABEL_BYTES_MAX => {
                return Err(format!("record of {addr}/{}: label longer than {LABEL_BYTES_MAX} bytes", network.len));
            }
            Some(Scalar(text)) => Label::Known(self.labels.intern(&text)),
        };
        self.known.insert(network.record, label);
        Ok(label)
    }
}

/// A string, number or boolean as text.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsText;
        impl Visitor<'_> for AsText {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a truth value")
            }
            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.to_owned()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_u128<E>(self, value: u128) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
        }
        deserializer.deserialize_any(AsText)
    }
}
