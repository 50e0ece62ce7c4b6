//! Exact leaf: sets whose prefixes are mostly hosts, such as blocked sources. An exact set (exact_set.rs,
//! exact_set6/mod.rs) has the hosts, and rank leaves have the other prefixes. A lookup that finds the key in the exact
//! set is done, and while there are no other prefixes, so is one that does not.
//!
//! ```text
//! image     an exact set of the /32 addresses, or of the IPv6 /64s and /128s; its sections are those of that layout
//! prefixes  a whole image of rank leaves with the other prefixes, at byte section[8]; its offsets are its own
//! header    section[8] = where the prefixes begin; section[9] = 0 if there are none, else 1
//! ```
//! Example: of the set 10.1.2.3, 192.0.2.0/24 the exact set has the first, and the rank leaves have the second.

use weir_abi::Layout;

use crate::cells::{Cells, CellsMut};
use crate::image::{BuildError, HEADER_BYTES, Header, Image, ImageError};
use crate::layout::exact_set::ExactBuckets;
use crate::layout::exact_set6::Exact6Buckets;
use crate::layout::rank_leaf::{self, Offsets};
use crate::layout::{Room, exact_set, exact_set6};
use crate::prefix::{Prefix, Prefix4, Prefix6};
use crate::trace::{Trace, TracedLines};

/// Header fields: where the rank leaves begin, and whether they have prefixes.
const PREFIXES_AT: usize = 8;
const HAS_PREFIXES: usize = 9;

/// The lengths of prefixes that the exact set of an exact leaf has; none if the layout is another one.
pub fn host_lengths(layout: Layout) -> &'static [u8] {
    match layout {
        Layout::ExactLeaf => &[32],
        Layout::ExactLeaf6 => &[64, 128],
        _ => &[],
    }
}

/// Builds the image of distinct, sorted prefixes.
pub(crate) fn build4(prefixes: &[Prefix4], room: Room) -> Result<Image, BuildError> {
    let (hosts, others) = divided(prefixes, Layout::ExactLeaf);
    let hosts = exact_set::build(&hosts, room)?;
    joined(Layout::ExactLeaf, &hosts, &rank_leaf::build4(&others, 1, room)?)
}

/// Builds the image of distinct, sorted prefixes.
pub(crate) fn build6(prefixes: &[Prefix6], room: Room) -> Result<Image, BuildError> {
    let (hosts, others) = divided(prefixes, Layout::ExactLeaf6);
    let hosts = exact_set6::build(&hosts, room)?;
    joined(Layout::ExactLeaf6, &hosts, &rank_leaf::build6(&others, 1, room)?)
}

/// The prefixes of the exact set, and the others.
fn divided<A: Copy>(prefixes: &[Prefix<A>], layout: Layout) -> (Vec<Prefix<A>>, Vec<Prefix<A>>) {
    prefixes.iter().partition(|prefix| host_lengths(layout).contains(&prefix.len))
}

/// The image of an exact set with rank leaves inside it.
fn joined(layout: Layout, hosts: &Image, prefixes: &Image) -> Result<Image, BuildError> {
    let has = u32::from(prefixes.header().entries > 0);
    hosts.with_inside(layout, prefixes, |at| vec![(PREFIXES_AT, at), (HAS_PREFIXES, has)])
}

/// The exact set of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hosts {
    V4(ExactBuckets),
    V6(Exact6Buckets),
}

/// The positions of an image's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub hosts: Hosts,
    /// The byte where the rank leaves begin.
    pub prefixes_at: usize,
    /// The positions of their words, counted from there.
    pub prefixes: Offsets,
}

impl Parts {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &[u8]) -> Result<Self, ImageError> {
        if header.labels != 1 {
            return Err(header.corrupt("header", "label count"));
        }
        let hosts = match header.layout {
            Layout::ExactLeaf => Hosts::V4(ExactBuckets::open(header, image)?),
            _ => Hosts::V6(Exact6Buckets::open(header, image)?),
        };
        let (_, leaves) = leaves(header, image)?;
        Ok(Parts { hosts, prefixes_at: header.section[PREFIXES_AT] as usize, prefixes: leaves.offsets() })
    }

    /// 1 if `addr` is in the set, 0 if not.
    pub fn find4(&self, cells: &(impl Cells + ?Sized), addr: u32) -> u32 {
        let is_host = match &self.hosts {
            Hosts::V4(hosts) => hosts.find(cells, addr) != (0, 0),
            Hosts::V6(_) => return 0,
        };
        // The prefixes are read after the hosts, also by C lookups: a host that a prefix replaces is removed last.
        match is_host || !has_prefixes(cells) {
            true => is_host.into(),
            false => self.prefixes.find4(&Inside { cells, at: self.prefixes_at }, addr),
        }
    }

    /// 1 if `addr` is in the set, 0 if not.
    pub fn find6(&self, cells: &(impl Cells + ?Sized), addr: u128) -> u32 {
        let is_host = match &self.hosts {
            Hosts::V6(hosts) => hosts.find(cells, addr) != 0,
            Hosts::V4(_) => return 0,
        };
        match is_host || !has_prefixes(cells) {
            true => is_host.into(),
            false => self.prefixes.find6(&Inside { cells, at: self.prefixes_at }, addr),
        }
    }
}

fn has_prefixes(cells: &(impl Cells + ?Sized)) -> bool {
    cells.u32(Header::field_at(HAS_PREFIXES)) != 0
}

/// Says whether there are prefixes.
pub(crate) fn set_has_prefixes(cells: &impl CellsMut, has: bool) {
    if has_prefixes(cells) != has {
        cells.set_u32(Header::field_at(HAS_PREFIXES), has.into());
    }
}

/// The rank leaves of an image, with their header.
fn leaves<'a>(header: &Header, image: &'a [u8]) -> Result<(Header, rank_leaf::View<'a>), ImageError> {
    let at = header.section[PREFIXES_AT] as usize;
    let bytes = image.get(at..).filter(|_| at.is_multiple_of(HEADER_BYTES));
    let bytes = bytes.ok_or(header.corrupt("prefixes", "section offset"))?;
    let inside = Header::read(bytes)?;
    let layout = if header.layout == Layout::ExactLeaf { Layout::RankLeaf } else { Layout::RankLeaf6 };
    match (inside.layout, inside.labels) == (layout, header.labels) {
        true => rank_leaf::View::open(&inside, bytes).map(|leaves| (inside, leaves)),
        false => Err(header.corrupt("prefixes", "header")),
    }
}

/// The words of an image inside another one.
pub(crate) struct Inside<'c, C: ?Sized> {
    pub cells: &'c C,
    /// The byte where it begins.
    pub at: usize,
}

impl<C: Cells + ?Sized> Cells for Inside<'_, C> {
    fn u8(&self, at: usize) -> u8 {
        self.cells.u8(self.at + at)
    }

    fn u16(&self, at: usize) -> u16 {
        self.cells.u16(self.at + at)
    }

    fn u32(&self, at: usize) -> u32 {
        self.cells.u32(self.at + at)
    }

    fn u64(&self, at: usize) -> u64 {
        self.cells.u64(self.at + at)
    }
}

impl<C: CellsMut + ?Sized> CellsMut for Inside<'_, C> {
    fn set_u8(&self, at: usize, word: u8) {
        self.cells.set_u8(self.at + at, word);
    }

    fn set_u16(&self, at: usize, word: u16) {
        self.cells.set_u16(self.at + at, word);
    }

    fn set_u32(&self, at: usize, word: u32) {
        self.cells.set_u32(self.at + at, word);
    }

    fn set_u64(&self, at: usize, word: u64) {
        self.cells.set_u64(self.at + at, word);
    }
}

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    image: &'a [u8],
    parts: Parts,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        Ok(View { image, parts: Parts::open(header, image)? })
    }

    /// Checks every index.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        let (inside, leaves) = leaves(header, self.image)?;
        match &self.parts.hosts {
            Hosts::V4(hosts) => {
                hosts.overflow.check(header, self.image)?;
                leaves.check4(&inside)
            }
            Hosts::V6(_) => leaves.check6(&inside),
        }
    }

    /// 1 if `addr` is in the set, 0 if not.
    pub fn find4(&self, addr: u32) -> u32 {
        self.parts.find4(self.image, addr)
    }

    /// 1 if `addr` is in the set, 0 if not.
    pub fn find6(&self, addr: u128) -> u32 {
        self.parts.find6(self.image, addr)
    }

    /// Records what a lookup of an IPv4 key reads.
    pub fn trace4(&self, addr: u32, trace: &mut Trace) {
        self.parts.find4(&TracedLines::new(self.image, trace), addr);
    }

    /// Records what a lookup of an IPv6 key reads.
    pub fn trace6(&self, addr: u128, trace: &mut Trace) {
        self.parts.find6(&TracedLines::new(self.image, trace), addr);
    }
}
