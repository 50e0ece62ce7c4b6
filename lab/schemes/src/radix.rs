//! Radix: a path-compressed binary trie, the reference for the other schemes. It follows Sklower, "A tree-based packet
//! routing table for Berkeley Unix" (USENIX Winter 1991). Unlike there, the trie is one array and each node has its
//! whole prefix. A lookup stops where the key leaves the path, so it never goes back up. It takes O(W) for keys of W
//! bits.
//!
//! ```text
//! nodes      16 bytes  31                      0    at byte 64; node 0 is the root, 0.0.0.0/0
//!                     +-------------------------+
//!                     |         prefix          |   bits beyond the length are 0
//!                     |     label     | 5..0    |   label 0: the node only branches; bits 5..0: length
//!                     |          child 0        |   number of the node where the next bit is 0; 0: none
//!                     |          child 1        |   likewise 1
//!                     +-------------------------+
//! ```
//! Example: 10.0.0.0/8 with label 1 and 10.1.2.3/32 with label 2. Node 0 is `0, 0, 1, 0`; node 1 (10.0.0.0/8) is
//! `0x0a000000, 1 << 6 | 8, 2, 0`, as bit 23 of 10.1.2.3 is 0; node 2 is `0x0a010203, 2 << 6 | 32, 0, 0`. The key
//! 10.1.2.4 goes from node 0 to 1, whose label it keeps, and to 2, whose prefix does not hold it.

use weir_tables::image::Section;
use weir_tables::prefix::{Address, Prefix4};

use crate::image::Writer;
use crate::{SchemeError, SchemeImage};

const NODE_WORDS: usize = 4;
const LENGTH_BITS: u32 = 6;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;

/// Labels fit beside the length.
const _: () = assert!(weir_tables::problem::PREFIXES_MAX < 1 << (32 - LENGTH_BITS));

/// The built trie.
pub(super) struct Radix {
    nodes: Vec<[u32; NODE_WORDS]>,
}

/// Builds the trie of prefixes, sorted by [`Address::order`].
pub(super) fn build(prefixes: &[Prefix4]) -> Radix {
    let mut nodes = Vec::with_capacity(prefixes.len() + 1);
    nodes.push(node(&Prefix4::new(0, 0, 0)));
    // The path from the root to the last added node. Sorted prefixes arrive in the trie's own order.
    let mut path = vec![Step { number: 0, prefix: Prefix4::new(0, 0, 0) }];
    for prefix in prefixes {
        if prefix.len == 0 {
            nodes[0] = node(prefix);
            continue;
        }
        let mut top = path.pop().expect("the root stays");
        let mut left = None;
        let shared = |top: &Prefix4| (top.addr ^ prefix.addr).leading_zeros().min(u32::from(top.len)) as u8;
        let branch_len = shared(&top.prefix);
        while top.prefix.len > branch_len {
            left = Some(top);
            top = path.pop().expect("the root's length is 0");
        }
        path.push(top);
        if let Some(left) = left
            && top.prefix.len < branch_len
        {
            // The prefix leaves the edge to `left` half-way, so a node that only branches goes between.
            let branch = Step { number: nodes.len() as u32, prefix: Prefix4::new(prefix.addr, branch_len, 0) };
            nodes.push(node(&branch.prefix));
            link(&mut nodes, top, branch);
            link(&mut nodes, branch, left);
            path.push(branch);
            top = branch;
        }
        let step = Step { number: nodes.len() as u32, prefix: *prefix };
        nodes.push(node(prefix));
        link(&mut nodes, top, step);
        path.push(step);
    }
    Radix { nodes }
}

/// A node on the path.
#[derive(Clone, Copy)]
struct Step {
    number: u32,
    prefix: Prefix4,
}

fn node(prefix: &Prefix4) -> [u32; NODE_WORDS] {
    [prefix.addr, prefix.label << LENGTH_BITS | u32::from(prefix.len), 0, 0]
}

/// Makes `child` the child of `parent` on its side.
fn link(nodes: &mut [[u32; NODE_WORDS]], parent: Step, child: Step) {
    let side = child.prefix.addr << parent.prefix.len >> 31;
    nodes[parent.number as usize][2 + side as usize] = child.number;
}

impl Radix {
    /// Writes the image.
    pub fn write(&self, writer: &Writer) -> Result<SchemeImage, SchemeError> {
        writer.write(&[("nodes", Section::U32(self.nodes.as_flattened()))])
    }
}

/// The trie in an image.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub nodes: &'a [[u8; 4 * NODE_WORDS]],
}

impl View<'_> {
    /// Word `word` of a node.
    fn node(&self, number: u32, word: usize) -> u32 {
        let (words, _) = self.nodes[number as usize].as_chunks();
        u32::from_le_bytes(words[word])
    }

    /// The label of `addr`, or 0.
    pub fn find(&self, addr: u32) -> u32 {
        let mut number = 0;
        let mut found = 0;
        loop {
            let info = self.node(number, 1);
            let len = (info & LENGTH_MASK) as u8;
            if (addr ^ self.node(number, 0)).without(u32::host_mask(len)) != 0 {
                return found;
            }
            if info >> LENGTH_BITS != 0 {
                found = info >> LENGTH_BITS;
            }
            if len == 32 {
                return found;
            }
            number = self.node(number, 2 + (addr << len >> 31) as usize);
            if number == 0 {
                return found;
            }
        }
    }
}
