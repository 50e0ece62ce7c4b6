//! Checks every store of every change: after each one the image is valid, and each key has its old or its new label.

use weir_abi::{Family, Layout};

use super::recorded::{RecordedImage, copy};
use super::rib::Net;
use super::shared::{LiveLayout, SharedImage};
use super::*;
use crate::cells::Cells;
use crate::entries::Entries;
use crate::image::ImageView;
use crate::layout::exact_set6::{self, Key, slots};
use crate::prefix::Prefix6;
use std::collections::BTreeMap;

/// A deterministic random sequence (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// A random prefix that the layout can hold, from a small part of the address space.
    fn net(&mut self, layout: Layout) -> Net {
        let low = u128::from(self.next());
        match layout {
            // Of 2^16 buckets of four slots, some overflow: those with a number that is a multiple of 256, by equal low
            // halves.
            Layout::ExactSet | Layout::ExactSets => Net::of4((low as u32 & 0xff_0000) << 8 | low as u32 & 0x30, 32),
            Layout::ExactSet6 | Layout::ExactSets6 if low & 1 == 0 => {
                Net::new(0x2001_0db8 << 96 | (low & 0xfe) << 63, 64)
            }
            Layout::ExactSet6 | Layout::ExactSets6 => Net::new(0x2001_0db8 << 96 | low >> 8 & 0x7ff, 128),
            // A few hosts and a few prefixes around them.
            Layout::ExactLeaf if low & 3 != 0 => Net::of4(0x0a01_0000 ^ low as u32 & 0x3f0, 32),
            Layout::ExactLeaf6 if low & 3 == 3 => Net::new(0x2001_0db8 << 96 | (low & 0xfc) << 62, 64),
            Layout::ExactLeaf6 if low & 3 != 0 => Net::new(0x2001_0db8 << 96 | low >> 8 & 0x1ff, 128),
            Layout::RankLeaf | Layout::ExactLeaf => {
                let len = if self.below(16) == 0 { 10 + self.below(9) } else { 18 + self.below(15) };
                Net::of4(0x0a01_0000 ^ low as u32 & 0x3ff | (low as u32 & 0x300_0000) >> 7, len as u8)
            }
            _ => {
                let places = [0x2001_0db8 << 96, 0x2001_0db8_0001 << 80, 0x2001_0db8_0001_0002 << 64];
                let place =
                    places[self.below(3) as usize] | (low & 0x3f) << 90 | (low & 0x7f00) << 60 | low >> 20 & 0xfff;
                Net::new(place, (12 + self.below(117)) as u8)
            }
        }
    }
}

/// Keys around a prefix.
fn edges(net: Net, family: Family) -> impl Iterator<Item = u128> {
    let one = if family == Family::Ipv4 { 1 << 96 } else { 1 };
    let last = net.last() & !(one - 1);
    [net.first, net.first.wrapping_sub(one), net.first.wrapping_add(one), last, last.wrapping_add(one)]
        .into_iter()
        .map(move |key| key & !(one - 1))
}

fn find(view: &ImageView<'_>, family: Family, key: u128) -> u32 {
    match family {
        Family::Ipv4 => view.find4((key >> 96) as u32),
        Family::Ipv6 => view.find6(key),
    }
}

/// Makes one step in place and checks the image after each store.
fn change_store_by_store(live: &mut LiveTable, step: Step, others: &[u128]) -> bool {
    let family = live.family();
    let before = copy(live.published.image());
    live.hold(step.net, step.new);
    let recorded = RecordedImage::new(live.published.image());
    let made = live.writer.change(&recorded, &live.readers, &live.rib, &[step], live.labels.count(live.kind));
    let stores = recorded.into_stores();
    if made.is_err() {
        return false;
    }
    let after = copy(live.published.image());
    let (old, new) = (ImageView::new(&before).unwrap(), ImageView::new(&after).unwrap());
    let keys: Vec<u128> = edges(step.net, family).chain(others.iter().copied()).collect();
    for &key in &keys {
        assert_eq!(find(&new, family, key), held(live, key), "{key:#034x}");
    }
    let mut bytes = before.clone();
    for (at, word) in &stores {
        bytes[*at..at + word.len()].copy_from_slice(word);
        let now = ImageView::new(&bytes).unwrap();
        for &key in &keys {
            let found = find(&now, family, key);
            assert!(found == find(&old, family, key) || found == find(&new, family, key), "{key:#034x}: {found}");
        }
    }
    assert!(bytes == after, "the stores are all there is to a change");
    true
}

/// The label of a key. Of fused sets, the members that hold it in a prefix of any length.
fn held(live: &LiveTable, key: u128) -> u32 {
    let longest = Net { first: key, len: live.family().bits() };
    match live.sets {
        1 => live.rib.cover(longest),
        _ => (0..=longest.len).fold(0, |members, len| members | live.rib.get(Net::new(key, len))),
    }
}

fn table(family: Family, kind: Kind) -> Table {
    Entries::new(family, kind).settle()
}

fn drive(layout: Layout, kind: Kind, start: usize, rounds: usize) {
    let is_ipv6 = matches!(layout, Layout::RankLeaf6 | Layout::ExactSet6 | Layout::ExactSets6 | Layout::ExactLeaf6);
    let family = if is_ipv6 { Family::Ipv6 } else { Family::Ipv4 };
    let mut random = Random(start as u64 + 7);
    let (readers, empty) = (Readers::new(), table(family, kind));
    let mut live = match layout {
        Layout::ExactSets6 => LiveTable::fused(&readers, &[&empty; 3]).unwrap(),
        _ => LiveTable::new(&readers, &empty, layout).unwrap(),
    };
    let labels = if kind == Kind::Labels { 5 } else { (1 << live.sets) - 1 };
    let label = |random: &mut Random| 1 + random.below(labels) as u32;
    if kind == Kind::Labels {
        ["a", "b", "c", "d", "e"].iter().for_each(|name| assert!(live.intern(name).is_ok()));
    }
    let wanted: BTreeMap<Net, u32> = (0..start).map(|_| (random.net(layout), label(&mut random))).collect();
    live.apply(wanted.into_iter().map(|(net, new)| Step { net, old: 0, new }).collect()).unwrap();
    let steps: Vec<Step> = live.rib.iter().map(|(net, new)| Step { net, old: 0, new }).collect();
    live.rebuild(&steps).unwrap();
    let mut in_place = 0;
    for _ in 0..rounds {
        let net = random.net(layout);
        let known = live.rib.under(Net { first: 0, len: 0 }).map(|(net, _)| net).find(|known| *known >= net);
        let net = if random.below(3) == 0 { known.unwrap_or(net) } else { net };
        let old = live.rib.get(net);
        let new = if old != 0 && random.below(3) > 0 { 0 } else { label(&mut random) };
        if old == new {
            continue;
        }
        let others: Vec<u128> = (0..20).flat_map(|_| edges(random.net(layout), family)).collect();
        match change_store_by_store(&mut live, Step { net, old, new }, &others) {
            true => in_place += 1,
            false => live.rebuild(&[Step { net, old, new }]).unwrap(),
        }
        let rests = matches!(layout, Layout::ExactSet6 | Layout::ExactSets6 | Layout::ExactLeaf6);
        assert!(!live.free() || rests, "there is no reader");
        match &live.writer {
            LiveWriter::RankLeaf(writer) => writer.assert_surveyed(live.published.image()),
            LiveWriter::ExactLeaf(writer) => writer.assert_surveyed(live.published.image()),
            _ => {}
        }
    }
    assert!(in_place > rounds / 2, "{}: {in_place} of {rounds}", layout.name());
}

#[test]
fn every_store_of_an_exact_set_leaves_it_right() {
    drive(Layout::ExactSet, Kind::Set, 300, 60);
    drive(Layout::ExactSets, Kind::Set, 2000, 60);
    drive(Layout::ExactSet6, Kind::Set, 2500, 300);
    drive(Layout::ExactSets6, Kind::Set, 2500, 300);
}

#[test]
fn every_store_to_full_buckets_leaves_an_exact_set_of_ipv6_right() {
    let host = |index: u64| Net::new(0x2001_0db8 << 96 | u128::from(index), 128);
    let first = Prefix6 { addr: host(0).first, len: 128, label: 1 };
    let image = SharedImage::new(exact_set6::build(&[first], Room::None).unwrap());
    let LiveLayout::Exact6(buckets) = image.live_layout() else { panic!("an exact set of IPv6") };
    let (mut writer, readers) = (Exact6Writer::new(&image, buckets), Readers::new());
    let change = |writer: &mut Exact6Writer, net: Net, new: u32, held: &[Net]| {
        let mut bytes = copy(&image);
        let recorded = RecordedImage::new(&image);
        let made = writer.change(&recorded, &readers, net, (1 - new, new)).is_ok();
        let mut answers = vec![1 - new];
        for (at, word) in recorded.into_stores() {
            bytes[at..at + word.len()].copy_from_slice(&word);
            let now = ImageView::new(&bytes).unwrap();
            answers.push(now.find6(net.first));
            assert!(held.iter().all(|other| now.find6(other.first) == 1), "{net:?} to {new}");
        }
        answers.dedup();
        assert_eq!(answers, [1 - new, new][..1 + usize::from(made)], "{net:?}: the answer changes once");
        made
    };
    let mut held = vec![host(0)];
    while change(&mut writer, host(held.len() as u64), 1, &held) {
        held.push(host(held.len() as u64));
    }
    assert!(held.len() > 128, "{} of 256 slots", held.len());
    assert!(buckets.went_on(&image).count() > 0 && buckets.all_entries().any(|entry| image.u64(entry) != 0));
    while !held.is_empty() {
        let net = held.swap_remove(held.len() / 2);
        assert!(change(&mut writer, net, 0, &held));
    }
    while writer.is_waiting() {
        writer.reclaim(&image, &readers);
    }
    let left = Key::Host(0, 0);
    let first = buckets.ways(left).unwrap()[0].bucket;
    assert!(slots(first, left.kind()).all(|slot| (image.u64(slot), image.u64(slot + 8)) == (0, u64::MAX)));
    assert!(buckets.all_entries().all(|entry| image.u64(entry) == 0));
}

#[test]
fn every_store_of_an_exact_leaf_leaves_it_right() {
    drive(Layout::ExactLeaf, Kind::Set, 0, 60);
    drive(Layout::ExactLeaf, Kind::Set, 300, 100);
    drive(Layout::ExactLeaf6, Kind::Set, 300, 200);
}

#[test]
fn every_store_of_a_rank_leaf_leaves_it_right() {
    drive(Layout::RankLeaf, Kind::Labels, 0, 30);
    drive(Layout::RankLeaf, Kind::Labels, 500, 30);
    drive(Layout::RankLeaf6, Kind::Labels, 500, 30);
}
