//! The tables that a program is bound to.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_abi::{Burst, burst};
use weir_tables::live::Readers;

use super::additions::{Adders, Additions, ReplayedTables};
use super::entry_counters::EntryMaps;
use super::image::TableImage;
use super::kernel::KernelImage;
use super::published::Published;
use super::table_images::TableBinding;
use crate::bound_kind::{BoundKind, StateShape, Worker, expect};

/// Prefix of the names of the maps of images, before the number of the slot.
pub const TABLE: &str = ".bss.table";
/// Prefix of the names of the maps of counters of entries.
pub const ENTRIES: &str = ".bss.entries";
/// Prefix of the names of the maps of labels of entries.
pub const LABELS: &str = ".bss.labels";

/// The tables that a program looks up and that can change.
#[derive(Clone)]
pub struct LiveTables {
    /// The registry for workers that read the images.
    pub readers: Readers,
    /// The images by slot; `None` for slots that are no tables.
    pub images: Vec<Option<Published>>,
    /// The images of tables with counters by slot; `None` for others.
    pub counted: Vec<Option<TableImage>>,
    /// The images of the generation. They stay shared while this value lives.
    pub binding: Arc<TableBinding>,
    /// How rules change them.
    pub by_rules: ByRules,
}

/// How rules of a program change its tables.
#[derive(Clone)]
pub enum ByRules {
    /// No rule adds to a table.
    Never,
    /// Workers and programs queue additions, which a thread applies every 10 ms.
    Queued(Arc<Additions>, Adders),
    /// A replay applies additions, and lets entries expire, in the time of its packets.
    Replayed(ReplayedTables),
}

impl LiveTables {
    /// The map of the image in a slot, if the table can change.
    pub fn map_of(&self, slot: usize) -> Option<&Arc<KernelImage>> {
        match self.images.get(slot)?.as_ref()? {
            Published::Map(map) => Some(map),
            Published::Pointer(_) | Published::Constant => None,
        }
    }

    /// The maps of the counters of a slot's entries.
    pub fn entry_maps_of(&self, slot: usize) -> Option<EntryMaps<'_>> {
        self.counted.get(slot)?.as_ref()?.counters()?.maps()
    }

    /// The maps of all images that can change, with their slots.
    pub fn image_maps(&self) -> impl Iterator<Item = (usize, &Arc<KernelImage>)> {
        (0..self.images.len()).filter_map(|slot| Some((slot, self.map_of(slot)?)))
    }

    /// Number of adders of the program.
    fn adders(&self) -> usize {
        match &self.by_rules {
            ByRules::Never => 0,
            ByRules::Queued(_, adders) => adders.adders.len(),
            ByRules::Replayed(replayed) => replayed.adders.adders.len(),
        }
    }

    fn has_counters(&self) -> bool {
        self.counted.iter().any(Option::is_some)
    }

    fn maps(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        let images = self.image_maps().map(|(slot, map)| (format!("{TABLE}{slot}"), map.map()));
        let entries = (0..self.counted.len()).filter_map(|slot| Some((slot, self.entry_maps_of(slot)?)));
        images.chain(entries.flat_map(|(slot, EntryMaps { counters, labels, .. })| {
            let labels = labels.map(|labels| (format!("{LABELS}{slot}"), labels));
            std::iter::once((format!("{ENTRIES}{slot}"), counters)).chain(labels)
        }))
    }
}

impl BoundKind for Option<LiveTables> {
    fn check(&self, expected: &StateShape) -> Result<(), String> {
        let found = self.as_ref().map_or(0, LiveTables::adders);
        expect("adders", found, expected.adders)
    }

    fn maps(&self) -> Vec<(String, BorrowedFd<'_>)> {
        self.iter().flat_map(LiveTables::maps).collect()
    }

    /// What the worker counts at entries. Images may be others in each burst.
    fn point(&self, worker: Worker, burst: &mut Burst) -> io::Result<Box<dyn Any>> {
        let Some(tables) = self.as_ref().filter(|tables| tables.has_counters()) else { return Ok(Box::new(())) };
        let (mut slots, mut memory) = (Vec::new(), Vec::new());
        for image in &tables.counted {
            let Some(counters) = image.as_ref().and_then(TableImage::counters) else {
                slots.push(burst::TableEntries::default());
                continue;
            };
            let own = counters.of_worker(worker.number)?;
            slots.push(burst::TableEntries { counters: own.as_ptr(), labels: counters.labels() });
            memory.push(own);
        }
        burst.entries = burst::Entries { tables: slots.as_ptr() };
        Ok(Box::new((slots, memory)))
    }

    fn needs_times(&self) -> bool {
        self.as_ref().is_some_and(LiveTables::has_counters)
    }
}
