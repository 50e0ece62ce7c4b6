//! Images of tables, and aligned memory.

use std::ops::{Deref, DerefMut};

use weir_state::limits::Limits;
pub use weir_tables::Image;

/// Maximum size of an image in bytes: what a BPF program can address in one map value (`BPF_MAX_VAR_OFF`).
pub const IMAGE_BYTES_MAX: usize = 1 << 29;

/// Bytes that a BPF program reserves for an image: a power of two.
pub fn capacity_bytes(image: &Image) -> u32 {
    let bytes = image.as_bytes().len().next_power_of_two();
    u32::try_from(bytes).expect("ProgramShape::check refuses images over IMAGE_BYTES_MAX")
}

/// Bytes that a BPF program reserves for the image of limits: a power of two.
pub(crate) fn limits_capacity_bytes(limits: &Limits) -> u32 {
    let bytes = u32::try_from(limits.image.as_bytes().len().next_power_of_two());
    bytes.expect("an image of limits has less than 4 GiB")
}

/// Alignment of frames: a cache line.
const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

const _: () = assert!(size_of::<Line>() == LINE && align_of::<Line>() == LINE);

/// Bytes whose address is a multiple of 64.
#[derive(Clone)]
pub(crate) struct AlignedBytes {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBytes {
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        let lines = vec![Line([0; LINE]); bytes.len().div_ceil(LINE)];
        let mut aligned = AlignedBytes { lines, len: bytes.len() };
        aligned.copy_from_slice(bytes);
        aligned
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `lines` holds at least `len` initialised bytes without padding (see the assertion above).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed exclusively and every bit pattern is a valid byte.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
