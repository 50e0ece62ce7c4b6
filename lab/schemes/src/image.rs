//! Images of schemes. Like table images they are flat, position-independent, little-endian bytes that start with a
//! [`weir_abi::ImageHeader`]. Their layout words differ from the words of table images, and they are never read from
//! outside.
//!
//! `section[2 * i]` and `section[2 * i + 1]` of the header are the offset and size of section `i`. Sections are in
//! order, each aligned to 64 bytes.

use std::fmt;

use weir_abi::ImageHeader;
use weir_abi::image::IMAGE_MAGIC;
use weir_tables::image::Section;
use weir_tables::image_memory::ImageMemory;

use crate::{Scheme, SchemeError};

/// The layout word of a scheme is this plus its index in [`Scheme::ALL`].
const LAYOUT_BASE: u32 = 0x100;

/// Bytes of the header, and the alignment of sections.
pub(crate) const HEADER_BYTES: usize = size_of::<ImageHeader>();

/// The index of the first section field, in words of the header.
const SECTION_WORD: usize = 6;

/// The image of a table in a scheme.
pub struct SchemeImage {
    scheme: Scheme,
    sections: Vec<&'static str>,
    memory: ImageMemory,
}

impl SchemeImage {
    /// The image, including the header; its address is a multiple of 4096.
    pub fn as_bytes(&self) -> &[u8] {
        &self.memory
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Name and size in bytes of each section. Header and padding are not counted.
    pub fn sections(&self) -> Vec<(&'static str, usize)> {
        let bytes = self.as_bytes();
        self.sections.iter().enumerate().map(|(index, &name)| (name, section_field(bytes, 2 * index + 1))).collect()
    }
}

impl fmt::Debug for SchemeImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemeImage").field("scheme", &self.scheme.name()).field("sections", &self.sections()).finish()
    }
}

/// Word `field` of the header's section fields.
fn section_field(bytes: &[u8], field: usize) -> usize {
    let (words, _) = bytes[..HEADER_BYTES].as_chunks::<4>();
    u32::from_le_bytes(words[SECTION_WORD + field]) as usize
}

/// Section `index` as words of `N` bytes.
pub(super) fn section<const N: usize>(bytes: &[u8], index: usize) -> &[[u8; N]] {
    let offset = section_field(bytes, 2 * index);
    let (words, rest) = bytes[offset..offset + section_field(bytes, 2 * index + 1)].as_chunks();
    assert!(rest.is_empty(), "compiler bug: a section of half words");
    words
}

/// A word of one byte.
pub(super) type Byte = [u8; 1];

/// Lays out sections and writes them.
pub(super) struct Writer {
    pub scheme: Scheme,
    pub entries: u32,
    pub labels: u32,
}

impl Writer {
    /// An image of the given sections.
    pub fn write(&self, sections: &[(&'static str, Section<'_>)]) -> Result<SchemeImage, SchemeError> {
        let mut fields = [0; 10];
        let mut bytes = HEADER_BYTES;
        for (index, (_, section)) in sections.iter().enumerate() {
            let offset = bytes.next_multiple_of(HEADER_BYTES);
            bytes = offset + section.bytes();
            // Lookups compute offsets in 32 bits.
            if u32::try_from(bytes).is_err() {
                return Err(SchemeError::TooBig { scheme: self.scheme });
            }
            fields[2 * index] = offset as u32;
            fields[2 * index + 1] = section.bytes() as u32;
        }
        let mut image = ImageMemory::zeroed(bytes);
        let place = Scheme::ALL.iter().position(|&scheme| scheme == self.scheme).expect("all schemes are in ALL");
        let head = [IMAGE_MAGIC, LAYOUT_BASE + place as u32, self.entries, self.labels, bytes as u32, 0];
        let (words, _) = image[..HEADER_BYTES].as_chunks_mut();
        words.iter_mut().zip(head.into_iter().chain(fields)).for_each(|(out, word)| *out = word.to_le_bytes());
        for (index, (_, section)) in sections.iter().enumerate() {
            section.write(&mut image[fields[2 * index] as usize..]);
        }
        let names = sections.iter().map(|&(name, _)| name).collect();
        Ok(SchemeImage { scheme: self.scheme, sections: names, memory: image })
    }
}
