//! The data that a program in the kernel is compiled and loaded with.

use std::sync::Arc;

use weir_state::features::Features;
use weir_state::flows::FlowTable;
use weir_state::limits::Limits;
use weir_state::slots::RuleSlot;
use weir_state::tables::{EntryMaps, KernelImage, LiveTables, Published};

use crate::image::Image;

/// Images, limits and tables of a program.
#[derive(Clone, Copy)]
pub struct ProgramData<'a> {
    /// Images in slot order.
    pub images: &'a [Arc<Image>],
    /// The data of limiters, if the program has any.
    pub limits: Option<&'a Limits>,
    /// The tables that can change, if there are any.
    pub tables: Option<&'a LiveTables>,
    /// The flows, if the program tracks.
    pub flows: Option<&'a Arc<FlowTable>>,
    /// The slots of rules, in their order.
    pub slots: &'a [Arc<RuleSlot>],
    /// What is observed, if the program observes.
    pub features: Option<&'a Arc<Features>>,
}

impl<'a> ProgramData<'a> {
    /// The data of a program without limiters, whose tables do not change.
    pub fn constant(images: &'a [Arc<Image>]) -> Self {
        ProgramData { images, limits: None, tables: None, flows: None, slots: &[], features: None }
    }

    /// The map of the image in a slot, if the table can change.
    pub(crate) fn map_of(&self, slot: usize) -> Option<&'a Arc<KernelImage>> {
        match self.tables?.images.get(slot)?.as_ref()? {
            Published::Map(map) => Some(map),
            Published::Pointer(_) | Published::Constant => None,
        }
    }

    /// The maps of the counters of a slot's entries.
    pub(crate) fn entry_maps_of(&self, slot: usize) -> Option<EntryMaps<'a>> {
        self.tables?.counted.get(slot)?.as_ref()?.counters()?.maps()
    }

    /// The maps of all tables that can change, with their slots.
    pub(crate) fn maps(&self) -> impl Iterator<Item = (usize, &'a Arc<KernelImage>)> {
        (0..self.images.len()).filter_map(|slot| Some((slot, self.map_of(slot)?)))
    }
}
