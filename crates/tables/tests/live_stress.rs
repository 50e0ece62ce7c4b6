//! One writer and several readers at once, for as long as one likes: `WEIR_STRESS_SECONDS=60` for each layout, else
//! two.
//!
//! Before each change the writer notes, for every key that is watched, the label that the key gets. A reader takes the
//! number of the last change that is complete, looks keys up, and then reads the notes: each answer must be the key's
//! label after that change, or one that it was given since.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libloading::Symbol;
use support::Random;
use support::live::{LABELS, Model, Net, names};
use support::shim::{Datapath, Find4, Find6, FindBurst4, FindBurst6, is_ipv6, lookup};
use weir_abi::{BURST_MAX, Layout};
use weir_tables::live::{Change, LiveView};
use weir_tables::{Kind, LiveError, LiveImage, LiveTable, MEMBERS_MAX, Readers};

const READERS: u64 = 2;
const WATCHED: usize = 512;
/// Notes kept of each key.
const NOTES: usize = 256;

/// A key and the labels that it was given, the last [`NOTES`] of them: the change's number in the upper half.
struct Watched {
    key: u128,
    count: AtomicU64,
    notes: [AtomicU64; NOTES],
}

impl Watched {
    fn new(key: u128, label: u32) -> Self {
        let watched = Watched { key, count: AtomicU64::new(0), notes: [const { AtomicU64::new(0) }; NOTES] };
        watched.note(0, label);
        watched
    }

    fn last(&self) -> u32 {
        let count = self.count.load(Ordering::Relaxed);
        self.notes[(count as usize - 1) % NOTES].load(Ordering::Relaxed) as u32
    }

    fn note(&self, change: u64, label: u32) {
        let count = self.count.load(Ordering::Relaxed);
        self.notes[count as usize % NOTES].store(change << 32 | u64::from(label), Ordering::Release);
        self.count.store(count + 1, Ordering::Release);
    }

    /// Whether the bits of `mask` in the label are those after change `since` or a later one; `None` if the notes do
    /// not go back so far.
    fn was(&self, since: u64, label: u32, mask: u32) -> Option<bool> {
        let count = self.count.load(Ordering::Acquire);
        for index in (0..count).rev() {
            let note = self.notes[index as usize % NOTES].load(Ordering::Acquire);
            // The writer may be about to overwrite the oldest.
            if self.count.load(Ordering::Acquire) - index >= NOTES as u64 {
                return None;
            }
            match note {
                note if note as u32 & mask == label & mask => return Some(true),
                note if note >> 32 <= since => return Some(false),
                _ => {}
            }
        }
        Some(false)
    }
}

/// What threads share.
struct Shared {
    layout: Layout,
    image: LiveImage,
    readers: Readers,
    watched: Vec<Watched>,
    /// The last complete change.
    done: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    /// As [`Watched::was`]. Each fused set is a table of its own: two changes of an address may come between the looks
    /// at two sets, so that a lookup finds what the address was in one set before the first and in another after the
    /// second.
    fn was(&self, watched: &Watched, since: u64, label: u32) -> Option<bool> {
        if !self.layout.is_fused() {
            return watched.was(since, label, u32::MAX);
        }
        let masks = (0..MEMBERS_MAX).map(|set| 1 << set).chain([u32::MAX << MEMBERS_MAX]);
        let judged: Vec<Option<bool>> = masks.map(|mask| watched.was(since, label, mask)).collect();
        if judged.contains(&Some(false)) { Some(false) } else { (!judged.contains(&None)).then_some(true) }
    }
}

/// What the table holds: one model, or one for each fused set.
struct Truth {
    models: Vec<Model>,
    /// Label ids by label number.
    ids: Vec<u32>,
}

impl Truth {
    fn find(&self, key: u128) -> u32 {
        match &self.models[..] {
            [model] => self.ids[model.find(key) as usize],
            sets => sets.iter().enumerate().map(|(set, model)| model.find(key) << set).sum(),
        }
    }
}

/// C lookups of one compiler.
struct Finder<'a> {
    datapath: &'a Datapath,
    layout: Layout,
}

impl Finder<'_> {
    fn burst(&self, view: LiveView<'_>, keys: &[u128], labels: &mut [u32; BURST_MAX]) {
        let (image, count) = (view.as_ptr(), keys.len() as u32);
        let (hi, lo): (Vec<u64>, Vec<u64>) = keys.iter().map(|&key| ((key >> 64) as u64, key as u64)).unzip();
        let addrs: Vec<u32> = keys.iter().map(|&key| (key >> 96) as u32).collect();
        // SAFETY: the shim defines the symbols with these types, as many keys and labels are there, and the view is of
        // the burst that goes on.
        unsafe {
            match (is_ipv6(self.layout), lookup(self.layout).1) {
                (false, true) => {
                    let find: Symbol<'_, FindBurst4> = self.datapath.symbol(self.layout, "_burst");
                    find(image, addrs.as_ptr(), labels.as_mut_ptr(), count);
                }
                (true, true) => {
                    let find: Symbol<'_, FindBurst6> = self.datapath.symbol(self.layout, "_burst");
                    find(image, hi.as_ptr(), lo.as_ptr(), labels.as_mut_ptr(), count);
                }
                _ => self.single(view, keys, labels),
            }
        }
    }

    fn single(&self, view: LiveView<'_>, keys: &[u128], labels: &mut [u32; BURST_MAX]) {
        for (&key, label) in keys.iter().zip(labels) {
            // SAFETY: as above.
            *label = unsafe {
                if is_ipv6(self.layout) {
                    let find: Symbol<'_, Find6> = self.datapath.symbol(self.layout, "");
                    find(view.as_ptr(), (key >> 64) as u64, key as u64)
                } else {
                    let find: Symbol<'_, Find4> = self.datapath.symbol(self.layout, "");
                    find(view.as_ptr(), (key >> 96) as u32)
                }
            };
        }
    }
}

/// Lookups that were right, and those that could not be judged.
#[derive(Default)]
struct Judged {
    right: u64,
    unknown: u64,
    bursts: u64,
}

fn read(shared: &Shared, seed: u64) -> Judged {
    let all = Datapath::all();
    let finder = Finder { datapath: &all[seed as usize * 2 % all.len()], layout: shared.layout };
    let mut reader = shared.readers.register().unwrap();
    let (mut random, mut judged) = (Random(seed + 77), Judged::default());
    while !shared.stop.load(Ordering::Relaxed) {
        let watched: Vec<&Watched> =
            (0..BURST_MAX).map(|_| &shared.watched[random.below(shared.watched.len())]).collect();
        let keys: Vec<u128> = watched.iter().map(|watched| watched.key).collect();
        let mut labels = [u32::MAX; BURST_MAX];
        let way = judged.bursts % 4;
        let since = shared.done.load(Ordering::Acquire);
        {
            let burst = reader.start_burst();
            let view = shared.image.open(&burst);
            match way {
                0 => keys.iter().zip(&mut labels).for_each(|(&key, label)| {
                    *label = if is_ipv6(shared.layout) { view.find6(key) } else { view.find4((key >> 96) as u32) };
                }),
                1 => finder.single(view, &keys, &mut labels),
                _ => finder.burst(view, &keys, &mut labels),
            }
        }
        for (watched, label) in watched.into_iter().zip(labels) {
            match shared.was(watched, since, label) {
                Some(true) => judged.right += 1,
                None => judged.unknown += 1,
                Some(false) => panic!(
                    "{} found {label} for {:#034x}, which it was not after change {since} nor since (way {way})",
                    shared.layout.name(),
                    watched.key
                ),
            }
        }
        judged.bursts += 1;
        // Now and then a reader rests, so that the writer sees idle readers too.
        if random.below(64) == 0 {
            reader.rest();
            std::thread::yield_now();
        }
    }
    judged
}

/// Changes until the time is over; how many changes were made.
fn write(shared: &Shared, live: &mut LiveTable, truth: &mut Truth, until: Instant) -> u64 {
    let (mut random, mut number) = (Random(4711), 0);
    let names = names(LABELS + 1);
    while Instant::now() < until {
        let set = random.below(truth.models.len());
        let count = if random.below(16) == 0 { 1 + random.below(100) } else { 1 };
        let mut changes: Vec<(Net, u32)> = (0..count).map(|_| truth.models[set].wish(&mut random)).collect();
        // In the order in which the table makes them; a prefix once.
        changes.sort();
        changes.dedup_by_key(|(net, _)| *net);
        number += 1;
        for &(net, label) in &changes {
            truth.models[set].set(net, label);
            note(shared, truth, net, number);
        }
        let made: Vec<Change<'_>> =
            changes.iter().map(|&one| truth.models[set].as_change(one, &names).in_set(set)).collect();
        loop {
            match live.change(&made) {
                Ok(_) => break,
                Err(LiveError::ReadersBehind { .. }) => std::thread::yield_now(),
                // The rest of the batch, and again what was made.
                Err(LiveError::Stopped { error, .. }) if matches!(*error, LiveError::ReadersBehind { .. }) => {
                    std::thread::yield_now();
                }
                Err(error) => {
                    // Readers must not go on for ever.
                    shared.stop.store(true, Ordering::Relaxed);
                    panic!("{error}");
                }
            }
        }
        shared.done.store(number, Ordering::Release);
    }
    number
}

/// Notes the labels that watched keys in a prefix get.
fn note(shared: &Shared, truth: &Truth, (addr, len): Net, number: u64) {
    let inside = |key: u128| (key ^ addr).checked_shr(128 - u32::from(len)).unwrap_or(0) == 0;
    for watched in shared.watched.iter().filter(|watched| inside(watched.key)) {
        let label = truth.find(watched.key);
        if watched.last() != label {
            watched.note(number, label);
        }
    }
}

fn seconds() -> u64 {
    std::env::var("WEIR_STRESS_SECONDS").map_or(2, |seconds| seconds.parse().expect("WEIR_STRESS_SECONDS is a number"))
}

/// Has a table of `sizes` prefixes (a number for each fused set) changed and read at once.
fn stress(layout: Layout, kind: Kind, sizes: &[usize]) {
    let mut random = Random(sizes[0] as u64 + 3);
    let models: Vec<Model> = sizes.iter().map(|&size| Model::random(layout, kind, size, &mut random)).collect();
    let tables: Vec<_> = models.iter().map(Model::table).collect();
    let readers = Readers::new();
    let mut live = match &tables[..] {
        [table] => LiveTable::new(&readers, table, layout).unwrap(),
        fused => LiveTable::fused(&readers, &fused.iter().collect::<Vec<_>>()).unwrap(),
    };
    let ids = names(LABELS + 1).into_iter().map(|name| match kind {
        Kind::Set => u32::from(name != "L0"),
        Kind::Labels => live.labels().iter().position(|label| **label == *name).map_or(0, |index| index as u32 + 1),
    });
    let mut truth = Truth { ids: ids.collect(), models };
    // Keys that change: of prefixes that are there, at their edges, and of others that may come.
    let mut keys: Vec<u128> = truth.models[0].held.keys().flat_map(|&net| truth.models[0].edges(net)).collect();
    keys.extend((0..WATCHED * 4).flat_map(|_| truth.models[0].edges(truth.models[0].net(&mut random))));
    let watched = (0..WATCHED).map(|_| keys[random.below(keys.len())]).map(|key| Watched::new(key, truth.find(key)));
    let shared = Shared {
        layout,
        image: live.image(),
        watched: watched.collect(),
        readers,
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    Datapath::all();
    let until = Instant::now() + Duration::from_secs(seconds());
    let (changes, judged) = std::thread::scope(|scope| {
        let shared = &shared;
        let threads: Vec<_> = (0..READERS).map(|seed| scope.spawn(move || read(shared, seed))).collect();
        let changes = write(shared, &mut live, &mut truth, until);
        shared.stop.store(true, Ordering::Relaxed);
        (changes, threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>())
    });
    let sum = |what: fn(&Judged) -> u64| judged.iter().map(what).sum::<u64>();
    let (right, unknown) = (sum(|judged| judged.right), sum(|judged| judged.unknown));
    println!(
        "{:<10} {:<12} {changes} changes, {} images built anew, {right} lookups right, 0 wrong, {unknown} not judged",
        layout.name(),
        format!("{sizes:?}"),
        live.built_anew()
    );
    assert!(changes > 100 && right > 10_000, "nothing happened");
    assert!(unknown < right / 10, "the notes are too short");
}

#[test]
fn exact_set() {
    stress(Layout::ExactSet, Kind::Set, &[2000]);
}

#[test]
fn fused_exact_sets() {
    stress(Layout::ExactSets, Kind::Set, &[2000, 30, 500]);
}

#[test]
fn exact_set_of_ipv6() {
    stress(Layout::ExactSet6, Kind::Set, &[300]);
}

#[test]
fn fused_exact_sets_of_ipv6() {
    stress(Layout::ExactSets6, Kind::Set, &[300, 30, 500]);
}

#[test]
fn exact_leaf() {
    stress(Layout::ExactLeaf, Kind::Set, &[3000]);
}

#[test]
fn exact_leaf_of_ipv6() {
    stress(Layout::ExactLeaf6, Kind::Set, &[600]);
}

#[test]
fn rank_leaf() {
    stress(Layout::RankLeaf, Kind::Labels, &[3000]);
}

#[test]
fn rank_leaf_of_ipv6() {
    stress(Layout::RankLeaf6, Kind::Labels, &[3000]);
}

#[test]
fn d16x4r() {
    stress(Layout::Dxr16x4, Kind::Labels, &[3000]);
}

#[test]
fn range6() {
    stress(Layout::Range6, Kind::Labels, &[3000]);
}
