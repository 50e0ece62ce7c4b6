//! Views of images: the lookups of every layout behind one type.
//!
//! Images also arrive from other machines, in archives. [`ImageView::new`] checks every index in the bytes, so that no
//! lookup, here or in C, leaves them. It does not check whether they are the *right* table.

use std::fmt;

use weir_abi::Layout;

use super::error::ImageError;
use super::format::{HEADER_BYTES, Header, Image};
use crate::image_memory::ImageMemory;
use crate::layout::dxr::Stages;
use crate::layout::{counted_leaf, dxr, exact_leaf, exact_set, exact_set6, exact_sets, range6, rank_leaf};
use crate::trace::Trace;

impl Image {
    /// Copies and checks an image, such as one from an archive.
    ///
    /// # Errors
    /// As for [`ImageView::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        let layout = ImageView::new(bytes)?.layout();
        let mut memory = ImageMemory::zeroed(bytes.len());
        memory.copy_from_slice(bytes);
        Ok(Image { memory, layout })
    }

    /// A view for lookups. Constant time, because the bytes are known to be valid.
    pub fn view(&self) -> ImageView<'_> {
        ImageView::open(&self.header(), self.as_bytes()).expect("an image is valid by construction")
    }

    /// Name and size in bytes of each section, the header first. Padding between sections, and an image inside this
    /// one, are not counted.
    pub fn sections(&self) -> Vec<(&'static str, usize)> {
        let header = self.header();
        let names: &[&'static str] = match self.layout {
            Layout::Dxr16x4 => &dxr::SECTIONS,
            Layout::ExactSet | Layout::ExactSets | Layout::ExactLeaf => &exact_set::SECTIONS,
            Layout::ExactSet6 | Layout::ExactSets6 | Layout::ExactLeaf6 => &exact_set6::SECTIONS,
            Layout::Range6 => &range6::SECTIONS,
            Layout::RankLeaf | Layout::RankLeaf6 | Layout::CountedLeaf => &rank_leaf::SECTIONS,
        };
        let sections = names.iter().enumerate().map(|(index, &name)| (name, header.section[2 * index + 1] as usize));
        std::iter::once(("header", HEADER_BYTES)).chain(sections).collect()
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("layout", &self.layout).field("sections", &self.sections()).finish()
    }
}

/// Checked bytes of an image, borrowed and of any alignment.
#[derive(Clone, Copy)]
pub struct ImageView<'a> {
    lookup: Lookup<'a>,
    entries: u32,
    labels: u32,
}

#[derive(Clone, Copy)]
enum Lookup<'a> {
    Dxr(dxr::View<'a>),
    ExactSet(exact_set::View<'a>),
    ExactSets(exact_sets::View<'a>),
    ExactSet6(exact_set6::View<'a>),
    ExactSets6(exact_set6::View<'a>),
    Range6(range6::View<'a>),
    RankLeaf(rank_leaf::View<'a>),
    RankLeaf6(rank_leaf::View<'a>),
    CountedLeaf(counted_leaf::View<'a>),
    ExactLeaf(exact_leaf::View<'a>),
    ExactLeaf6(exact_leaf::View<'a>),
}

impl<'a> ImageView<'a> {
    /// Checks the header, the sections and every index inside an image. Time is linear in the bytes.
    ///
    /// # Errors
    /// The bytes are no image, or a lookup in them could leave them or return a label above [`ImageView::labels`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let header = Header::read(bytes)?;
        let view = Self::open(&header, bytes)?;
        match &view.lookup {
            Lookup::Dxr(dxr) => dxr.check(&header)?,
            Lookup::ExactSet(set) => set.check(&header)?,
            Lookup::ExactSets(sets) => sets.check(&header)?,
            Lookup::ExactSet6(sets) | Lookup::ExactSets6(sets) => sets.check(&header)?,
            Lookup::Range6(range6) => range6.check(&header)?,
            Lookup::RankLeaf(leaves) => leaves.check4(&header)?,
            Lookup::RankLeaf6(leaves) => leaves.check6(&header)?,
            Lookup::CountedLeaf(leaves) => leaves.check(&header)?,
            Lookup::ExactLeaf(set) | Lookup::ExactLeaf6(set) => set.check(&header)?,
        }
        Ok(view)
    }

    /// Locates the sections without checking their contents.
    fn open(header: &Header, bytes: &'a [u8]) -> Result<Self, ImageError> {
        let lookup = match header.layout {
            Layout::Dxr16x4 => Lookup::Dxr(dxr::View::open(header, bytes)?),
            Layout::ExactSet => Lookup::ExactSet(exact_set::View::open(header, bytes)?),
            Layout::ExactSets => Lookup::ExactSets(exact_sets::View::open(header, bytes)?),
            Layout::ExactSet6 => Lookup::ExactSet6(exact_set6::View::open(header, bytes)?),
            Layout::ExactSets6 => Lookup::ExactSets6(exact_set6::View::open(header, bytes)?),
            Layout::Range6 => Lookup::Range6(range6::View::open(header, bytes)?),
            Layout::RankLeaf => Lookup::RankLeaf(rank_leaf::View::open(header, bytes)?),
            Layout::RankLeaf6 => Lookup::RankLeaf6(rank_leaf::View::open(header, bytes)?),
            Layout::CountedLeaf => Lookup::CountedLeaf(counted_leaf::View::open(header, bytes)?),
            Layout::ExactLeaf => Lookup::ExactLeaf(exact_leaf::View::open(header, bytes)?),
            Layout::ExactLeaf6 => Lookup::ExactLeaf6(exact_leaf::View::open(header, bytes)?),
        };
        Ok(ImageView { lookup, entries: header.entries, labels: header.labels })
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        match self.lookup {
            Lookup::Dxr(_) => Layout::Dxr16x4,
            Lookup::ExactSet(_) => Layout::ExactSet,
            Lookup::ExactSets(_) => Layout::ExactSets,
            Lookup::ExactSet6(_) => Layout::ExactSet6,
            Lookup::ExactSets6(_) => Layout::ExactSets6,
            Lookup::Range6(_) => Layout::Range6,
            Lookup::RankLeaf(_) => Layout::RankLeaf,
            Lookup::RankLeaf6(_) => Layout::RankLeaf6,
            Lookup::CountedLeaf(_) => Layout::CountedLeaf,
            Lookup::ExactLeaf(_) => Layout::ExactLeaf,
            Lookup::ExactLeaf6(_) => Layout::ExactLeaf6,
        }
    }

    /// Prefixes that the table holds, as its builder counted them.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The highest label that a lookup can return.
    pub fn labels(&self) -> u32 {
        self.labels
    }

    /// The lookup of layout `d16x4r` in two halves; `None` for other layouts.
    pub fn stages(&self) -> Option<Stages<'a>> {
        match &self.lookup {
            Lookup::Dxr(view) => Some(view.stages()),
            _ => None,
        }
    }

    /// The label of the longest prefix that holds `addr`. 0 if no prefix holds it, or if the table is of the other
    /// family.
    pub fn find4(&self, addr: u32) -> u32 {
        match &self.lookup {
            Lookup::Dxr(view) => view.find(addr),
            Lookup::ExactSet(view) => view.find(addr),
            Lookup::ExactSets(view) => view.find(addr),
            Lookup::RankLeaf(view) => view.find4(addr),
            Lookup::CountedLeaf(view) => view.find4(addr),
            Lookup::ExactLeaf(view) => view.find4(addr),
            Lookup::Range6(_)
            | Lookup::RankLeaf6(_)
            | Lookup::ExactSet6(_)
            | Lookup::ExactSets6(_)
            | Lookup::ExactLeaf6(_) => 0,
        }
    }

    /// The label of the longest prefix that holds `addr`. 0 if no prefix holds it, or if the table is of the other
    /// family.
    pub fn find6(&self, addr: u128) -> u32 {
        match &self.lookup {
            Lookup::Dxr(_)
            | Lookup::ExactSet(_)
            | Lookup::ExactSets(_)
            | Lookup::RankLeaf(_)
            | Lookup::CountedLeaf(_)
            | Lookup::ExactLeaf(_) => 0,
            Lookup::ExactLeaf6(view) => view.find6(addr),
            Lookup::Range6(view) => view.find(addr),
            Lookup::ExactSet6(view) | Lookup::ExactSets6(view) => view.find(addr),
            Lookup::RankLeaf6(view) => view.find6(addr),
        }
    }
}

impl ImageView<'_> {
    /// Records what [`ImageView::find4`] reads; nothing if the table is of the other family.
    pub(crate) fn trace4(&self, addr: u32, trace: &mut Trace) {
        match &self.lookup {
            Lookup::Dxr(view) => view.trace(addr, trace),
            Lookup::ExactSet(view) => view.trace(addr, trace),
            Lookup::ExactSets(view) => view.trace(addr, trace),
            Lookup::RankLeaf(view) => view.trace4(addr, trace),
            Lookup::CountedLeaf(view) => view.trace4(addr, trace),
            Lookup::ExactLeaf(view) => view.trace4(addr, trace),
            Lookup::Range6(_)
            | Lookup::RankLeaf6(_)
            | Lookup::ExactSet6(_)
            | Lookup::ExactSets6(_)
            | Lookup::ExactLeaf6(_) => {}
        }
    }

    /// Records what [`ImageView::find6`] reads; nothing if the table is of the other family.
    pub(crate) fn trace6(&self, addr: u128, trace: &mut Trace) {
        match &self.lookup {
            Lookup::Range6(view) => view.trace(addr, trace),
            Lookup::ExactSet6(view) | Lookup::ExactSets6(view) => view.trace(addr, trace),
            Lookup::RankLeaf6(view) => view.trace6(addr, trace),
            Lookup::Dxr(_)
            | Lookup::ExactSet(_)
            | Lookup::ExactSets(_)
            | Lookup::RankLeaf(_)
            | Lookup::CountedLeaf(_)
            | Lookup::ExactLeaf(_) => {}
            Lookup::ExactLeaf6(view) => view.trace6(addr, trace),
        }
    }
}
