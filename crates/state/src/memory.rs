//! Where state is, and which code uses it.

/// Where state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// In this process, for native code. Untouched pages take no memory.
    Process,
    /// In maps that programs in the kernel share with this process. Maps take all of their memory at once.
    Kernel,
}

/// The code that uses shared state. It says where the state is, and how much is reserved.
#[derive(Clone, Copy, Debug)]
pub enum UsedBy {
    /// Exactly one policy, which decides replayed packets, with fixed secrets: runs on captures repeat to the bit.
    /// Tables, flows, slots and features are in this memory, buckets in the process.
    Replay(Memory),
    /// Workers of this process, with all policies to come. Untouched pages take no memory, so as much as possible is
    /// reserved.
    Workers,
    /// Programs in the kernel.
    Kernel {
        /// Number of limits to reserve. Without it, as many as the first policy has, and a quarter more.
        limits_room: Option<usize>,
    },
}

impl UsedBy {
    /// Where the state is.
    pub fn memory(self) -> Memory {
        match self {
            UsedBy::Replay(memory) => memory,
            UsedBy::Workers => Memory::Process,
            UsedBy::Kernel { .. } => Memory::Kernel,
        }
    }

    /// Whether it is a replay.
    pub fn is_replay(self) -> bool {
        matches!(self, UsedBy::Replay(_))
    }
}
