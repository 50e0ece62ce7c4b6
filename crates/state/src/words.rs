//! Arrays of 64-bit words that workers or programs in the kernel write while other threads read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::StateError;
use crate::kernel_map::{handed_array, mapped_array};

/// Maximum number of buckets. They take 512 MiB.
pub const BUCKETS_MAX: usize = 1 << 26;

/// Size of a huge page in bytes.
const HUGE_BYTES: usize = 2 << 20;

/// 64-bit words, initially 0.
pub struct Words {
    memory: MmapRaw,
    count: usize,
    /// The kernel's map, if programs in the kernel write the words.
    map: Option<OwnedFd>,
}

// SAFETY: the words are accessed only as atomics, here and by compiled code.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Reserves `count` words of buckets in the memory of this process. Untouched pages take no memory.
    ///
    /// # Errors
    /// There is not enough memory, or `count` exceeds [`BUCKETS_MAX`].
    pub(crate) fn reserve(count: usize) -> Result<Self, StateError> {
        check(count)?;
        Self::of_process(count).map_err(|source| StateError::Memory { count, source })
    }

    /// Reserves `count` words in the memory of this process. Untouched pages take no memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn of_process(count: usize) -> io::Result<Self> {
        Ok(Words { memory: zeros(Self::bytes(count))?, count, map: None })
    }

    /// Reserves `count` words in a map of the kernel, which takes all of its memory.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub(crate) fn of_kernel(name: &str, count: usize) -> io::Result<Self> {
        let (map, memory) = mapped_array(name, Self::bytes(count), 1)?;
        Ok(Words { memory, count, map: Some(map) })
    }

    /// Size in bytes of `count` words, at least one.
    fn bytes(count: usize) -> usize {
        count.max(1) * size_of::<u64>()
    }

    /// Words in the memory of a map.
    pub fn of_map(memory: MmapRaw) -> Self {
        let count = memory.len() / size_of::<u64>();
        Words { memory, count, map: None }
    }

    /// Reserves `count` words of buckets for programs of all generations in the kernel.
    ///
    /// # Errors
    /// The kernel refuses the memory, or `count` exceeds [`BUCKETS_MAX`].
    pub(crate) fn in_kernel(name: &str, count: usize) -> Result<Self, StateError> {
        check(count)?;
        Self::of_kernel(name, count).map_err(|source| StateError::Memory { count, source })
    }

    /// Reserves `elements` elements of `bytes` bytes each for programs of all generations in the kernel: one after the
    /// other, as programs look them up by number.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub(crate) fn elements_of_kernel(name: &str, bytes: usize, elements: u32) -> io::Result<Self> {
        let count = bytes / size_of::<u64>() * elements as usize;
        let (map, memory) = mapped_array(name, bytes, elements)?;
        Ok(Words { memory, count, map: Some(map) })
    }

    /// The words of a map that the program before this one in its process has handed over.
    ///
    /// # Errors
    /// It is not such a map.
    pub(crate) fn handed(map: OwnedFd, name: &str, bytes: usize, elements: u32) -> io::Result<Self> {
        let count = bytes / size_of::<u64>() * elements as usize;
        let memory = handed_array(&map, name, bytes, elements)?;
        Ok(Words { memory, count, map: Some(map) })
    }

    /// The words of a map like those of `of_kernel`, handed over.
    ///
    /// # Errors
    /// It is not such a map.
    pub(crate) fn handed_block(map: OwnedFd, name: &str, count: usize) -> io::Result<Self> {
        Self::handed(map, name, Self::bytes(count), 1)
    }

    /// Reserves the same number of words in the same kind of memory: in the kernel or in this process.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn beside(&self, name: &str) -> Result<Self, StateError> {
        match &self.map {
            Some(_) => Self::in_kernel(name, self.count),
            None => Self::reserve(self.count),
        }
    }

    /// The map of the words, if programs of all generations in the kernel share it.
    pub fn map(&self) -> Option<BorrowedFd<'_>> {
        self.map.as_ref().map(|map| map.as_fd())
    }

    /// The words for compiled code.
    pub fn as_ptr(&self) -> *mut u64 {
        self.memory.as_mut_ptr().cast()
    }

    /// All words.
    pub(crate) fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `count` words, starts at a page and lives as long as the borrow. All other accesses
        // are atomic too.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.count) }
    }
}

fn check(count: usize) -> Result<(), StateError> {
    match count > BUCKETS_MAX {
        true => Err(StateError::Buckets { count, problem: format!("there are at most {BUCKETS_MAX}") }),
        false => Ok(()),
    }
}

/// Memory of this process of at least `bytes` zeros. Untouched pages take none.
///
/// # Errors
/// There is not enough memory.
pub(crate) fn zeros(bytes: usize) -> io::Result<MmapRaw> {
    // The kernel aligns mappings of whole huge pages to huge pages.
    let bytes = if bytes < HUGE_BYTES / 2 { bytes } else { bytes.next_multiple_of(HUGE_BYTES) };
    let memory: MmapRaw = MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?.into();
    // A kernel may have no huge pages. Each access to a random word then walks the page tables.
    let _no_huge_pages = memory.advise(Advice::HugePage);
    Ok(memory)
}
