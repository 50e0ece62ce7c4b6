//! Tables that change while threads read them.
//!
//! ```text
//! LiveTable (one writer)                                     LiveImage (any number of threads)
//!   insert, remove, change, replace                            open(&burst) -> LiveView: find4, find6, as_ptr for C
//!        |                                                          |
//!        |  one aligned store after another                         |  loads once per burst
//!        v                                                          v
//!   +-- image -------------------------------+      +-- pointer to the image --+
//!   | words that are written and read whole  | <----|  one aligned word        |
//!   +----------------------------------------+      +--------------------------+
//! ```
//! Readers never wait. Every lookup returns what the table held for the key before a change or after it. How a change
//! is made depends on the layout:
//!
//! | layout | method | file |
//! | --- | --- | --- |
//! | exact sets | in place, one slot at a time | exact.rs, exact6.rs |
//! | rank leaves | the touched part is rebuilt in spare room and linked by one word | rank.rs |
//! | exact leaves | as exact sets for hosts, as rank leaves for other prefixes | exact_leaf.rs |
//! | others | a new image is built beside the old one, and the pointer is swapped | here |
//!
//! Unlinked memory (an image, a line, half a slot) is reused after every reader has begun another burst: epochs.rs,
//! readers.rs. A burst may see a part of a batch of keys, unless the batch is made at once ([`LiveTable::at_once`]).

mod apply;
mod batch;
mod change;
mod entry;
mod epochs;
mod exact;
mod exact6;
mod exact_leaf;
mod halves;
mod numbers;
mod pools;
mod published;
mod rank;
mod readers;
mod rib;
mod shared;
mod step;
mod two_halves;

#[cfg(test)]
mod models;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_abi::{Family, Layout};

use crate::build;
use crate::cells::CellsMut;
use crate::entries::{Kind, Labels, Table};
use crate::image::{BuildError, Image, LABELS_MAX};
use crate::layout::exact_leaf::host_lengths;
use crate::layout::{Room, exact_set6, exact_sets};
use crate::problem::{LABEL_BYTES_MAX, Problem};
use change::To;
pub use change::{Change, LiveError};
pub use entry::LiveEntry;
use exact::{ExactWriter, Full};
use exact_leaf::ExactLeafWriter;
use exact6::Exact6Writer;
pub use numbers::NumberedMemory;
use numbers::Numbers;
use published::Publisher;
pub use published::{IMAGES_WAITING_MAX, LiveImage, LiveView, PublishedImage};
use rank::RankWriter;
pub use readers::{Burst, READERS_MAX, Reader, Readers};
use rib::{Net, Rib};
use shared::{LiveLayout, SharedImage};
use step::Step;
pub use two_halves::TwoHalves;

/// Maximum size of an image in bytes, with its room for changes.
pub const IMAGE_BYTES_MAX: usize = 1 << 29;
/// A batch that changes more than [`BATCH_MIN`] prefixes, and more than one prefix in this many, rebuilds the image.
/// That is faster than changes in place.
const BATCH_ONE_IN: usize = 8;
const BATCH_MIN: usize = 1024;

/// How an image is changed.
enum LiveWriter {
    Exact(ExactWriter),
    Exact6(Exact6Writer),
    RankLeaf(Box<RankWriter>),
    ExactLeaf(Box<ExactLeafWriter>),
    Rebuild,
}

impl LiveWriter {
    fn of(image: &SharedImage, layout: Layout, labels: u32) -> Self {
        match image.live_layout() {
            LiveLayout::RankLeaf(offsets) | LiveLayout::RankLeaf6(offsets) => {
                LiveWriter::RankLeaf(Box::new(RankWriter::new(image, offsets, labels)))
            }
            LiveLayout::Exact(buckets, ends) => LiveWriter::Exact(ExactWriter::new(image, buckets, ends)),
            LiveLayout::Exact6(buckets) => LiveWriter::Exact6(Exact6Writer::new(image, buckets)),
            LiveLayout::ExactLeaf(parts) => {
                LiveWriter::ExactLeaf(Box::new(ExactLeafWriter::new(image, parts, host_lengths(layout))))
            }
            LiveLayout::Frozen => LiveWriter::Rebuild,
        }
    }

    /// Makes the image agree with `rib` for steps that are made together, as many as [`LiveWriter::steps_covered`]
    /// says; labels up to `labels` are in use.
    fn change(
        &mut self,
        cells: &impl CellsMut,
        readers: &Readers,
        rib: &Rib,
        steps: &[Step],
        labels: u32,
    ) -> Result<(), Full> {
        let Step { net, old, new } = steps[0];
        match self {
            LiveWriter::Exact(writer) => writer.change(cells, net.addr4(), old, new),
            LiveWriter::Exact6(writer) => writer.change(cells, readers, net, (old, new)),
            LiveWriter::RankLeaf(writer) => writer.change(cells, readers, rib, net, labels),
            LiveWriter::ExactLeaf(writer) => writer.change(cells, readers, rib, steps),
            LiveWriter::Rebuild => Err(Full),
        }
    }

    /// Number of steps, from the first on, that are made together. Where the whole prefix is rebuilt, the steps
    /// inside it are included.
    fn steps_covered(&self, steps: &[Step]) -> usize {
        match self {
            LiveWriter::RankLeaf(_) => steps.iter().take_while(|step| steps[0].net.holds(step.net)).count(),
            LiveWriter::ExactLeaf(writer) => writer.steps_covered(steps),
            LiveWriter::Exact(_) | LiveWriter::Exact6(_) | LiveWriter::Rebuild => 1,
        }
    }
}

/// A table with its writer. Other threads read it through [`LiveTable::image`].
pub struct LiveTable {
    layout: Layout,
    kind: Kind,
    /// Number of sets of a fused table; 1 otherwise.
    sets: usize,
    rib: Rib,
    /// Number of prefixes of each set.
    lengths: Vec<usize>,
    labels: Labels,
    /// If entries are numbered, `rib` has their numbers in place of labels.
    numbers: Option<Numbers>,
    readers: Readers,
    published: Publisher,
    writer: LiveWriter,
    built_anew: u64,
    /// Whether a change of several prefixes takes effect at once.
    at_once: bool,
    /// The number of prefixes for which there was no room, and the error, until an image fits again.
    no_room: Option<(usize, LiveError)>,
}

impl LiveTable {
    /// A live table with the contents of `table`. Label ids are taken from `table` and never change.
    ///
    /// # Errors
    /// As for [`Table::build`].
    pub fn new(readers: &Readers, table: &Table, layout: Layout) -> Result<Self, LiveError> {
        Self::make(readers, layout, (table.kind(), 1), Rib::of(table), labels_of(table))
    }

    /// Fuses up to [`crate::MEMBERS_MAX`] sets into one live table with [`Layout::fused`]. A lookup sets bit `m` if
    /// `tables[m]` holds the address.
    ///
    /// # Errors
    /// As for [`crate::fused`].
    pub fn fused(readers: &Readers, tables: &[&Table]) -> Result<Self, LiveError> {
        let layout = Layout::fused(build::check_fused(tables)?);
        Self::make(readers, layout, (Kind::Set, tables.len()), Rib::of_sets(tables), Labels::default())
    }

    fn make(
        readers: &Readers,
        layout: Layout,
        (kind, sets): (Kind, usize),
        rib: Rib,
        labels: Labels,
    ) -> Result<Self, LiveError> {
        let image = SharedImage::new(build(layout, kind, sets, &rib, labels.count(kind), Room::Spare)?);
        let writer = LiveWriter::of(&image, layout, labels.count(kind));
        Ok(Self::with_writer(layout, (kind, sets), (rib, labels), Publisher::new(readers, image), writer))
    }

    /// Takes over a published image with the contents of `tables`: one table, or fused sets. The first change rebuilds
    /// the image with room for changes.
    pub fn take_over(published: PublishedImage, tables: &[&Table], layout: Layout) -> Self {
        let first = tables[0];
        let rib = if layout.is_fused() { Rib::of_sets(tables) } else { Rib::of(first) };
        let (of, contents) = ((first.kind(), tables.len()), (rib, labels_of(first)));
        Self::with_writer(layout, of, contents, published.0, LiveWriter::Rebuild)
    }

    /// Takes over a published image of [`Table::build_numbered`]. `memory` knows the labels of its entries.
    pub fn take_over_numbered(
        published: PublishedImage,
        table: &Table,
        layout: Layout,
        memory: Arc<dyn NumberedMemory>,
    ) -> Self {
        let contents = (Rib::numbered(table), labels_of(table));
        let live = Self::with_writer(layout, (table.kind(), 1), contents, published.0, LiveWriter::Rebuild);
        LiveTable { numbers: Some(Numbers::of(table, memory)), ..live }
    }

    /// A table whose image was published with these contents.
    fn with_writer(
        layout: Layout,
        (kind, sets): (Kind, usize),
        (rib, labels): (Rib, Labels),
        published: Publisher,
        writer: LiveWriter,
    ) -> Self {
        let (lengths, readers) = (lengths(&rib, sets), published.readers().clone());
        LiveTable {
            layout,
            kind,
            sets,
            rib,
            lengths,
            labels,
            numbers: None,
            readers,
            published,
            writer,
            built_anew: 0,
            at_once: false,
            no_room: None,
        }
    }

    /// The handle that readers use.
    pub fn image(&self) -> LiveImage {
        self.published.handle()
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Address family of the prefixes.
    pub fn family(&self) -> Family {
        self.rib.family()
    }

    /// Number of changes so far that rebuilt the whole image, because it had no room or the layout has no other method.
    pub fn built_anew(&self) -> u64 {
        self.built_anew
    }

    /// Bytes of the image, with its room for changes.
    pub fn image_bytes(&self) -> usize {
        self.published.image().bytes()
    }

    /// Number of distinct prefixes.
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Label id `i + 1` is `labels()[i]`. Empty for a set.
    pub fn labels(&self) -> &[Box<str>] {
        self.labels.names()
    }

    /// Inserts the prefix of `len` bits around `addr`, or changes its label. Returns whether that changed anything.
    ///
    /// # Errors
    /// As for [`LiveTable::change`].
    pub fn insert(&mut self, addr: IpAddr, len: u8, label: Option<&str>) -> Result<bool, LiveError> {
        Ok(self.change(&[Change::insert(addr, len, label)])? > 0)
    }

    /// Removes the prefix of `len` bits around `addr`. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`LiveTable::change`].
    pub fn remove(&mut self, addr: IpAddr, len: u8) -> Result<bool, LiveError> {
        Ok(self.change(&[Change::remove(addr, len)])? > 0)
    }

    /// Makes several changes with the fewest stores and returns how many prefixes changed. Of two changes of one
    /// prefix, the later wins. Lookups that begin after the return see all of them.
    ///
    /// # Errors
    /// If a change is invalid (family, length, label, a prefix that the layout cannot hold), none is made. If the
    /// layout reaches a limit or readers are behind, the changes of higher addresses are not made
    /// ([`LiveError::Stopped`]).
    pub fn change(&mut self, changes: &[Change<'_>]) -> Result<usize, LiveError> {
        let mut wanted: BTreeMap<Net, u32> = BTreeMap::new();
        for change in changes {
            let net = self.net(change)?;
            let label = self.label(change)?;
            let now = wanted.entry(net).or_insert_with(|| self.label_of(self.rib.get(net)));
            *now = match (self.sets, label) {
                (1, label) => label,
                (_, 0) => *now & !(1 << change.set),
                (_, _) => *now | 1 << change.set,
            };
        }
        let step = |(net, new)| Step { net, old: self.rib.get(net), new };
        let steps = wanted.into_iter().map(step).collect();
        self.make_steps(steps)
    }

    /// Frees memory that readers have released, and returns whether some still waits. Every change does this too. A
    /// writer that makes no changes for a long time must call it.
    pub fn free(&mut self) -> bool {
        let image = self.published.image();
        let is_waiting = match &mut self.writer {
            LiveWriter::Exact6(writer) => {
                writer.reclaim(image, &self.readers);
                writer.is_waiting()
            }
            LiveWriter::RankLeaf(writer) => {
                writer.reclaim(image, &self.readers);
                writer.is_waiting()
            }
            LiveWriter::ExactLeaf(writer) => {
                writer.reclaim(image, &self.readers);
                writer.is_waiting()
            }
            LiveWriter::Exact(_) | LiveWriter::Rebuild => false,
        };
        let has_gone = self.numbers.as_mut().is_some_and(|numbers| numbers.reclaim(&self.readers));
        self.published.free() || is_waiting || has_gone
    }

    /// The label, or mask of fused sets, of an entry with this value in `rib`.
    fn label_of(&self, value: u32) -> u32 {
        self.numbers.as_ref().map_or(value, |numbers| numbers.label(value))
    }

    /// The highest answer of a lookup.
    fn highest_answer(&self) -> u32 {
        self.numbers.as_ref().map_or_else(|| self.labels.count(self.kind), Numbers::highest)
    }

    /// The prefix of a change, if this table can hold it.
    fn net(&self, change: &Change<'_>) -> Result<Net, LiveError> {
        if change.set >= self.sets {
            return Err(LiveError::NoSuchSet { set: change.set, sets: self.sets });
        }
        let family = self.family();
        let net = match (change.addr, family) {
            (IpAddr::V4(_), Family::Ipv6) | (IpAddr::V6(_), Family::Ipv4) => {
                return Err(change.wrong(Problem::OtherFamily(family)));
            }
            _ if change.len > family.bits() => return Err(change.wrong(Problem::LongLength(family))),
            (IpAddr::V4(addr), Family::Ipv4) => Net::of4(addr.into(), change.len),
            (IpAddr::V6(addr), Family::Ipv6) => Net::new(addr.into(), change.len),
        };
        // A prefix that the table cannot hold is accepted in a removal, which has no effect.
        if change.to != To::Absent {
            self.suits(net)?;
        }
        Ok(net)
    }

    fn suits(&self, net: Net) -> Result<(), BuildError> {
        let (layout, prefix) = (self.layout, || net.shown(self.family()).to_string());
        match layout {
            Layout::ExactSet | Layout::ExactSets if net.len != 32 => {
                Err(BuildError::NotAnAddress { layout, prefix: prefix() })
            }
            Layout::ExactSet6 | Layout::ExactSets6 if net.len != 64 && net.len != 128 => {
                Err(BuildError::NotANetOrHost { layout, prefix: prefix() })
            }
            _ => Ok(()),
        }
    }

    /// The label that a change sets; 0 removes.
    fn label(&mut self, change: &Change<'_>) -> Result<u32, LiveError> {
        match (change.to, self.kind) {
            (To::Absent, _) => Ok(0),
            (To::Held(_), Kind::Set) => Ok(1),
            (To::Held(None | Some("")), Kind::Labels) => Err(change.wrong(Problem::NoLabel)),
            (To::Held(Some(label)), Kind::Labels) if label.len() > LABEL_BYTES_MAX => {
                Err(change.wrong(Problem::LongLabel))
            }
            (To::Held(Some(label)), Kind::Labels) => Ok(self.intern(label)?),
        }
    }

    fn intern(&mut self, label: &str) -> Result<u32, BuildError> {
        let limit = BuildError::Limit { layout: self.layout, what: "labels", max: LABELS_MAX as usize - 1 };
        self.labels.intern_below(label, LABELS_MAX).ok_or(limit)
    }
}

/// Whether a label of the contents says that set `set` of `sets` has the prefix.
fn is_in(sets: usize, set: usize, label: u32) -> bool {
    if sets == 1 { label != 0 } else { label >> set & 1 != 0 }
}

/// The labels of a table, with the same ids.
fn labels_of(table: &Table) -> Labels {
    let mut labels = Labels::default();
    table.labels().iter().for_each(|name| {
        labels.intern(name);
    });
    labels
}

/// Number of prefixes of each set.
fn lengths(rib: &Rib, sets: usize) -> Vec<usize> {
    let mut lengths = vec![0; sets];
    for (_, label) in rib.iter() {
        lengths.iter_mut().enumerate().for_each(|(set, length)| *length += usize::from(is_in(sets, set, label)));
    }
    lengths
}

/// Builds the image of these prefixes, whose labels are at most `highest`.
fn build(layout: Layout, kind: Kind, sets: usize, rib: &Rib, highest: u32, room: Room) -> Result<Image, BuildError> {
    if layout != Layout::fused(rib.family()) || kind == Kind::Labels {
        return build::build(kind, highest, &rib.prefixes(), layout, room);
    }
    match rib.family() {
        Family::Ipv4 => {
            let members: Vec<_> = (0..sets).map(|set| rib.prefixes4_of(set)).collect();
            exact_sets::build(&members.iter().map(Vec::as_slice).collect::<Vec<_>>(), room)
        }
        Family::Ipv6 => {
            let members: Vec<_> = (0..sets).map(|set| rib.prefixes6_of(set)).collect();
            exact_set6::build_fused(&members.iter().map(Vec::as_slice).collect::<Vec<_>>(), room)
        }
    }
}
