//! The data that native code is loaded with, and what it finds of it in a burst.

use std::sync::Arc;

use weir_abi::burst;
use weir_abi::slot::{STRIPES, SlotImage};
use weir_state::features::Features;
use weir_state::flows::FlowTable;
use weir_state::limits::Limits;
use weir_state::slots::RuleSlot;
use weir_state::tables::LiveTables;

use crate::image::Image;

/// The data that native code is loaded with.
pub struct NativeData {
    /// Images in slot order.
    pub images: Vec<Arc<Image>>,
    /// The data of limiters, if the program has any.
    pub limits: Option<Limits>,
    /// The tables that can change, if there are any.
    pub tables: Option<LiveTables>,
    /// The flows, if the program tracks.
    pub flows: Option<Arc<FlowTable>>,
    /// The slots of rules, in their order.
    pub slots: Vec<Arc<RuleSlot>>,
    /// What is observed, if the program observes.
    pub features: Option<Arc<Features>>,
}

impl NativeData {
    /// The data of a program that has nothing but tables, which do not change.
    pub fn constant(images: Vec<Arc<Image>>) -> Self {
        NativeData { images, limits: None, tables: None, flows: None, slots: vec![], features: None }
    }
}

/// Pointers to the slots of rules, and the stripe of their counters that the worker uses.
pub(crate) struct SlotPointers {
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
    pub(crate) fn new(slots: &[Arc<RuleSlot>], worker: usize) -> Self {
        let slots = slots.iter().map(|slot| slot.as_ptr()).collect();
        SlotPointers { slots, stripe: (worker % STRIPES) as u64 }
    }

    /// As C takes them.
    pub(crate) fn as_c(&self) -> burst::Slots {
        match self.slots.is_empty() {
            true => burst::Slots::NONE,
            false => burst::Slots { slots: self.slots.as_ptr(), stripe: self.stripe },
        }
    }
}
