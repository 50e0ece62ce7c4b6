//! Memory between two forbidden pages. A test that reads or writes outside of it is killed.

use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;

/// Bytes at the end of a mapping. The pages before and behind the mapping are forbidden.
pub struct Guarded {
    mapping: *mut u8,
    mapped: usize,
    start: *mut u8,
}

impl Guarded {
    /// Room for `bytes`; the start is aligned, and fewer than `align` bytes lie between the end and the forbidden page.
    pub fn zeroed(bytes: usize, align: usize) -> Self {
        let (inside, taken) = (bytes.next_multiple_of(PAGE), bytes.next_multiple_of(align));
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let mapped = PAGE + inside + PAGE;
        // SAFETY: a mapping of its own; the two protections change pages of it that nothing refers to.
        let mapping = unsafe {
            let mapping = mmap_anonymous(ptr::null_mut(), mapped, access, flags).unwrap().cast::<u8>();
            mprotect(mapping.cast(), PAGE, MprotectFlags::empty()).unwrap();
            mprotect(mapping.add(PAGE + inside).cast(), PAGE, MprotectFlags::empty()).unwrap();
            mapping
        };
        // SAFETY: inside of the mapping, as `taken` is at most `inside`.
        let start = unsafe { mapping.add(PAGE + inside - taken) };
        Guarded { mapping, mapped, start }
    }

    /// A copy of the words.
    pub fn copy<T: Copy>(words: &[T], align: usize) -> Self {
        let guarded = Self::zeroed(size_of_val(words), align);
        // SAFETY: as many bytes are there, aligned as the caller says, and nothing refers to them.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), guarded.start.cast(), words.len()) };
        guarded
    }

    /// Where the bytes are.
    pub fn start<T>(&self) -> *mut T {
        self.start.cast()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `zeroed`, and nothing refers to it any more.
        unsafe { munmap(self.mapping.cast(), self.mapped) }.unwrap();
    }
}
