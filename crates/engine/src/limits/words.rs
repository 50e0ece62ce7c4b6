//! Arrays of words, one a bucket, that workers or the kernel's programs write while others read them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU64;

use libbpf_rs::libbpf_sys::{BPF_F_MMAPABLE, bpf_map_create_opts};
use libbpf_rs::{MapHandle, MapType};
use memmap2::{MmapOptions, MmapRaw};

use crate::EngineError;

/// The most buckets: 512 MiB of them.
pub const BUCKETS_MAX: usize = 1 << 26;

/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// Words of 64 bits, all 0 at first.
pub struct Words {
    memory: MmapRaw,
    count: usize,
    /// What the kernel knows them as, if its programs write them.
    map: Option<MapHandle>,
}

// SAFETY: the words are only read and written as atomics, here and by compiled code.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// So many in memory of this process; what is not touched takes none.
    ///
    /// # Errors
    /// There is no such memory, or more than [`BUCKETS_MAX`] are asked for.
    pub(super) fn reserve(count: usize) -> Result<Self, EngineError> {
        let failed = |problem: String| EngineError::Buckets { count, problem };
        let bytes = Self::bytes(count)?;
        // The kernel puts what is whole huge pages where huge pages begin.
        let bytes = if bytes < HUGE_BYTES / 2 { bytes } else { bytes.next_multiple_of(HUGE_BYTES) };
        let mapped = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let memory: MmapRaw = mapped.map_err(|error| failed(error.to_string()))?.into();
        // A kernel may have no huge pages; then random buckets cost a walk of the page tables each.
        let _no_huge_pages = memory.advise(memmap2::Advice::HugePage);
        Ok(Words { memory, count, map: None })
    }

    /// Bytes of so many; no memory has none.
    fn bytes(count: usize) -> Result<usize, EngineError> {
        match count > BUCKETS_MAX {
            true => Err(EngineError::Buckets { count, problem: format!("there are at most {BUCKETS_MAX}") }),
            false => Ok(count.max(1) * size_of::<u64>()),
        }
    }

    /// Those in the memory of a map.
    pub(crate) fn of_map(memory: MmapRaw) -> Self {
        let count = memory.len() / size_of::<u64>();
        Words { memory, count, map: None }
    }

    /// So many that programs of all generations in the kernel write.
    ///
    /// # Errors
    /// The kernel has no such memory for us, or more than [`BUCKETS_MAX`] are asked for.
    pub(super) fn in_kernel(name: &str, count: usize) -> Result<Self, EngineError> {
        let failed = |problem: String| EngineError::Buckets { count, problem };
        let bytes = Self::bytes(count)?;
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            map_flags: BPF_F_MMAPABLE,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some(name), 4, bytes as u32, 1, &options)
            .map_err(|error| failed(error.to_string()))?;
        let memory = MmapOptions::new().len(bytes).map_raw(map.as_fd().as_raw_fd());
        let memory = memory.map_err(|error| failed(error.to_string()))?;
        Ok(Words { memory, count, map: Some(map) })
    }

    /// As many where others are: in the kernel or in this process.
    ///
    /// # Errors
    /// There is no such memory.
    pub(super) fn beside(&self, name: &str) -> Result<Self, EngineError> {
        match &self.map {
            Some(_) => Self::in_kernel(name, self.count),
            None => Self::reserve(self.count),
        }
    }

    /// The map that they are in, if it is one for programs of all generations.
    pub(crate) fn map(&self) -> Option<BorrowedFd<'_>> {
        self.map.as_ref().map(|map| map.as_fd())
    }

    /// What compiled code writes.
    pub(crate) fn as_ptr(&self) -> *mut u64 {
        self.memory.as_mut_ptr().cast()
    }

    /// All of them.
    pub(super) fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has as many words, begins at a page and lives as long as the borrow; everyone else's access is atomic too.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.count) }
    }
}
