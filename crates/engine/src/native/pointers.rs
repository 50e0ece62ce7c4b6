//! What compiled code finds in a burst: pointers into memory that the filter keeps.

use std::io;
use std::sync::Arc;

use weir_abi::burst;
use weir_abi::slot::{STRIPES, SlotImage};
use weir_state::slots::RuleSlot;
use weir_state::tables::{Counted, TableImage};

/// What one worker counts at entries of tables, by slot.
pub(super) struct CountedSlots {
    /// Empty if no table has counters.
    slots: Vec<burst::TableEntries>,
    /// The memory that `slots` points into.
    _counters: Vec<Arc<Counted>>,
    _images: Vec<TableImage>,
}

// SAFETY: only `NativeFilter::decide` uses the pointers, in code that the worker calls.
unsafe impl Send for CountedSlots {}
// SAFETY: as above.
unsafe impl Sync for CountedSlots {}

impl CountedSlots {
    /// The counters of a worker for the images of all slots.
    pub(super) fn new(images: &[Option<TableImage>], worker: usize) -> io::Result<Self> {
        let mut counted = CountedSlots { slots: Vec::new(), _counters: Vec::new(), _images: Vec::new() };
        if images.iter().all(Option::is_none) {
            return Ok(counted);
        }
        for image in images {
            let Some(counters) = image.as_ref().and_then(TableImage::counters) else {
                counted.slots.push(burst::TableEntries::NONE);
                continue;
            };
            let own = counters.of_worker(worker)?;
            counted.slots.push(burst::TableEntries { counters: own.as_ptr(), labels: counters.labels() });
            counted._counters.push(own);
            counted._images.extend(image.clone());
        }
        Ok(counted)
    }

    /// Whether no table has counters.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// As C takes it.
    pub(super) fn as_c(&self) -> burst::Entries {
        match self.slots.is_empty() {
            true => burst::Entries::NONE,
            false => burst::Entries { tables: self.slots.as_ptr() },
        }
    }
}

/// Pointers to images, by slot.
#[derive(Clone)]
pub(super) struct ImagePointers(pub(super) Vec<*const u8>);

// SAFETY: only `NativeFilter::decide` reads them. They point into images that the code of the filter owns, or that its
// reader protects for the burst.
unsafe impl Send for ImagePointers {}
// SAFETY: as above.
unsafe impl Sync for ImagePointers {}

/// Pointers to the slots of rules, and the stripe of their counters that the worker uses.
pub(super) struct SlotPointers {
    slots: Vec<*mut SlotImage>,
    stripe: u64,
}

// SAFETY: only `NativeFilter::decide` uses the pointers, in code that the worker calls. They point into slots that the
// code of the filter owns, and compiled code changes them by atomic operations only.
unsafe impl Send for SlotPointers {}
// SAFETY: as above.
unsafe impl Sync for SlotPointers {}

impl SlotPointers {
    /// The pointers of a worker.
    pub(super) fn new(slots: &[Arc<RuleSlot>], worker: usize) -> Self {
        let slots = slots.iter().map(|slot| slot.as_ptr()).collect();
        SlotPointers { slots, stripe: (worker % STRIPES) as u64 }
    }

    /// As C takes them.
    pub(super) fn as_c(&self) -> burst::Slots {
        match self.slots.is_empty() {
            true => burst::Slots::NONE,
            false => burst::Slots { slots: self.slots.as_ptr(), stripe: self.stripe },
        }
    }
}
