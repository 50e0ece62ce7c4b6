//! Memory for two images. Programs in the kernel read one of them.
//!
//! ```text
//!   | half 0: the image that programs read |  half 1: free, or still read by programs that began before the swap |
//! ```
//! A program in the kernel cannot follow a pointer of user space. So the next image is built beside the running one,
//! copied into the other half, and the programs are told to read that half. Changes in place are made by the same
//! stores as in user space. Programs in the kernel are one reader of the registry ([`super::Reader::pass`]).

/// Two parts of one memory, of equal size. A reader uses one of them from the start of a packet to its end.
///
/// # Safety
/// Each half begins at a multiple of 64 and has [`TwoHalves::capacity`] bytes as long as the value lives. Only one
/// publisher writes them.
pub unsafe trait TwoHalves: Send + Sync {
    /// Bytes of a half.
    fn capacity(&self) -> usize;
    /// The first byte of half 0 or 1.
    fn start(&self, half: usize) -> *mut u8;
    /// Tells readers to use a half from their next packet on. What was written to it before is visible to them.
    fn select(&self, half: usize);
}
