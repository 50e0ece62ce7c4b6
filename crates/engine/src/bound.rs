//! What a program is bound to, for every engine: its images and its state.

use std::sync::Arc;

use weir_state::BoundState;
use weir_state::tables::{EntryMaps, KernelImage};
use weir_state::tracked::TrackedCounts;

use crate::image::Image;
use crate::native::Controller;

/// What a program is bound to. By default it has nothing. A clone shares it.
#[derive(Clone, Default)]
pub struct Bound {
    /// Images in slot order. Of tables that can change, those at the time of binding.
    pub images: Vec<Arc<Image>>,
    /// The state, which outlives the program.
    pub state: BoundState,
    /// The controller of a P4 program's pipelines, if they have one.
    pub controller: Option<Controller>,
    /// What pipelines with a controller add their counts to.
    pub tracked: Option<Arc<TrackedCounts>>,
}

impl Bound {
    /// What a program is bound to that has nothing but tables, which do not change.
    pub fn of_images(images: Vec<Arc<Image>>) -> Self {
        Bound { images, ..Bound::default() }
    }

    /// The map of the image in a slot, if the table can change.
    pub(crate) fn map_of(&self, slot: usize) -> Option<&Arc<KernelImage>> {
        self.state.tables.as_ref()?.map_of(slot)
    }

    /// The maps of the counters of a slot's entries.
    pub(crate) fn entry_maps_of(&self, slot: usize) -> Option<EntryMaps<'_>> {
        self.state.tables.as_ref()?.entry_maps_of(slot)
    }
}
