//! Table images: the flat bytes that native code and BPF read, owned ([`Image`]) or borrowed and checked
//! ([`ImageView`]).
//!
//! An image is position-independent, little-endian and starts with a [`weir_abi::ImageHeader`]. Offsets are from the
//! image's start. Sections are aligned to 64 bytes and follow each other in order. In the header, `section[2 * i]` and
//! `section[2 * i + 1]` are the offset and size of section `i`. Further numbers of a layout come last.
//!
//! Images also arrive from other machines, in archives. [`ImageView::new`] checks every index in the bytes, so that no
//! lookup, here or in C, leaves them. It does not check whether they are the *right* table.

use std::fmt;

use weir_abi::image::IMAGE_MAGIC;
use weir_abi::{Family, ImageHeader, Layout};

use crate::image_memory::ImageMemory;
use crate::layout::{counted_leaf, dxr, exact_set, exact_set6, exact_sets, range6, rank_leaf};
use crate::problem::family_name;
use crate::reads::Trace;

/// Labels `0..LABELS_MAX` fit every layout (20 bits); 0 is "no entry".
pub const LABELS_MAX: u32 = 1 << 20;
/// Answers of rank leaves are below this number. The answers of limiters are tickets (crate::limits::image).
pub(crate) const TICKETS_END: u32 = 1 << 31;

/// Size of the header, and the alignment of every section.
pub(crate) const HEADER_BYTES: usize = size_of::<ImageHeader>();

/// A built or loaded image in page-aligned memory. Its bytes are valid: every lookup in them is in bounds.
#[derive(Clone)]
pub struct Image {
    memory: ImageMemory,
    layout: Layout,
}

impl Image {
    /// Copies and checks an image, such as one from an archive.
    ///
    /// # Errors
    /// The same as [`ImageView::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        let layout = ImageView::new(bytes)?.layout();
        let mut memory = ImageMemory::zeroed(bytes.len());
        memory.copy_from_slice(bytes);
        Ok(Image { memory, layout })
    }

    /// The image, header included; its address is a multiple of 4096.
    pub fn as_bytes(&self) -> &[u8] {
        &self.memory
    }

    /// The first byte, for readers of an image that a writer changes meanwhile. No slice of such bytes may exist.
    pub(crate) fn start(&self) -> *mut u8 {
        self.memory.start()
    }

    pub(crate) fn header(&self) -> Header {
        Header::read(self.as_bytes()).expect("an image is valid by construction")
    }

    /// A view for lookups. Constant time, because the bytes are known to be valid.
    pub fn view(&self) -> ImageView<'_> {
        ImageView::open(&self.header(), self.as_bytes()).expect("an image is valid by construction")
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Name and size in bytes of each section, the header first. Padding between sections is not counted.
    pub fn sections(&self) -> Vec<(&'static str, usize)> {
        let header = self.header();
        let names: &[&'static str] = match self.layout {
            Layout::Dxr16x4 => &dxr::SECTIONS,
            Layout::ExactSet | Layout::ExactSets => &exact_set::SECTIONS,
            Layout::ExactSet6 => &exact_set6::SECTIONS,
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

/// Lays out sections and writes them.
pub(crate) struct Writer {
    pub layout: Layout,
    pub entries: usize,
    pub labels: u32,
}

impl Writer {
    /// An image of the given sections, with additional `numbers` (index into `ImageHeader::section`, value).
    pub fn write(self, sections: &[Section<'_>], numbers: &[(usize, u32)]) -> Result<Image, BuildError> {
        let mut header = Header {
            layout: self.layout,
            entries: u32::try_from(self.entries).map_err(|_| BuildError::TooBig { layout: self.layout })?,
            labels: self.labels,
            bytes: HEADER_BYTES as u64,
            section: [0; 10],
        };
        for (index, section) in sections.iter().enumerate() {
            let offset = header.bytes.next_multiple_of(HEADER_BYTES as u64);
            let bytes = section.bytes();
            header.bytes = offset + bytes as u64;
            // Lookups compute offsets in 32 bits.
            if header.bytes > u64::from(u32::MAX) {
                return Err(BuildError::TooBig { layout: self.layout });
            }
            header.section[2 * index] = offset as u32;
            header.section[2 * index + 1] = bytes as u32;
        }
        for &(index, value) in numbers {
            header.section[index] = value;
        }
        let mut memory = ImageMemory::zeroed(header.bytes as usize);
        header.write(&mut memory);
        for (index, section) in sections.iter().enumerate() {
            section.write(&mut memory[header.section[2 * index] as usize..]);
        }
        Ok(Image { memory, layout: self.layout })
    }
}

/// The words of one section.
pub(crate) enum Section<'a> {
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    /// Two 64-bit words each, high half first.
    U128(&'a [u128]),
}

impl Section<'_> {
    /// Size of the section in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Section::U8(words) => size_of_val(*words),
            Section::U16(words) => size_of_val(*words),
            Section::U32(words) => size_of_val(*words),
            Section::U64(words) => size_of_val(*words),
            Section::U128(words) => size_of_val(*words),
        }
    }

    /// Writes the words in little-endian order to the start of `out`.
    pub fn write(&self, out: &mut [u8]) {
        match self {
            Section::U8(words) => out[..words.len()].copy_from_slice(words),
            Section::U16(words) => {
                let (out, _) = out.as_chunks_mut();
                out.iter_mut().zip(*words).for_each(|(out, word)| *out = word.to_le_bytes());
            }
            Section::U32(words) => {
                let (out, _) = out.as_chunks_mut();
                out.iter_mut().zip(*words).for_each(|(out, word)| *out = word.to_le_bytes());
            }
            Section::U64(words) => {
                let (out, _) = out.as_chunks_mut();
                out.iter_mut().zip(*words).for_each(|(out, word)| *out = word.to_le_bytes());
            }
            Section::U128(words) => {
                let (out, _) = out.as_chunks_mut();
                out.iter_mut().zip(*words).for_each(|(out, word)| *out = word.rotate_left(64).to_le_bytes());
            }
        }
    }
}

/// The header's fields, read from bytes of any alignment.
pub(crate) struct Header {
    pub layout: Layout,
    pub entries: u32,
    pub labels: u32,
    pub bytes: u64,
    pub section: [u32; 10],
}

impl Header {
    /// Reads the header and checks everything that does not depend on the layout.
    fn read(image: &[u8]) -> Result<Self, ImageError> {
        let head: &[u8; HEADER_BYTES] = image.first_chunk().ok_or(ImageError::Short { bytes: image.len() })?;
        let (words, _) = head.as_chunks::<4>();
        let word = |index: usize| u32::from_le_bytes(words[index]);
        if word(0) != IMAGE_MAGIC {
            return Err(ImageError::Magic { found: word(0) });
        }
        let layout = Layout::ALL.into_iter().find(|&layout| layout as u32 == word(1));
        let header = Header {
            layout: layout.ok_or(ImageError::Layout { found: word(1) })?,
            entries: word(2),
            labels: word(3),
            bytes: u64::from(word(4)) | u64::from(word(5)) << 32,
            section: std::array::from_fn(|index| word(6 + index)),
        };
        if header.bytes != image.len() as u64 || image.len() > u32::MAX as usize {
            return Err(ImageError::Length { header: header.bytes, bytes: image.len() });
        }
        if header.labels >= TICKETS_END {
            return Err(header.corrupt("header", "label count"));
        }
        Ok(header)
    }

    fn write(&self, out: &mut [u8]) {
        let fixed =
            [IMAGE_MAGIC, self.layout as u32, self.entries, self.labels, self.bytes as u32, (self.bytes >> 32) as u32];
        let (words, _) = out[..HEADER_BYTES].as_chunks_mut();
        words.iter_mut().zip(fixed.into_iter().chain(self.section)).for_each(|(out, word)| *out = word.to_le_bytes());
    }

    /// Section `index` as words of `N` bytes. `offset` is the required position, if it is fixed.
    pub fn section<'a, const N: usize>(
        &self,
        image: &'a [u8],
        index: usize,
        name: &'static str,
    ) -> Result<&'a [[u8; N]], ImageError> {
        let (offset, bytes) = (self.section[2 * index] as usize, self.section[2 * index + 1] as usize);
        if offset < HEADER_BYTES || !offset.is_multiple_of(HEADER_BYTES) {
            return Err(self.corrupt(name, "section offset"));
        }
        let section = offset.checked_add(bytes).and_then(|end| image.get(offset..end));
        match section.ok_or(self.corrupt(name, "section bounds"))?.as_chunks() {
            (words, []) => Ok(words),
            _ => Err(self.corrupt(name, "section size")),
        }
    }

    /// The same as [`Header::section`], for a section whose position is a constant in C.
    pub fn section_at<'a, const N: usize>(
        &self,
        image: &'a [u8],
        index: usize,
        name: &'static str,
        offset: usize,
    ) -> Result<&'a [[u8; N]], ImageError> {
        match self.section[2 * index] as usize == offset {
            true => self.section(image, index, name),
            false => Err(self.corrupt(name, "section offset")),
        }
    }

    /// An error about the contents of a section.
    pub fn corrupt(&self, section: &'static str, what: &'static str) -> ImageError {
        ImageError::Corrupt { layout: self.layout, section, what }
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
    Range6(range6::View<'a>),
    RankLeaf(rank_leaf::View<'a>),
    RankLeaf6(rank_leaf::View<'a>),
    CountedLeaf(counted_leaf::View<'a>),
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
            Lookup::ExactSet6(_) => {}
            Lookup::Range6(range6) => range6.check(&header)?,
            Lookup::RankLeaf(leaves) => leaves.check4(&header)?,
            Lookup::RankLeaf6(leaves) => leaves.check6(&header)?,
            Lookup::CountedLeaf(leaves) => leaves.check(&header)?,
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
            Layout::Range6 => Lookup::Range6(range6::View::open(header, bytes)?),
            Layout::RankLeaf => Lookup::RankLeaf(rank_leaf::View::open(header, bytes)?),
            Layout::RankLeaf6 => Lookup::RankLeaf6(rank_leaf::View::open(header, bytes)?),
            Layout::CountedLeaf => Lookup::CountedLeaf(counted_leaf::View::open(header, bytes)?),
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
            Lookup::Range6(_) => Layout::Range6,
            Lookup::RankLeaf(_) => Layout::RankLeaf,
            Lookup::RankLeaf6(_) => Layout::RankLeaf6,
            Lookup::CountedLeaf(_) => Layout::CountedLeaf,
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

    /// The label of the longest prefix that holds `addr`. 0 if no prefix holds it, or if the table is of the other
    /// family.
    pub fn find4(&self, addr: u32) -> u32 {
        match &self.lookup {
            Lookup::Dxr(view) => view.find(addr),
            Lookup::ExactSet(view) => view.find(addr),
            Lookup::ExactSets(view) => view.find(addr),
            Lookup::RankLeaf(view) => view.find4(addr),
            Lookup::CountedLeaf(view) => view.find4(addr),
            Lookup::Range6(_) | Lookup::RankLeaf6(_) | Lookup::ExactSet6(_) => 0,
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
            | Lookup::CountedLeaf(_) => 0,
            Lookup::Range6(view) => view.find(addr),
            Lookup::ExactSet6(view) => view.find(addr),
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
            Lookup::Range6(_) | Lookup::RankLeaf6(_) | Lookup::ExactSet6(_) => {}
        }
    }

    /// Records what [`ImageView::find6`] reads; nothing if the table is of the other family.
    pub(crate) fn trace6(&self, addr: u128, trace: &mut Trace) {
        match &self.lookup {
            Lookup::Range6(view) => view.trace(addr, trace),
            Lookup::ExactSet6(view) => view.trace(addr, trace),
            Lookup::RankLeaf6(view) => view.trace6(addr, trace),
            Lookup::Dxr(_)
            | Lookup::ExactSet(_)
            | Lookup::ExactSets(_)
            | Lookup::RankLeaf(_)
            | Lookup::CountedLeaf(_) => {}
        }
    }
}

/// Why a table cannot be built in a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The layout holds prefixes of the other family.
    #[error("layout {} does not hold {} prefixes", layout.name(), family_name(*family))]
    Family {
        /// The layout.
        layout: Layout,
        /// The table's family.
        family: Family,
    },
    /// The layout holds sets only.
    #[error("layout {} holds sets only, the table has labels", layout.name())]
    Labelled {
        /// The layout.
        layout: Layout,
    },
    /// The layout holds single addresses only.
    #[error("layout {} holds /32 addresses only, the table has {prefix}", layout.name())]
    NotAnAddress {
        /// The layout.
        layout: Layout,
        /// The first prefix that is shorter.
        prefix: String,
    },
    /// The layout holds networks (/64) and hosts (/128) only.
    #[error("layout {} holds /64 and /128 prefixes only, the table has {prefix}", layout.name())]
    NotANetOrHost {
        /// The layout.
        layout: Layout,
        /// The first prefix of another length.
        prefix: String,
    },
    /// The table exceeds a limit of the layout.
    #[error("layout {} holds at most {max} {what}", layout.name())]
    Limit {
        /// The layout.
        layout: Layout,
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The lists exceed a limit of limiters.
    #[error("there are at most {max} {what}")]
    Limits {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The image would be larger than 4 GiB.
    #[error("the image in layout {} would exceed 4 GiB", layout.name())]
    TooBig {
        /// The layout.
        layout: Layout,
    },
}

/// Why bytes are no valid image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The bytes are shorter than a header.
    #[error("table image of {bytes} bytes is shorter than its header")]
    Short {
        /// Bytes given.
        bytes: usize,
    },
    /// The first word is wrong.
    #[error("not a table image: starts with {found:#010x}")]
    Magic {
        /// The first word.
        found: u32,
    },
    /// A layout that this version does not know.
    #[error("table image of unknown layout {found}")]
    Layout {
        /// The layout word.
        found: u32,
    },
    /// The length differs from the header's.
    #[error("table image has {bytes} bytes, its header says {header}")]
    Length {
        /// Length in the header.
        header: u64,
        /// Bytes given.
        bytes: usize,
    },
    /// A value inside a section is invalid.
    #[error("corrupt {} image: section `{section}`: bad {what}", layout.name())]
    Corrupt {
        /// The layout.
        layout: Layout,
        /// The section.
        section: &'static str,
        /// What is wrong.
        what: &'static str,
    },
}
