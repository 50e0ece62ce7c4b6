//! The two places where state can be.

/// Where state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// In this process, for native code and replays. Untouched pages take no memory.
    Process,
    /// In maps that programs in the kernel share with this process. Maps take all of their memory at once.
    Kernel,
}
