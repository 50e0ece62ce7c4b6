//! The taps that want packets of a policy, by reason.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapRaw;
use weir_abi::Reason;

use super::filter::{PolicyNames, TapFilter};

/// A byte for each reason of a policy: a bit for each tap that wants its packets.
pub(in crate::live) struct PolicyBits {
    number: u32,
    names: Mutex<Arc<PolicyNames>>,
    memory: Memory,
}

enum Memory {
    Own(Box<[AtomicU8]>),
    /// Memory of programs in the kernel: `reasons` bytes at `at`.
    Mapped {
        memory: MmapRaw,
        at: usize,
        reasons: usize,
    },
}

// SAFETY: the mapping keeps its map alive. This process writes its bytes as atomics, and programs only read them.
unsafe impl Send for PolicyBits {}
// SAFETY: as above.
unsafe impl Sync for PolicyBits {}

impl PolicyBits {
    /// Bits for workers.
    pub fn own(number: u32, reasons: usize, names: Arc<PolicyNames>) -> Self {
        let memory = Memory::Own((0..reasons).map(|_| AtomicU8::new(0)).collect());
        PolicyBits { number, names: Mutex::new(names), memory }
    }

    /// Bits in memory of programs, whose policy has no names yet.
    ///
    /// # Panics
    /// Panics if the memory is too short.
    pub fn mapped(number: u32, memory: MmapRaw, at: usize, reasons: usize) -> Self {
        assert!(at + reasons <= memory.len(), "the section has a byte for each reason");
        PolicyBits { number, names: Mutex::default(), memory: Memory::Mapped { memory, at, reasons } }
    }

    fn bytes(&self) -> &[AtomicU8] {
        match &self.memory {
            Memory::Own(bytes) => bytes,
            Memory::Mapped { memory, at, reasons } => {
                // SAFETY: `mapped` checked the length, the mapping lives as long as `self`, and any byte is valid.
                unsafe { std::slice::from_raw_parts(memory.as_ptr().add(*at).cast(), *reasons) }
            }
        }
    }

    /// The number of its policy, which is never used again.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The names of its rules.
    pub fn names(&self) -> Arc<PolicyNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names its rules.
    pub fn name(&self, names: Arc<PolicyNames>) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The taps that want packets with this reason.
    pub fn of(&self, reason: Reason) -> u8 {
        self.bytes().get(usize::from(reason.0)).map_or(0, |bits| bits.load(Ordering::Relaxed))
    }

    /// Sets or clears the bit of a tap for all reasons.
    pub fn set(&self, tap: usize, filter: &TapFilter) {
        let names = self.names();
        for (reason, bits) in (0..).zip(self.bytes()) {
            match filter.wants(Reason(reason), &names) {
                true => _ = bits.fetch_or(1 << tap, Ordering::Release),
                false => _ = bits.fetch_and(!(1 << tap), Ordering::Release),
            }
        }
    }
}
