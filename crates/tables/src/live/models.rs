//! Tests the orders of stores and loads in every interleaving and with every value that the memory model allows (loom;
//! Norris and Demsky, "CDSChecker", OOPSLA 2013). The code under test is the code of the tables. Only its words are the
//! checker's.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use weir_abi::Layout;

use super::epochs::{self, IDLE, Quiescence, Word};
use super::exact::ExactWriter;
use super::exact_leaf::ExactLeafWriter;
use super::exact6::Exact6Writer;
use super::rank::RankWriter;
use super::recorded::RecordedImage;
use super::rib::{Net, Rib};
use super::shared::{LiveLayout, SharedImage};
use super::step::Step;
use crate::cells::{Cells, CellsMut};
use crate::entries::{Entries, Kind, Table};
use crate::layout::exact_leaf::host_lengths;
use crate::layout::exact_set::{FREE, OVERFLOWED};
use crate::layout::exact_set6::{FILTER, Key};
use crate::layout::{Room, exact_set6};
use crate::prefix::Prefix6;

/// Runs a model. `preemptions` limits how often the checker interrupts a thread that could continue. Higher limits find
/// nothing more and take far longer.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn next(&self) -> u64 {
        self.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

/// An image. Some of its words belong to the model checker. The others are constant.
struct Words {
    shared: HashMap<usize, AtomicU64>,
    rest: Arc<Vec<u8>>,
}

impl Words {
    fn new(rest: &Arc<Vec<u8>>, shared: &BTreeSet<(usize, usize)>) -> Self {
        let word = |&(at, bytes): &(usize, usize)| {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&rest[at..at + bytes]);
            (at, AtomicU64::new(u64::from_le_bytes(word)))
        };
        Words { shared: shared.iter().map(word).collect(), rest: rest.clone() }
    }

    fn load(&self, at: usize) -> Option<u64> {
        self.shared.get(&at).map(|word| word.load(Ordering::Acquire))
    }

    fn store(&self, at: usize, word: u64) {
        self.shared.get(&at).expect("the model shares all words that it writes").store(word, Ordering::Release);
    }
}

impl Cells for Words {
    fn u8(&self, at: usize) -> u8 {
        self.load(at).map_or_else(|| self.rest.u8(at), |word| word as u8)
    }
    fn u16(&self, at: usize) -> u16 {
        self.load(at).map_or_else(|| self.rest.u16(at), |word| word as u16)
    }
    fn u32(&self, at: usize) -> u32 {
        self.load(at).map_or_else(|| self.rest.u32(at), |word| word as u32)
    }
    fn u64(&self, at: usize) -> u64 {
        self.load(at).unwrap_or_else(|| self.rest.u64(at))
    }
}

impl CellsMut for Words {
    fn set_u8(&self, at: usize, word: u8) {
        self.store(at, word.into());
    }
    fn set_u16(&self, at: usize, word: u16) {
        self.store(at, word.into());
    }
    fn set_u32(&self, at: usize, word: u32) {
        self.store(at, word.into());
    }
    fn set_u64(&self, at: usize, word: u64) {
        self.store(at, word);
    }
}

/// A registry with one reader.
struct OneReader {
    epoch: AtomicU64,
    reader: AtomicU64,
}

impl OneReader {
    fn new() -> Self {
        OneReader { epoch: AtomicU64::new(1), reader: AtomicU64::new(IDLE) }
    }

    fn start_burst(&self, announced: &mut u64) {
        *announced = epochs::announce(&self.epoch, &self.reader, *announced);
    }
}

impl Quiescence for OneReader {
    fn unlinked(&self) -> u64 {
        epochs::unlinked(&self.epoch)
    }

    fn passed(&self, epoch: u64) -> bool {
        epochs::passed([&self.reader], epoch)
    }
}

/// A table of prefixes in text form, and its image.
fn image(layout: Layout, prefixes: &[&str]) -> (Table, SharedImage) {
    let family = if prefixes[0].contains(':') { weir_abi::Family::Ipv6 } else { weir_abi::Family::Ipv4 };
    let mut entries = Entries::new(family, Kind::Set);
    prefixes.iter().for_each(|prefix| entries.insert_text(prefix, None).unwrap());
    let table = entries.settle();
    let built = crate::build::build(Kind::Set, 1, &Rib::of(&table).prefixes(), layout, Room::Spare).unwrap();
    (table, SharedImage::new(built))
}

fn bytes(image: &SharedImage) -> Arc<Vec<u8>> {
    Arc::new((0..image.bytes()).map(|at| image.u8(at)).collect())
}

#[test]
fn nobody_holds_what_is_freed() {
    check(3, || {
        let readers = Arc::new(OneReader::new());
        let published = Arc::new(AtomicU64::new(0));
        let things = loom::sync::Arc::new([0, 1, 2].map(UnsafeCell::new));
        let reader = {
            let (readers, published, things) = (readers.clone(), published.clone(), things.clone());
            thread::spawn(move || {
                let mut announced = IDLE;
                for _ in 0..2 {
                    readers.start_burst(&mut announced);
                    let seen = published.load(Ordering::Acquire);
                    // SAFETY: the checker reports a concurrent write; that is what this model tests.
                    let thing = things[seen as usize].with(|thing| unsafe { *thing });
                    assert_eq!(thing, seen, "freed");
                }
            })
        };
        for next in 1..=2 {
            published.store(next, Ordering::Release);
            let epoch = readers.unlinked();
            if readers.passed(epoch) {
                // SAFETY: as above.
                things[next as usize - 1].with_mut(|thing| unsafe { *thing = u64::MAX });
            }
        }
        reader.join().unwrap();
    });
}

/// An exact set with a full bucket: its writer, its words, and the addresses of the bucket, the members plus one more.
fn full_bucket() -> (SharedImage, Vec<u32>) {
    let geometry = crate::layout::exact_set::Geometry { shift: 16, order: 0 };
    let addresses: Vec<u32> = (1..=5).map(|remainder| geometry.join(77, remainder)).collect();
    let text: Vec<String> = addresses[..4].iter().map(|&addr| std::net::Ipv4Addr::from(addr).to_string()).collect();
    let (_, image) = image(Layout::ExactSet, &text.iter().map(String::as_str).collect::<Vec<_>>());
    (image, addresses)
}

#[test]
fn whom_an_insertion_drives_out_is_found_all_the_while() {
    let (image, addresses) = full_bucket();
    let LiveLayout::Exact(buckets, ends) = image.live_layout() else { panic!("an exact set") };
    let rest = bytes(&image);
    let slots = (0..4).map(|slot| (buckets.slot(77, slot), 2));
    let overflow = addresses[3..].iter().flat_map(|&addr| buckets.overflow.words(addr)).map(|at| (at, 8));
    let shared: BTreeSet<_> = slots.chain(overflow).collect();
    let last = buckets.slot(77, 3);
    let driven_out = buckets.geometry.join(77, image.u16(last));
    let new = addresses[4];
    check(3, move || {
        let words = Arc::new(Words::new(&rest, &shared));
        let reader = {
            let words = words.clone();
            thread::spawn(move || {
                let holds = |addr| buckets.find(&*words, addr) != (0, 0);
                assert!(holds(driven_out), "it is in the set all the while");
                let first = holds(new);
                assert!(!first || holds(new), "what was inserted stays");
            })
        };
        let mut writer = ExactWriter::new(&*words, buckets, ends);
        writer.change(&*words, new, 0, 1).unwrap();
        reader.join().unwrap();
        assert_ne!(buckets.find(&*words, new), (0, 0));
    });
}

#[test]
fn a_mark_that_goes_hides_nobody() {
    let (image, addresses) = full_bucket();
    let LiveLayout::Exact(buckets, ends) = image.live_layout() else { panic!("an exact set") };
    let mut writer = ExactWriter::new(&image, buckets, ends);
    writer.change(&image, addresses[4], 0, 1).unwrap();
    let rest = bytes(&image);
    let slots = (0..4).map(|slot| (buckets.slot(77, slot), 2));
    let overflow = addresses.iter().flat_map(|&addr| buckets.overflow.words(addr)).map(|at| (at, 8));
    let shared: BTreeSet<_> = slots.chain(overflow).filter(|&(at, _)| image.u64(at / 8 * 8) != 0).collect();
    let in_overflow: Vec<u32> =
        addresses.iter().copied().filter(|&addr| buckets.overflow.find(&image, addr) != 0).collect();
    let last = buckets.slot(77, 3);
    check(3, move || {
        let words = Arc::new(Words::new(&rest, &shared));
        let (gone, stays, reader) = (in_overflow[0], in_overflow[1], words.clone());
        let reader = thread::spawn(move || {
            let holds = |addr| buckets.find(&*reader, addr) != (0, 0);
            assert!(holds(stays), "it is in the set all the while");
            let first = holds(gone);
            assert!(first || !holds(gone), "what was removed stays away");
        });
        let mut writer = ExactWriter::new(&*words, buckets, ends);
        writer.change(&*words, gone, 1, 0).unwrap();
        reader.join().unwrap();
        assert_eq!(words.u16(last), OVERFLOWED);
        writer.change(&*words, stays, 1, 0).unwrap();
        assert_eq!(words.u16(last), FREE, "the mark goes with the last one");
    });
}

#[test]
fn no_host_is_made_of_two_halves() {
    let old = Prefix6 { addr: 0x2001_0db8 << 96 | 1, len: 128, label: 1 };
    let image = SharedImage::new(exact_set6::build(&[old], Room::None).unwrap());
    let LiveLayout::Exact6(buckets) = image.live_layout() else { panic!("an exact set of IPv6") };
    let old = Key::of(&old).unwrap();
    // The hosts have one bucket and different words. Each ghost has the word of one and the high half of the other.
    let (hash, other_hash, other_high) = (buckets.hash(old), buckets.hash(old) ^ 1 << 8, old.high() + 9);
    let new = buckets.host_of(other_high, other_hash);
    let net = |host: Key| Net::new(u128::from(host.entry()[1]) << 64 | u128::from(host.entry()[2]), 128);
    let ghosts = [buckets.host_of(old.high(), other_hash), buckets.host_of(other_high, hash)];
    let rest = bytes(&image);
    let bucket = buckets.ways(old).unwrap()[0].bucket;
    assert!([new, ghosts[0], ghosts[1]].iter().all(|&host| buckets.ways(host).unwrap()[0].bucket == bucket));
    let shared: BTreeSet<_> = (0..4).map(|word| (bucket + word * 8, 8)).collect();
    check(3, move || {
        let words = Arc::new(Words::new(&rest, &shared));
        let readers = Arc::new(OneReader::new());
        let reader = {
            let (words, readers) = (words.clone(), readers.clone());
            thread::spawn(move || {
                let mut announced = IDLE;
                for ghost in ghosts {
                    readers.start_burst(&mut announced);
                    assert_eq!(buckets.members(&*words, ghost), 0, "{ghost:?} never was");
                    // C compares the whole line with one vector instruction, which may load its words in any order.
                    let high = words.u64(bucket + 8);
                    let word = words.u64(bucket) & !FILTER;
                    let sought = buckets.ways(ghost).unwrap()[0].word;
                    assert_ne!((word, high), (sought, ghost.high()), "{ghost:?} never was");
                }
            })
        };
        let mut writer = Exact6Writer::new(&*words, buckets);
        writer.change(&*words, &*readers, net(old), (1, 0)).unwrap();
        writer.reclaim(&*words, &*readers);
        writer.change(&*words, &*readers, net(new), (0, 1)).unwrap();
        reader.join().unwrap();
        assert_eq!([new, old].map(|host| buckets.members(&*words, host)), [1, 0]);
    });
}

/// Readers that have all passed, or that never pass.
struct Constant(bool);

impl Quiescence for Constant {
    fn unlinked(&self) -> u64 {
        0
    }

    fn passed(&self, _: u64) -> bool {
        self.0
    }
}

fn make_steps<Q: Quiescence>(
    mut writer: RankWriter,
    cells: &impl CellsMut,
    readers: &Q,
    table: &Table,
    steps: &[(Net, u32)],
) {
    let mut rib = Rib::of(table);
    for &(net, label) in steps {
        rib.set(net, label);
        writer.change(cells, readers, &rib, net, 1).unwrap();
    }
}

/// One writer makes the steps. For each of `keys` (IPv4 address, label before, label after), a reader finds the first
/// label and then the second, and never another one.
fn check_rank_leaf(prefixes: &[&str], steps: &'static [(Net, u32)], keys: &'static [(u32, u32, u32)]) {
    let (table, image) = image(Layout::RankLeaf, prefixes);
    let LiveLayout::RankLeaf(offsets) = image.live_layout() else { panic!("a rank leaf") };
    let writer = RankWriter::new(&image, offsets, 1);
    let rest = bytes(&image);
    // Words that the writer stores to, both when readers have passed and when they have not.
    let mut shared = BTreeSet::new();
    for passed in [false, true] {
        let copy = SharedImage::new(crate::Image::from_bytes(&rest).unwrap());
        let recorded = RecordedImage::new(&copy);
        make_steps(writer.clone(), &recorded, &Constant(passed), &table, steps);
        shared.extend(recorded.into_stores().into_iter().map(|(at, word)| (at, word.len())));
    }
    check(2, move || {
        let words = Arc::new(Words::new(&rest, &shared));
        let readers = Arc::new(OneReader::new());
        let reader = {
            let (words, readers) = (words.clone(), readers.clone());
            thread::spawn(move || {
                let mut announced = IDLE;
                for &(key, before, after) in keys {
                    readers.start_burst(&mut announced);
                    let found = offsets.find4(&*words, key);
                    assert!(found == before || found == after, "{key:#x}: {found}");
                }
            })
        };
        make_steps(writer.clone(), &*words, &*readers, &table, steps);
        reader.join().unwrap();
        keys.iter().for_each(|&(key, _, after)| assert_eq!(offsets.find4(&*words, key), after));
    });
}

const fn net24(addr: u32) -> Net {
    Net { first: (addr as u128) << 96, len: 24 }
}

#[test]
fn a_leaf_is_linked_whole_and_used_again_when_it_is_left() {
    // The third change would reuse the lanes of the first leaf.
    const STEPS: &[(Net, u32)] = &[(net24(0x0a01_0400), 1), (net24(0x0a01_0200), 0), (net24(0x0a01_0800), 1)];
    const KEYS: &[(u32, u32, u32)] = &[(0x0a01_0201, 1, 0), (0x0a01_0600, 0, 0)];
    check_rank_leaf(&["10.1.2.0/24"], STEPS, KEYS);
}

#[test]
fn a_shared_block_is_copied_until_nobody_shares_it() {
    // 10.1.0.0/16 and 10.2.0.0/16 share a block. After the first gets a block of its own, readers may still be in the
    // shared one.
    const STEPS: &[(Net, u32)] = &[(net24(0x0a01_0400), 1), (net24(0x0a02_0600), 1)];
    const KEYS: &[(u32, u32, u32)] = &[(0x0a01_0600, 0, 0), (0x0a02_0600, 0, 1)];
    check_rank_leaf(&["10.1.2.0/24", "10.2.2.0/24"], STEPS, KEYS);
}

/// A host of an exact leaf, and the prefix around it.
const HOST: Net = Net { first: 0x0a01_0207 << 96, len: 32 };
const AROUND: Net = net24(0x0a01_0200);

/// Makes changes of [`HOST`] and [`AROUND`], one after another, as long as each can be made in place. Returns how many
/// were made.
fn make_exact_leaf_steps<Q: Quiescence>(
    image: &SharedImage,
    cells: &impl CellsMut,
    readers: &Q,
    table: &Table,
    steps: &[(Net, u32)],
) -> usize {
    let LiveLayout::ExactLeaf(parts) = image.live_layout() else { panic!("an exact leaf") };
    let mut writer = ExactLeafWriter::new(cells, parts, host_lengths(Layout::ExactLeaf));
    let mut rib = Rib::of(table);
    let made = steps.iter().take_while(|&&(net, new)| {
        let old = rib.set(net, new);
        writer.change(cells, readers, &rib, &[Step { net, old, new }]).is_ok()
    });
    made.count()
}

/// A host is in the table all the while: first as itself and then by a prefix, or the other way round. A reader always
/// finds it. `made` is how many steps can be made while a reader has not passed.
fn check_exact_leaf(prefix: &'static str, steps: &'static [(Net, u32)], made: usize) {
    let (table, image) = image(Layout::ExactLeaf, &[prefix]);
    let rest = bytes(&image);
    let mut shared = BTreeSet::new();
    for (passed, made) in [(false, made), (true, steps.len())] {
        let copy = SharedImage::new(crate::Image::from_bytes(&rest).unwrap());
        let recorded = RecordedImage::new(&copy);
        assert_eq!(make_exact_leaf_steps(&image, &recorded, &Constant(passed), &table, steps), made);
        shared.extend(recorded.into_stores().into_iter().map(|(at, word)| (at, word.len())));
    }
    let LiveLayout::ExactLeaf(parts) = image.live_layout() else { panic!("an exact leaf") };
    let (image, table) = (Arc::new(image), Arc::new(table));
    check(2, move || {
        let words = Arc::new(Words::new(&rest, &shared));
        let readers = Arc::new(OneReader::new());
        let reader = {
            let (words, readers) = (words.clone(), readers.clone());
            thread::spawn(move || {
                readers.start_burst(&mut IDLE.clone());
                assert_eq!(parts.find4(&*words, HOST.addr4()), 1, "the host is there all the while");
            })
        };
        make_exact_leaf_steps(&image, &*words, &*readers, &table, steps);
        reader.join().unwrap();
    });
}

#[test]
fn a_host_that_a_prefix_replaces_is_found_all_the_while() {
    check_exact_leaf("10.1.2.7/32", &[(AROUND, 1), (HOST, 0)], 2);
}

#[test]
fn a_host_that_replaces_its_prefix_is_found_all_the_while() {
    check_exact_leaf("10.1.2.0/24", &[(HOST, 1), (AROUND, 0)], 1);
}
