//! The state that a program is bound to, for every engine.

use std::sync::Arc;

use weir_state::feature_store::FeatureBinding;
use weir_state::flow_store::FlowBinding;
use weir_state::limits::Limits;
use weir_state::slot_store::SlotBinding;
use weir_state::tables::{EntryMaps, KernelImage, LiveTables, Published};

use crate::image::Image;

/// The state that a program is bound to, one field for each kind. By default it has none. A clone shares it.
#[derive(Clone, Default)]
pub struct Bound {
    /// Images in slot order.
    pub images: Vec<Arc<Image>>,
    /// The data of limiters, if the program has any.
    pub limits: Option<Limits>,
    /// The tables that can change, if there are any. `images` has their images at the time of binding.
    pub tables: Option<LiveTables>,
    /// The flows, if the program tracks.
    pub flows: Arc<FlowBinding>,
    /// The slots of rules.
    pub slots: Arc<SlotBinding>,
    /// What is observed, if the program observes.
    pub features: Arc<FeatureBinding>,
}

impl Bound {
    /// The state of a program that has nothing but tables, which do not change.
    pub fn of_images(images: Vec<Arc<Image>>) -> Self {
        Bound { images, ..Bound::default() }
    }

    /// The map of the image in a slot, if the table can change.
    pub(crate) fn map_of(&self, slot: usize) -> Option<&Arc<KernelImage>> {
        match self.tables.as_ref()?.images.get(slot)?.as_ref()? {
            Published::Map(map) => Some(map),
            Published::Pointer(_) | Published::Constant => None,
        }
    }

    /// The maps of the counters of a slot's entries.
    pub(crate) fn entry_maps_of(&self, slot: usize) -> Option<EntryMaps<'_>> {
        self.tables.as_ref()?.counted.get(slot)?.as_ref()?.counters()?.maps()
    }

    /// The maps of all tables that can change, with their slots.
    pub(crate) fn maps(&self) -> impl Iterator<Item = (usize, &Arc<KernelImage>)> {
        (0..self.images.len()).filter_map(|slot| Some((slot, self.map_of(slot)?)))
    }
}
