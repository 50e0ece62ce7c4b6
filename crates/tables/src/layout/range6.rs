//! Range6: IPv6 prefixes to labels. A trie leads the key to a short block of sorted ranges, and a binary search finds
//! the range.
//!
//! The key's bits 127..112 index the root, and eight bits each index the nodes below it, down to /48. A part of the
//! address space with at most `BLOCK_RANGES` ranges is not divided further. Real tables are dense in a few allocations
//! (2001::/16, 2400::/12, 2a00::/12, ...) and empty elsewhere, so a larger direct table would be mostly empty.
//!
//! ```text
//! root    2^16 entries, at byte 64; nodes of 256 entries, at byte 262208
//!          31 30 29   24 23               0
//!         +-----+-------+------------------+   kind 0: a hit, value is the label
//!         |kind | count |      value       |   kind 1: value is a node
//!         +-----+-------+------------------+   kind 2: starts and labels [value..value + count];
//!                                                      count 0: [value] is the head, the block follows
//! starts  16 bytes a range: high, then low 64 bits of its first address; the first of a block is never compared.
//!         In a head the low 64 bits are the number of ranges that follow.
//! labels  32 bits a range; 0 in a head.
//! ```
//! Example: a set of 2001:db8::/32 alone. `root[0x2001]` is `2 << 30 | 3 << 24 | 0`; starts are 2001::, 2001:db8:: and
//! 2001:db9::, labels 0, 1, 0. There is no node.

use std::cell::RefCell;

use weir_abi::Layout;

use crate::flatten::{Range, flatten};
use crate::image::{BuildError, HEADER_BYTES, Header, Image, ImageError, LABELS_MAX, Section, Writer};
use crate::prefix::{Address, Prefix6};
use crate::trace::Trace;

const ROOT_BITS: u8 = 16;
const ROOT_ENTRIES: usize = 1 << ROOT_BITS;
const NODE_BITS: u8 = 8;
const NODE_ENTRIES: usize = 1 << NODE_BITS;
/// Nodes divide the address space down to this prefix length.
const NODES_TO: u8 = 48;
/// Larger blocks are divided if possible.
const BLOCK_RANGES: usize = 48;

const VALUE_BITS: u32 = 24;
const VALUE_MASK: u32 = (1 << VALUE_BITS) - 1;
const VALUES: usize = 1 << VALUE_BITS;
const COUNT_MASK: u32 = 63;
const KIND_SHIFT: u32 = 30;
const KIND_HIT: u32 = 0;
const KIND_NODE: u32 = 1;
const KIND_BLOCK: u32 = 2;

const ROOT_OFFSET: usize = HEADER_BYTES;
const NODES_OFFSET: usize = ROOT_OFFSET + ROOT_ENTRIES * 4;

const _: () = assert!(NODES_OFFSET == 262_208);
const _: () = assert!(LABELS_MAX <= 1 << VALUE_BITS);

pub(crate) const SECTIONS: [&str; 4] = ["root", "nodes", "starts", "labels"];

/// Builds the image of prefixes, sorted by [`Address::order`], with labels `1..=labels`.
pub(crate) fn build(prefixes: &[Prefix6], labels: u32) -> Result<Image, BuildError> {
    let layout = Layout::Range6;
    if labels >= LABELS_MAX {
        return Err(BuildError::Limit { layout, what: "labels", max: LABELS_MAX as usize - 1 });
    }
    let mut builder = Builder::default();
    let mut root = vec![0; ROOT_ENTRIES];
    let mut rest = Part { ranges: &flatten(prefixes), label: 0, first: 0, bits: 0 };
    for (index, entry) in root.iter_mut().enumerate() {
        *entry = builder.entry(rest.take_child(index, ROOT_BITS))?;
    }
    let sections = [
        Section::U32(&root),
        Section::U32(&builder.nodes),
        Section::U128(&builder.starts),
        Section::U32(&builder.labels),
    ];
    Writer { layout, entries: prefixes.len(), labels }.write(&sections, &[])
}

/// The part of the address space under a prefix: `label` from `first` on, then the labels of `ranges`.
#[derive(Clone, Copy)]
struct Part<'a> {
    first: u128,
    bits: u8,
    label: u32,
    ranges: &'a [Range<u128>],
}

impl<'a> Part<'a> {
    /// Splits off child `index`, the lowest that is left, of the children with `bits` more bits.
    fn take_child(&mut self, index: usize, bits: u8) -> Part<'a> {
        let child_bits = self.bits + bits;
        let first = self.first | (index as u128) << (u128::BITS - u32::from(child_bits));
        let last = first.with(u128::host_mask(child_bits));
        let (mut ranges, rest) = self.ranges.split_at(self.ranges.partition_point(|range| range.start <= last));
        let mut label = self.label;
        if let [range, others @ ..] = ranges
            && range.start == first
        {
            (label, ranges) = (range.label, others);
        }
        self.ranges = rest;
        self.label = ranges.last().map_or(label, |range| range.label);
        Part { first, bits: child_bits, label, ranges }
    }
}

#[derive(Default)]
struct Builder {
    nodes: Vec<u32>,
    starts: Vec<u128>,
    labels: Vec<u32>,
}

impl Builder {
    fn entry(&mut self, part: Part<'_>) -> Result<u32, BuildError> {
        match part.ranges.len() + 1 {
            1 => Ok(KIND_HIT << KIND_SHIFT | part.label),
            count if count > BLOCK_RANGES && part.bits < NODES_TO => self.node(part),
            count => self.block(part, count),
        }
    }

    /// Adds a node and its descendants. The recursion depth is at most four.
    fn node(&mut self, mut part: Part<'_>) -> Result<u32, BuildError> {
        let start = self.nodes.len();
        let node = start / NODE_ENTRIES;
        if node >= VALUES {
            return Err(BuildError::Limit { layout: Layout::Range6, what: "nodes", max: VALUES });
        }
        self.nodes.resize(start + NODE_ENTRIES, 0);
        for index in 0..NODE_ENTRIES {
            self.nodes[start + index] = self.entry(part.take_child(index, NODE_BITS))?;
        }
        Ok(KIND_NODE << KIND_SHIFT | node as u32)
    }

    fn block(&mut self, part: Part<'_>, count: usize) -> Result<u32, BuildError> {
        let base = self.starts.len();
        if base + 1 + count > VALUES {
            return Err(BuildError::Limit { layout: Layout::Range6, what: "ranges", max: VALUES });
        }
        let count_field = if count <= COUNT_MASK as usize {
            count as u32
        } else {
            self.push(count as u128, 0);
            0
        };
        self.push(part.first, part.label);
        part.ranges.iter().for_each(|range| self.push(range.start, range.label));
        Ok(KIND_BLOCK << KIND_SHIFT | count_field << VALUE_BITS | base as u32)
    }

    fn push(&mut self, start: u128, label: u32) {
        self.starts.push(start);
        self.labels.push(label);
    }
}

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    root: &'a [[u8; 4]],
    nodes: &'a [[u8; 4]],
    starts: &'a [[u8; 16]],
    labels: &'a [[u8; 4]],
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let view = View {
            root: header.section_at(image, 0, "root", ROOT_OFFSET)?,
            nodes: header.section_at(image, 1, "nodes", NODES_OFFSET)?,
            starts: header.section(image, 2, "starts")?,
            labels: header.section(image, 3, "labels")?,
        };
        if view.root.len() != ROOT_ENTRIES {
            return Err(header.corrupt("root", "section size"));
        }
        if !view.nodes.len().is_multiple_of(NODE_ENTRIES) {
            return Err(header.corrupt("nodes", "section size"));
        }
        if view.starts.len() != view.labels.len() || view.starts.len() > VALUES {
            return Err(header.corrupt("labels", "section size"));
        }
        Ok(view)
    }

    /// Checks every index and label in the sections.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        if self.labels.iter().any(|&label| u32::from_le_bytes(label) > header.labels) {
            return Err(header.corrupt("labels", "label"));
        }
        for (name, entries) in [("root", self.root), ("nodes", self.nodes)] {
            for &entry in entries {
                let entry = u32::from_le_bytes(entry);
                self.check_entry(entry, header.labels).map_err(|what| header.corrupt(name, what))?;
            }
        }
        Ok(())
    }

    fn check_entry(&self, entry: u32, labels: u32) -> Result<(), &'static str> {
        let value = (entry & VALUE_MASK) as usize;
        match entry >> KIND_SHIFT {
            // C returns the whole entry of a hit, so its count bits must be 0.
            KIND_HIT if entry <= labels => Ok(()),
            KIND_HIT => Err("label"),
            KIND_NODE if value < self.nodes.len() / NODE_ENTRIES => Ok(()),
            KIND_NODE => Err("node number"),
            KIND_BLOCK => self.block(entry).map(|_| ()).ok_or("range block"),
            _ => Err("entry kind"),
        }
    }

    /// Start and number of a block's ranges, if they are in bounds.
    fn block(&self, entry: u32) -> Option<(usize, usize)> {
        let base = (entry & VALUE_MASK) as usize;
        let (base, count) = match entry >> VALUE_BITS & COUNT_MASK {
            0 => (base + 1, self.start(base)? as u64 as usize),
            count => (base, count as usize),
        };
        (count > 0 && base.checked_add(count)? <= self.starts.len()).then_some((base, count))
    }

    fn start(&self, index: usize) -> Option<u128> {
        self.starts.get(index).map(|&start| u128::from_le_bytes(start).rotate_left(64))
    }

    /// The label of `addr`, or 0.
    pub fn find(&self, addr: u128) -> u32 {
        self.follow(addr, |_| {}, |_| {})
    }

    /// Records what a lookup reads.
    pub fn trace(&self, addr: u128, trace: &mut Trace) {
        let trace = RefCell::new(trace);
        self.follow(addr, |word| trace.borrow_mut().word(word), |start| trace.borrow_mut().word(start));
    }

    /// The label of `addr`. Calls `word` and `start` with each table word and each range start on the way.
    #[inline]
    fn follow(&self, addr: u128, word: impl Fn(&[u8; 4]), start: impl Fn(&[u8; 16])) -> u32 {
        let read = |cell: &[u8; 4]| {
            word(cell);
            u32::from_le_bytes(*cell)
        };
        let mut entry = read(&self.root[(addr >> (u128::BITS - u32::from(ROOT_BITS))) as usize]);
        let mut shift = u128::BITS - u32::from(ROOT_BITS);
        // A hostile image may chain more nodes than the builder does. The lookup does not follow them.
        while entry >> KIND_SHIFT == KIND_NODE && shift > u128::BITS - u32::from(NODES_TO) {
            shift -= u32::from(NODE_BITS);
            let index = (addr >> shift) as usize % NODE_ENTRIES;
            entry = read(&self.nodes[(entry & VALUE_MASK) as usize * NODE_ENTRIES + index]);
        }
        if entry >> KIND_SHIFT == KIND_HIT {
            return entry;
        }
        let Some((base, count)) = self.block(entry).filter(|_| entry >> KIND_SHIFT == KIND_BLOCK) else { return 0 };
        let mut block = base..base + count;
        while block.len() > 1 {
            let half = block.len() / 2;
            self.starts.get(block.start + half).into_iter().for_each(&start);
            match self.start(block.start + half).is_some_and(|start| start <= addr) {
                true => block.start += half,
                // The number of steps equals the steps of the C lookup, whose loop does not depend on the data.
                false => block.end -= half,
            }
        }
        read(&self.labels[block.start])
    }
}
