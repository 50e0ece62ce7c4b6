//! The format that the images of all layouts share: a header, then sections.
//!
//! An image is position-independent, little-endian and starts with a [`weir_abi::ImageHeader`]. Offsets are from the
//! image's start. Sections are aligned to 64 bytes and follow each other in order. In the header, `section[2 * i]` and
//! `section[2 * i + 1]` are the offset and size of section `i`. Further numbers of a layout come last.

use weir_abi::image::IMAGE_MAGIC;
use weir_abi::{ImageHeader, Layout};

use super::error::{BuildError, ImageError};
use crate::image_memory::ImageMemory;

/// Labels `0..LABELS_MAX` fit every layout (20 bits); 0 is "no entry".
pub const LABELS_MAX: u32 = 1 << 20;
/// Answers of rank leaves are below this number. The answers of limiters are tickets (crate::limits::image).
pub(crate) const TICKETS_END: u32 = 1 << 31;

/// Size of the header, and the alignment of every section.
pub(crate) const HEADER_BYTES: usize = size_of::<ImageHeader>();

/// A built or loaded image in page-aligned memory. Its bytes are valid: every lookup in them is in bounds.
#[derive(Clone)]
pub struct Image {
    pub(super) memory: ImageMemory,
    pub(super) layout: Layout,
}

impl Image {
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

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The image in layout `layout` that consists of this one and of `inside`, which begins at the byte that `numbers`
    /// is called with. The numbers are as in [`Writer::write`].
    pub(crate) fn with_inside(
        &self,
        layout: Layout,
        inside: &Image,
        numbers: impl FnOnce(u32) -> Vec<(usize, u32)>,
    ) -> Result<Image, BuildError> {
        let mut header = self.header();
        let at = self.memory.len().next_multiple_of(HEADER_BYTES);
        header.layout = layout;
        header.entries += inside.header().entries;
        header.bytes = (at + inside.memory.len()) as u64;
        if header.bytes > u64::from(u32::MAX) {
            return Err(BuildError::TooBig { layout });
        }
        for (index, value) in numbers(at as u32) {
            header.section[index] = value;
        }
        let mut memory = ImageMemory::zeroed(header.bytes as usize);
        memory[..self.memory.len()].copy_from_slice(&self.memory);
        memory[at..].copy_from_slice(&inside.memory);
        header.write(&mut memory);
        Ok(Image { memory, layout })
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
#[derive(Clone, Copy, Debug)]
pub enum Section<'a> {
    /// Of 8 bits.
    U8(&'a [u8]),
    /// Of 16 bits.
    U16(&'a [u16]),
    /// Of 32 bits.
    U32(&'a [u32]),
    /// Of 64 bits.
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
    /// Byte offset of a number of the layout, or of a section's offset or size, in an image.
    pub const fn field_at(index: usize) -> usize {
        std::mem::offset_of!(ImageHeader, section) + index * size_of::<u32>()
    }

    /// Reads the header and checks everything that does not depend on the layout.
    pub fn read(image: &[u8]) -> Result<Self, ImageError> {
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

    /// Like [`Header::section`], for a section whose position is a constant in C.
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
