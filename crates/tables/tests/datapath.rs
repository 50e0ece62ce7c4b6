//! The C lookups against the Rust ones: `datapath/tables/lookup.h`, compiled by every compiler here, on the same
//! images.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/guarded.rs"]
mod guarded;
mod support;

use std::path::Path;
use std::process::Command;

use guarded::Guarded;
use libloading::Symbol;
use support::shim::{Datapath, Find4, Find6, FindBurst4, FindBurst6, is_ipv6, lookup, shim};
use support::*;
use weir_abi::{BURST_MAX, Family, Layout};
use weir_tables::{Entries, Image, ImageView, Kind};

/// The lookups of one compiler against the lookups of Rust.
trait Check {
    fn check_bursts4(&self, image: &Image, keys: &[u32]);
    fn check_bursts6(&self, image: &Image, keys: &[u128]);
    fn check4(&self, image: &Image, keys: impl IntoIterator<Item = u32>);
    fn check6(&self, image: &Image, keys: impl IntoIterator<Item = u128>);
}

impl Check for Datapath {
    /// Bursts of all lengths, if the layout has them.
    fn check_bursts4(&self, image: &Image, keys: &[u32]) {
        if !lookup(image.layout()).1 {
            return;
        }
        // SAFETY: shim() defines it so.
        let find: Symbol<'_, FindBurst4> = unsafe { self.symbol(image.layout(), "_burst") };
        let (view, mut rest, mut count) = (image.view(), keys, 0);
        let memory = at_the_edge(image);
        while !rest.is_empty() {
            count = count % BURST_MAX + 1;
            let (burst, after) = rest.split_at(count.min(rest.len()));
            let (keys, labels) = (Guarded::copy(burst, 4), Guarded::copy(&vec![u32::MAX; burst.len()], 4));
            // SAFETY: the image was checked, and as many keys and labels are there.
            unsafe { find(memory.start(), keys.start(), labels.start(), burst.len() as u32) };
            // SAFETY: as many labels were written there.
            let labels = unsafe { std::slice::from_raw_parts(labels.start::<u32>(), burst.len()) };
            let found = burst.iter().map(|&key| view.find4(key));
            assert!(found.eq(labels.iter().copied()), "{}: {burst:x?}", self.compiler);
            rest = after;
        }
    }

    /// Bursts of all lengths, if the layout has them.
    fn check_bursts6(&self, image: &Image, keys: &[u128]) {
        if !lookup(image.layout()).1 {
            return;
        }
        // SAFETY: shim() defines it so.
        let find: Symbol<'_, FindBurst6> = unsafe { self.symbol(image.layout(), "_burst") };
        let (view, mut rest, mut count) = (image.view(), keys, 0);
        let memory = at_the_edge(image);
        while !rest.is_empty() {
            count = count % BURST_MAX + 1;
            let (burst, after) = rest.split_at(count.min(rest.len()));
            let hi: Vec<u64> = burst.iter().map(|key| (key >> 64) as u64).collect();
            let lo: Vec<u64> = burst.iter().map(|&key| key as u64).collect();
            let [hi, lo] = [hi, lo].map(|half| Guarded::copy(&half, 8));
            let labels = Guarded::copy(&vec![u32::MAX; burst.len()], 4);
            // SAFETY: the image was checked, and as many keys and labels are there.
            unsafe { find(memory.start(), hi.start(), lo.start(), labels.start(), burst.len() as u32) };
            // SAFETY: as many labels were written there.
            let labels = unsafe { std::slice::from_raw_parts(labels.start::<u32>(), burst.len()) };
            let found = burst.iter().map(|&key| view.find6(key));
            assert!(found.eq(labels.iter().copied()), "{}: {burst:x?}", self.compiler);
            rest = after;
        }
    }

    fn check4(&self, image: &Image, keys: impl IntoIterator<Item = u32>) {
        let keys: Vec<u32> = keys.into_iter().collect();
        self.check_bursts4(image, &keys);
        // SAFETY: shim() defines it so.
        let find: Symbol<'_, Find4> = unsafe { self.symbol(image.layout(), "") };
        let (view, memory) = (image.view(), at_the_edge(image));
        for key in keys {
            // SAFETY: the image was checked, so that lookups stay inside its bytes.
            let c = unsafe { find(memory.start(), key) };
            assert_eq!(c, view.find4(key), "{} {} at {key:#010x}", self.compiler, image.layout().name());
        }
    }

    fn check6(&self, image: &Image, keys: impl IntoIterator<Item = u128>) {
        let keys: Vec<u128> = keys.into_iter().collect();
        self.check_bursts6(image, &keys);
        // SAFETY: shim() defines it so.
        let find: Symbol<'_, Find6> = unsafe { self.symbol(image.layout(), "") };
        let (view, memory) = (image.view(), at_the_edge(image));
        for key in keys {
            // SAFETY: the image was checked, so that lookups stay inside its bytes.
            let c = unsafe { find(memory.start(), (key >> 64) as u64, key as u64) };
            assert_eq!(c, view.find6(key), "{} {} at {key:#034x}", self.compiler, image.layout().name());
        }
    }
}

/// The image where a read behind its last line, or before its first, is fatal.
fn at_the_edge(image: &Image) -> Guarded {
    Guarded::copy(image.as_bytes(), 64)
}

fn build(entries: Entries, layout: Layout) -> Image {
    entries.settle().build(layout).unwrap()
}

#[test]
fn prefixes_in_c_are_what_they_are_in_rust() {
    let mut list = comb4();
    list.extend(crowd4(50_000, 3));
    list.extend([(0x0a00_0000, 8, 2), (0xc000_0000, 3, 4), (0, 0, 5), (u32::MAX, 32, 1)]);
    for layout in [Layout::Dxr16x4, Layout::RankLeaf] {
        let image = build(table(Family::Ipv4, Kind::Labels, &list), layout);
        let empty = build(Entries::new(Family::Ipv4, Kind::Labels), layout);
        for datapath in Datapath::all() {
            datapath.check4(&image, edges4(&list));
            datapath.check4(&image, 0x0a00_f000..0x0a01_3000);
            datapath.check4(&empty, edges4(&list[..100]));
        }
    }
}

#[test]
fn rank_leaf_values_of_every_width_in_c() {
    for labels in [255, 256, 0xffff, 0x1_0000, (1 << 20) - 1] {
        // The first are in leaves, the others are answered by entries.
        for length in [24, 20] {
            let list: Vec<_> = (1..=labels).map(|index| (index << 12, length, index)).collect();
            let image = build(table(Family::Ipv4, Kind::Labels, &list), Layout::RankLeaf);
            for datapath in Datapath::all() {
                datapath.check4(&image, edges4(&list[list.len() - 2000.min(list.len())..]));
            }
        }
    }
}

#[test]
fn parts_whose_only_value_is_a_block_in_c() {
    let list = alike6();
    let image = build(table(Family::Ipv6, Kind::Labels, &list), Layout::RankLeaf6);
    for datapath in Datapath::all() {
        datapath.check6(&image, edges6(&list));
    }
}

#[test]
fn counted_leaves_in_c_are_what_they_are_in_rust() {
    let list = counting4().0;
    let image = build(table(Family::Ipv4, Kind::Labels, &list), Layout::CountedLeaf);
    assert_eq!(image.layout(), Layout::CountedLeaf);
    let leaves = build(table(Family::Ipv4, Kind::Labels, &list[..2000]), Layout::CountedLeaf);
    assert_eq!(leaves.layout(), Layout::RankLeaf, "few are smaller so");
    let sample: Vec<_> = list.iter().copied().step_by(7).chain(list[list.len() - 40..].iter().copied()).collect();
    for datapath in Datapath::all() {
        datapath.check4(&image, edges4(&sample));
        datapath.check4(&image, 0x0a06_0fff..0x0a06_2000);
        // The lookup of counted leaves reads an image of rank leaves too.
        // SAFETY: shim() defines it so.
        let find: Symbol<'_, Find4> = unsafe { datapath.symbol(Layout::CountedLeaf, "") };
        // SAFETY: as above.
        let find_burst: Symbol<'_, FindBurst4> = unsafe { datapath.symbol(Layout::CountedLeaf, "_burst") };
        for keys in edges4(&list[..2000]).chunks(BURST_MAX) {
            let (memory, mut labels) = (leaves.as_bytes().as_ptr(), [0; BURST_MAX]);
            // SAFETY: the image was built here, and there is room for as many labels.
            unsafe { find_burst(memory, keys.as_ptr(), labels.as_mut_ptr(), keys.len() as u32) };
            for (&key, label) in keys.iter().zip(labels) {
                // SAFETY: the image was built here.
                let one = unsafe { find(memory, key) };
                assert_eq!((label, one), (leaves.view().find4(key), label), "{} at {key:#010x}", datapath.compiler);
            }
        }
    }
}

#[test]
fn exact_sets_in_c_hold_what_rust_ones_hold() {
    let tail: Vec<_> = (0..100).map(|index| (0xfffe_0000 + index * 1000, 32, 1)).collect();
    for count in [0, 10_000, 150_000, 400_000, 1_000_000] {
        let mut list = crowd4(count, 11);
        list.truncate(count);
        list.extend(&tail);
        let image = build(table(Family::Ipv4, Kind::Set, &list), Layout::ExactSet);
        let sample: Vec<_> = list.iter().copied().step_by(1 + count / 20_000).chain(tail.iter().copied()).collect();
        for datapath in Datapath::all() {
            datapath.check4(&image, edges4(&sample));
        }
    }
}

#[test]
fn fused_sets_in_c_hold_what_rust_ones_hold() {
    for sizes in [&[0, 10][..], &[3000, 60_000], &[100_000, 178_000], &[5000, 200, 90_000], &[400_000, 1, 50_000, 9000]]
    {
        let lists: Vec<_> = sizes.iter().zip(5..).map(|(&size, seed)| crowd4(size, seed)).collect();
        let image = fused(&lists);
        let all: Vec<_> = lists.concat();
        let sample: Vec<_> = all.iter().copied().step_by(1 + all.len() / 20_000).collect();
        for datapath in Datapath::all() {
            datapath.check4(&image, edges4(&sample));
        }
    }
}

#[test]
fn ipv6_sets_in_c_hold_what_rust_ones_hold() {
    for (nets, hosts) in [(0, 0), (1, 0), (0, 1), (20_000, 0), (0, 20_000), (30_000, 30_000)] {
        let list = nets_and_hosts6(nets, hosts, 17);
        let image = build(table(Family::Ipv6, Kind::Set, &list), Layout::ExactSet6);
        for datapath in Datapath::all() {
            datapath.check6(&image, edges6(&list));
        }
    }
}

#[test]
fn fused_sets_of_ipv6_in_c_hold_what_rust_ones_hold() {
    for sizes in [&[(0, 0), (1, 0)][..], &[(20_000, 0), (3, 20_000)], &[(9000, 9000), (100, 0), (0, 9000), (9000, 1)]] {
        let lists = sizes.iter().zip(5..).map(|(&(nets, hosts), seed)| nets_and_hosts6(nets, hosts, seed & 6));
        let lists: Vec<_> = lists.collect();
        let image = fused6(&lists);
        for datapath in Datapath::all() {
            datapath.check6(&image, edges6(&lists.concat()));
        }
    }
}

#[test]
fn exact_leaves_in_c_hold_what_rust_ones_hold() {
    for (prefixes, hosts) in [(comb4(), 0), (vec![], 20_000), (comb4(), 20_000)] {
        let list = [prefixes, crowd4(hosts, 11)].concat();
        let image = build(table(Family::Ipv4, Kind::Set, &list), Layout::ExactLeaf);
        for datapath in Datapath::all() {
            datapath.check4(&image, edges4(&list));
        }
    }
    for (prefixes, hosts) in [(crowd6(), 0), (vec![], 9000), (crowd6(), 9000)] {
        let list = [prefixes, nets_and_hosts6(hosts, hosts, 17)].concat();
        let image = build(table(Family::Ipv6, Kind::Set, &list), Layout::ExactLeaf6);
        for datapath in Datapath::all() {
            datapath.check6(&image, edges6(&list));
        }
    }
}

#[test]
fn ipv6_prefixes_in_c_are_what_they_are_in_rust() {
    let list = crowd6();
    for layout in [Layout::Range6, Layout::RankLeaf6] {
        let image = build(table(Family::Ipv6, Kind::Labels, &list), layout);
        let empty = build(Entries::new(Family::Ipv6, Kind::Set), layout);
        for datapath in Datapath::all() {
            datapath.check6(&image, edges6(&list));
            datapath.check6(&empty, edges6(&list[..100]));
            // Both halves decide: starts that differ in the low one only, and keys around every carry.
            let hosts = 0x2001_0db8_0001u128 << 80;
            datapath.check6(&image, (0..4000).map(|index| hosts + index));
            datapath.check6(&image, [hosts | u128::from(u64::MAX), (hosts | u128::from(u64::MAX)) + 1]);
        }
    }
}

#[test]
fn mutated_images_that_are_accepted_answer_alike() {
    let images = [
        build(table(Family::Ipv4, Kind::Labels, &comb4()), Layout::Dxr16x4),
        build(table(Family::Ipv4, Kind::Set, &crowd4(3000, 5)), Layout::ExactSet),
        build(table(Family::Ipv6, Kind::Labels, &crowd6()), Layout::Range6),
        build(table(Family::Ipv4, Kind::Labels, &comb4()), Layout::RankLeaf),
        build(table(Family::Ipv6, Kind::Labels, &crowd6()), Layout::RankLeaf6),
        fused(&[crowd4(3000, 5), crowd4(20_000, 6), crowd4(100, 7)]),
        build(table(Family::Ipv6, Kind::Set, &nets_and_hosts6(500, 300, 3)), Layout::ExactSet6),
        fused6(&[nets_and_hosts6(500, 300, 3), nets_and_hosts6(50, 3000, 3)]),
        build(table(Family::Ipv4, Kind::Labels, &counting4().0), Layout::CountedLeaf),
        build(table(Family::Ipv4, Kind::Set, &[comb4(), crowd4(3000, 5)].concat()), Layout::ExactLeaf),
        build(table(Family::Ipv6, Kind::Set, &[crowd6(), nets_and_hosts6(500, 300, 3)].concat()), Layout::ExactLeaf6),
    ];
    let datapaths = Datapath::all();
    let mut random = Random(99);
    let mut accepted = 0;
    for _ in 0..250 {
        let image = &images[random.below(images.len())];
        let mut bytes = image.as_bytes().to_vec();
        mutate(&mut bytes, &mut random);
        let Ok(image) = Image::from_bytes(&bytes) else { continue };
        accepted += 1;
        for datapath in datapaths {
            let keys = (0..500).map(|_| random.next());
            match is_ipv6(image.layout()) {
                true => datapath.check6(&image, keys.map(|key| 0x2001_0db8_0001 << 80 | u128::from(key % 4000))),
                false => datapath.check4(&image, keys.map(|key| 0x0a01_0000 | key as u32 & 0x2fff)),
            }
        }
        assert!(ImageView::new(image.as_bytes()).is_ok());
    }
    assert!(accepted > 20, "mutations that change labels and starts only are accepted: {accepted}");
}

/// A value of a hostile image may be the block that it is in, or one further up.
#[test]
fn blocks_without_end_come_to_nothing() {
    let bytes = build(table(Family::Ipv6, Kind::Labels, &crowd6()), Layout::RankLeaf6).as_bytes().to_vec();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    // Header words: offset and bytes of the values. The last value ends three bytes before the end of the image.
    let (values, end) = (word(24 + 4 * 6) as usize, bytes.len() - 3);
    let host = word(64 + 4 * 0x2001) | 1 << 31;
    let mut endless = bytes.clone();
    for at in (values..end).step_by(4).filter(|&at| word(at) >> 31 != 0) {
        endless[at..at + 4].copy_from_slice(&host.to_le_bytes());
    }
    let image = Image::from_bytes(&endless).unwrap();
    for datapath in Datapath::all() {
        datapath.check6(&image, (0..3000).map(|index| 0x2001_0db8_0001 << 80 | index));
        datapath.check6(&image, (0..500).map(|index| 0x2001_0db8_0db8_0db8_0db8_0db8_0db8_0000 | index));
    }
}

#[test]
fn the_same_lookups_compile_for_bpf() {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("shim.c"), dir.path().join("shim.o"));
    std::fs::write(&source, shim()).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datapath");
    let flags = ["-std=c11", "--target=bpf", "-mcpu=v3", "-O2", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-c"];
    let mut clang = Command::new("clang-19");
    clang.args(flags).args(["-DWEIR_COUNTERS=64", "-I"]).arg(include).arg("-o").args([&object, &source]);
    let run = clang.output().expect("clang-19 is installed: only it compiles for BPF");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
