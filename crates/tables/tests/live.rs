//! Live tables of every layout against a plain model, after every change.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use support::Random;
use support::live::{LABELS, Model, Net, names};
use weir_abi::{Family, Layout};
use weir_tables::live::{Change, IMAGES_WAITING_MAX, LiveEntry, PublishedImage, Reader};
use weir_tables::{BuildError, Entries, Kind, LiveError, LiveTable, Problem, Readers};

/// A live table with its model.
struct Driven {
    model: Model,
    live: LiveTable,
    readers: Readers,
    reader: Reader,
    names: Vec<String>,
    random: Random,
}

impl Driven {
    fn new(layout: Layout, kind: Kind, count: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let model = Model::random(layout, kind, count, &mut random);
        let readers = Readers::new();
        let table = model.table();
        // A table that was constant before must behave like one that was built to change.
        let live = match seed % 2 {
            0 => LiveTable::new(&readers, &table, layout).unwrap(),
            _ => {
                let image = Arc::new(table.build(layout).unwrap());
                LiveTable::take_over(PublishedImage::new(&readers, image), &[&table], layout)
            }
        };
        let reader = readers.register().unwrap();
        Driven { model, live, readers, reader, names: names(LABELS + 1), random }
    }

    /// Makes changes that the model was told of.
    fn make(&mut self, wanted: &[(Net, u32)]) {
        if wanted.len() > 1 && self.random.below(2) == 0 {
            return self.make_by_tables(wanted);
        }
        let changes: Vec<Change<'_>> = wanted.iter().map(|&one| self.model.as_change(one, &self.names)).collect();
        let changed = self.live.change(&changes).unwrap();
        assert!(changed <= wanted.len());
        assert_eq!((self.live.len(), self.live.count(0)), (self.model.held.len(), self.model.held.len()));
    }

    /// Makes the changes by two tables: one of removed and one of inserted prefixes.
    fn make_by_tables(&mut self, wanted: &[(Net, u32)]) {
        let last: BTreeMap<Net, u32> = wanted.iter().copied().collect();
        let (removed, inserted): (Vec<_>, Vec<_>) =
            last.iter().map(|(&net, &label)| (net, label)).partition(|&(_, label)| label == 0);
        let removed = self.model.table_of(removed.into_iter().map(|(net, _)| (net, 1)));
        let inserted = self.model.table_of(inserted.into_iter());
        let changed = self.live.remove_all(0, &removed).unwrap() + self.live.insert_all(0, &inserted).unwrap();
        assert!(changed <= last.len());
        assert_eq!((self.live.len(), self.live.count(0)), (self.model.held.len(), self.model.held.len()));
    }

    /// Asks for the keys around prefixes, and for others.
    fn check(&mut self, nets: impl IntoIterator<Item = Net>, others: usize) {
        let mut keys: Vec<u128> = nets.into_iter().flat_map(|net| self.model.edges(net)).collect();
        keys.extend((0..others).map(|_| self.model.key(&mut self.random)));
        let image = self.live.image();
        let burst = self.reader.start_burst();
        let view = image.open(&burst);
        for key in keys {
            let (found, other) = match self.model.family {
                Family::Ipv4 => (view.find4((key >> 96) as u32), view.find6(key)),
                Family::Ipv6 => (view.find6(key), view.find4(key as u32)),
            };
            assert_eq!(other, 0, "of the other family");
            let right = self.model.find(key);
            let found = match (self.model.kind, found) {
                (Kind::Set, _) | (_, 0) => found.to_string(),
                (Kind::Labels, id) => self.live.labels()[id as usize - 1].to_string(),
            };
            let right = match (self.model.kind, right) {
                (Kind::Set, _) | (_, 0) => right.to_string(),
                (Kind::Labels, label) => format!("L{label}"),
            };
            assert_eq!(found, right, "{} at {key:#034x}", self.model.layout.name());
            let longest = self.live.longest(0, self.model.address(key));
            let label = longest.map_or("0", |entry| entry.label.unwrap_or("1"));
            assert_eq!(label, right, "{longest:?} at {key:#034x}");
        }
    }

    /// Compares all entries with the entries of the model.
    fn check_entries(&self) {
        let entry = |(&(addr, len), &label): (&Net, &u32)| {
            let label = (self.model.kind == Kind::Labels).then(|| self.names[label as usize].as_str());
            LiveEntry { addr: self.model.address(addr), len, label, number: 0 }
        };
        assert!(self.live.entries(0).eq(self.model.held.iter().map(entry)));
    }

    /// Changes and asks, in turn.
    fn drive(&mut self, rounds: usize) {
        for round in 0..rounds {
            let batch = if round % 8 == 7 { 2 + self.random.below(60) } else { 1 };
            let changes = self.model.change(&mut self.random, batch);
            self.make(&changes);
            self.check(changes.into_iter().map(|(net, _)| net), 20);
        }
        let all: Vec<Net> = self.model.held.keys().copied().collect();
        self.check(all, 1000);
        self.check_entries();
    }

    /// Removes everything, and puts some back.
    fn empty(&mut self) {
        let all: Vec<(Net, u32)> = self.model.held.keys().map(|&net| (net, 0)).collect();
        for some in all.chunks(1 + all.len() / 8) {
            some.iter().for_each(|&(net, gone)| self.model.set(net, gone));
            self.make(some);
            self.check(some.iter().map(|&(net, _)| net), 10);
        }
        assert!(self.live.is_empty());
        self.drive(20);
    }
}

const KINDS: [(Layout, Kind); 14] = [
    (Layout::ExactSet, Kind::Set),
    (Layout::ExactSets, Kind::Set),
    (Layout::ExactSet6, Kind::Set),
    (Layout::ExactSets6, Kind::Set),
    (Layout::Dxr16x4, Kind::Labels),
    (Layout::RankLeaf, Kind::Labels),
    (Layout::RankLeaf, Kind::Set),
    (Layout::CountedLeaf, Kind::Labels),
    (Layout::RankLeaf6, Kind::Labels),
    (Layout::RankLeaf6, Kind::Set),
    (Layout::ExactLeaf, Kind::Set),
    (Layout::ExactLeaf6, Kind::Set),
    (Layout::Range6, Kind::Labels),
    (Layout::Range6, Kind::Set),
];

#[test]
fn changed_tables_say_what_the_model_says() {
    for (layout, kind) in KINDS {
        let rounds = if matches!(layout, Layout::Dxr16x4 | Layout::Range6) { 30 } else { 500 };
        for (count, seed) in [(0, 1), (30, 2), (3000, 3)] {
            let mut driven = Driven::new(layout, kind, count, seed);
            driven.drive(rounds);
            driven.empty();
        }
    }
}

#[test]
fn replaced_tables_hold_the_new_and_nothing_of_the_old() {
    for (layout, kind) in KINDS {
        for (count, seed) in [(200, 5), (5000, 6)] {
            let mut driven = Driven::new(layout, kind, count, seed);
            let old: Vec<Net> = driven.model.held.keys().copied().collect();
            // Another list, then one that differs in a few.
            driven.model = Model::random(layout, kind, count, &mut driven.random);
            driven.live.replace(0, &driven.model.table()).unwrap();
            driven.check(old, 500);
            let changes = driven.model.change(&mut driven.random, 10);
            driven.live.replace(0, &driven.model.table()).unwrap();
            driven.check(changes.into_iter().map(|(net, _)| net), 500);
            assert_eq!(driven.live.replace(0, &driven.model.table()).unwrap(), 0, "nothing is new");
            assert_eq!(driven.live.len(), driven.model.held.len());
        }
    }
}

#[test]
fn fused_sets_change_apart() {
    for layout in [Layout::ExactSets, Layout::ExactSets6] {
        change_fused_sets(layout);
    }
}

fn change_fused_sets(layout: Layout) {
    let mut random = Random(9);
    let mut models: Vec<Model> =
        [500, 40, 2000].map(|count| Model::random(layout, Kind::Set, count, &mut random)).into();
    let tables: Vec<_> = models.iter().map(Model::table).collect();
    let readers = Readers::new();
    let mut live = LiveTable::fused(&readers, &tables.iter().collect::<Vec<_>>()).unwrap();
    let mut reader = readers.register().unwrap();
    let names = names(LABELS + 1);
    for round in 0..3000 {
        let set = random.below(3);
        let changes = models[set].change(&mut random, 1 + round % 3);
        if round % 500 == 499 {
            live.replace(set, &models[set].table()).unwrap();
        } else {
            let made: Vec<_> = changes.iter().map(|&one| models[set].as_change(one, &names).in_set(set)).collect();
            live.change(&made).unwrap();
        }
        let counts = models.iter().map(|model| model.held.len());
        assert!(counts.eq((0..3).map(|set| live.count(set))));
        let image = live.image();
        let burst = reader.start_burst();
        let view = image.open(&burst);
        let keys = changes.iter().flat_map(|&(net, _)| models[set].edges(net)).collect::<Vec<_>>();
        for key in keys.into_iter().chain((0..20).map(|_| models[0].key(&mut random)).collect::<Vec<_>>()) {
            let right: u32 = models.iter().enumerate().map(|(set, model)| model.find(key) << set).sum();
            let found = if layout == Layout::ExactSets { view.find4((key >> 96) as u32) } else { view.find6(key) };
            assert_eq!(found, right, "{key:#034x} in round {round}");
        }
    }
    assert!(live.built_anew() < 200, "{} of 3000 changes were not made in place", live.built_anew());
    let unknown = models[0].as_change(((0, 32), 0), &names).in_set(3);
    assert_eq!(live.change(&[unknown]), Err(LiveError::NoSuchSet { set: 3, sets: 3 }));
    assert!(matches!(live.replace(3, &tables[0]), Err(LiveError::NoSuchSet { set: 3, sets: 3 })));
}

#[test]
fn sets_grow_from_nothing_and_shrink_again() {
    let grown = [
        (Layout::ExactSet, 200_000),
        (Layout::ExactSet6, 20_000),
        (Layout::ExactLeaf, 200_000),
        (Layout::ExactLeaf6, 20_000),
    ];
    for (layout, count) in grown {
        let mut driven = Driven::new(layout, Kind::Set, 0, 4);
        let mut random = Random(77);
        let nets: Vec<Net> = (0..count)
            .map(|index| match layout {
                Layout::ExactLeaf if index % 1000 == 0 => (u128::from(random.next() as u32) << 96 & !0 << 104, 24),
                Layout::ExactSet | Layout::ExactLeaf => (u128::from(random.next() as u32) << 96, 32),
                Layout::ExactLeaf6 if index % 1000 == 0 => (u128::from(random.next()) << 80, 48),
                _ if index % 3 == 0 => (u128::from(random.next()) << 64, 64),
                _ => (0x2001_0db8 << 96 | u128::from(random.next()), 128),
            })
            .collect();
        for (to, step) in [(1, 1), (0, 1)] {
            for &net in nets.iter().step_by(step) {
                driven.model.set(net, to);
                driven.make(&[(net, to)]);
            }
            driven.check(nets.iter().copied().step_by(7), 1000);
        }
        assert!(driven.live.is_empty());
    }
}

/// Three fifths of the slots are used at first, so few keys find both of their buckets full.
#[test]
fn an_exact_set_of_ipv6_grows_by_a_tenth_in_place() {
    const COUNT: usize = 30_000;
    for len in [64, 128] {
        let mut random = Random(u64::from(len));
        let mut addr = || u128::from(random.next()) << 64 | if len == 128 { u128::from(random.next()) } else { 0 };
        let mut entries = Entries::new(Family::Ipv6, Kind::Set);
        (0..COUNT).for_each(|_| entries.insert_prefix(Ipv6Addr::from(addr()).into(), len, None).unwrap());
        let mut live = LiveTable::new(&Readers::new(), &entries.settle(), Layout::ExactSet6).unwrap();
        let mut inserted = 0;
        while live.built_anew() == 0 && inserted < COUNT {
            assert!(live.insert(Ipv6Addr::from(addr()).into(), len, None).unwrap());
            inserted += 1;
        }
        assert!(inserted > COUNT / 10, "/{len}: {inserted} beside {COUNT}");
        assert!(inserted < COUNT, "the image is rebuilt before lookups become slow");
    }
}

#[test]
fn changes_that_cannot_be_are_refused_and_change_nothing() {
    let v4: IpAddr = Ipv4Addr::new(10, 0, 0, 1).into();
    let v6: IpAddr = Ipv6Addr::LOCALHOST.into();
    let wrong = |prefix: &str, problem| Err(LiveError::Change { prefix: prefix.into(), problem });
    let readers = Readers::new();
    let labelled = Entries::new(Family::Ipv4, Kind::Labels).settle();
    let mut live = LiveTable::new(&readers, &labelled, Layout::RankLeaf).unwrap();
    assert_eq!(live.insert(v6, 64, Some("a")), wrong("::1/64", Problem::OtherFamily(Family::Ipv4)));
    assert_eq!(live.insert(v4, 33, Some("a")), wrong("10.0.0.1/33", Problem::LongLength(Family::Ipv4)));
    assert_eq!(live.insert(v4, 8, None), wrong("10.0.0.1/8", Problem::NoLabel));
    assert_eq!(live.insert(v4, 8, Some(&"a".repeat(256))), wrong("10.0.0.1/8", Problem::LongLabel));
    let half = [Change::insert(v4, 8, Some("a")), Change::insert(v4, 9, None)];
    assert_eq!(live.change(&half), Err(LiveError::Change { prefix: "10.0.0.1/9".into(), problem: Problem::NoLabel }));
    assert_eq!((live.len(), live.remove(v4, 8)), (0, Ok(false)));
    let set = Entries::new(Family::Ipv4, Kind::Set).settle();
    assert!(matches!(live.replace(0, &set), Err(LiveError::Build(BuildError::Labelled { .. }))));

    let mut live = LiveTable::new(&readers, &set, Layout::ExactSet).unwrap();
    let refused = live.insert(v4, 24, None).unwrap_err();
    assert_eq!(refused.to_string(), "layout exact-set holds /32 addresses only, the table has 10.0.0.0/24");
    assert_eq!(live.remove(v4, 24), Ok(false), "it cannot be there");
    let set6 = Entries::new(Family::Ipv6, Kind::Set).settle();
    assert!(matches!(live.replace(0, &set6), Err(LiveError::Build(BuildError::Family { .. }))));
    assert!(matches!(LiveTable::new(&readers, &set, Layout::ExactSet6), Err(LiveError::Build(_))));
    let mut live = LiveTable::new(&readers, &set6, Layout::ExactSet6).unwrap();
    let refused = live.insert(v6, 48, None).unwrap_err();
    assert_eq!(refused.to_string(), "layout exact-set6 holds /64 and /128 prefixes only, the table has ::/48");
}

/// So an element of a policy inside a larger one has an effect in a dynamic table (`W0407`).
#[test]
fn an_entry_stays_when_the_larger_one_leaves() {
    let addr = |text: &str| text.parse::<IpAddr>().unwrap();
    for layout in [Layout::RankLeaf, Layout::ExactLeaf] {
        let mut entries = Entries::new(Family::Ipv4, Kind::Set);
        for element in ["192.0.2.0/24", "192.0.2.34"] {
            entries.insert_text(element, None).unwrap();
        }
        let mut live = LiveTable::new(&Readers::new(), &entries.settle(), layout).unwrap();
        assert_eq!(live.remove(addr("192.0.2.0"), 24), Ok(true));
        assert_eq!(live.longest(0, addr("192.0.2.34")).map(|entry| entry.to_string()).as_deref(), Some("192.0.2.34"));
        assert_eq!(live.longest(0, addr("192.0.2.35")), None);
    }
}

#[test]
fn labels_keep_their_ids() {
    let readers = Readers::new();
    let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
    entries.insert_text("10.0.0.0/8", Some("b")).unwrap();
    entries.insert_text("11.0.0.0/8", Some("a")).unwrap();
    let mut live = LiveTable::new(&readers, &entries.settle(), Layout::RankLeaf).unwrap();
    live.insert(Ipv4Addr::new(12, 0, 0, 0).into(), 8, Some("c")).unwrap();
    live.remove(Ipv4Addr::new(10, 0, 0, 0).into(), 8).unwrap();
    assert_eq!(live.labels().iter().map(|name| &**name).collect::<Vec<_>>(), ["b", "a", "c"]);
    assert_eq!((live.layout(), live.family(), live.len()), (Layout::RankLeaf, Family::Ipv4, 2));
}

#[test]
fn a_reader_that_stays_keeps_its_image_and_holds_the_writer_back_at_last() {
    let mut driven = Driven::new(Layout::Dxr16x4, Kind::Labels, 10, 8);
    let address = |index: u8| IpAddr::from(Ipv4Addr::new(192, 168, 0, index));
    let image = driven.live.image();
    let mut other = driven.readers.register().unwrap();
    {
        let burst = other.start_burst();
        let view = image.open(&burst);
        for index in 0..IMAGES_WAITING_MAX as u8 {
            assert_eq!(driven.live.insert(address(index), 32, Some("L1")), Ok(true));
        }
        let behind = LiveError::ReadersBehind { images: IMAGES_WAITING_MAX };
        assert_eq!(driven.live.insert(address(99), 32, Some("L1")), Err(behind));
        assert!(driven.live.free(), "the reader has not gone on");
        assert_eq!(view.find4(0xc0a8_0001), 0, "the reader sees what was there when it came");
    }
    let burst = other.start_burst();
    assert_ne!(image.open(&burst).find4(0xc0a8_0001), 0);
    assert_eq!(image.open(&burst).find4(0xc0a8_0000 + 99), 0, "what was refused was not half made");
    assert!(!driven.live.free());
    other.rest();
    assert_eq!(driven.live.insert(address(99), 32, Some("L1")), Ok(true));
    // Readers may look into the image when the table is gone.
    drop(driven);
    let burst = other.start_burst();
    assert_ne!(image.open(&burst).find4(0xc0a8_0000 + 99), 0);
}

#[test]
fn a_prefix_whose_removal_fails_stays_in_the_table() {
    let readers = Readers::new();
    let set = Entries::new(Family::Ipv4, Kind::Set).settle();
    let mut live = LiveTable::new(&readers, &set, Layout::ExactLeaf).unwrap();
    let image = live.image();
    let mut reader = readers.register().unwrap();
    let address = |net: u8, host: u8| IpAddr::from(Ipv4Addr::new(10, 0, net, host));
    // A host that the reader may not have seen makes each removal a rebuild, and the reader keeps every image.
    let failed = {
        let _burst = reader.start_burst();
        let mut remove = |net: u8| {
            live.insert(address(net, 0), 24, None).unwrap();
            live.insert(address(net, 1), 32, None).unwrap();
            live.remove(address(net, 0), 24)
        };
        (0..20).find(|&net| remove(net).is_err()).expect("no room for more images")
    };
    let find = |host: u8| {
        let mut other = readers.register().unwrap();
        let burst = other.start_burst();
        image.open(&burst).find4(0x0a00_0000 | u32::from(failed) << 8 | u32::from(host))
    };
    assert_eq!(live.longest(0, address(failed, 9)).map(|entry| entry.len), Some(24));
    assert_eq!([find(9), find(1)], [1, 1]);
    reader.rest();
    assert_eq!(live.remove(address(failed, 0), 24), Ok(true));
    assert_eq!((live.longest(0, address(failed, 9)), [find(9), find(1)]), (None, [0, 1]));
}

#[test]
fn parts_outgrow_their_leaves_and_shrink_again() {
    for layout in [Layout::RankLeaf, Layout::RankLeaf6] {
        let mut driven = Driven::new(layout, Kind::Labels, 0, 1);
        let net = |index: u32| match layout {
            Layout::RankLeaf => (u128::from(0x0a01_0000 + 2 * index) << 96, 32),
            _ => ((0x2001_0db8_0001_0000 + 2 * u128::from(index)) << 64, 64),
        };
        // From the middle outwards, so that leaves split on either side.
        let order = (0..2000u32).map(|index| if index % 2 == 0 { 1000 + index / 2 } else { 1000 - index.div_ceil(2) });
        for (turn, label) in [1, 2, 0].into_iter().enumerate() {
            for index in order.clone() {
                let change = (net(index), if label == 0 { 0 } else { 1 + (index + turn as u32) % 5 });
                driven.model.set(change.0, change.1);
                driven.make(&[change]);
                driven.check([net(index)], 2);
            }
            driven.check((0..2000).map(net), 100);
        }
        assert!(driven.live.is_empty());
        assert!(driven.live.built_anew() <= 3, "{} images for 6000 changes", driven.live.built_anew());
    }
}

#[test]
fn labels_and_steps_that_the_image_was_not_built_for() {
    for layout in [Layout::RankLeaf, Layout::RankLeaf6] {
        let mut driven = Driven::new(layout, Kind::Labels, 50, 2);
        driven.names = names(70_001);
        let net = |index: u128| match layout {
            Layout::RankLeaf => (index << 108, 20),
            _ => (0x2000 << 112 | index << 80, 48),
        };
        for label in 1..=70_000u32 {
            let change = (net(label.into()), label);
            driven.model.set(change.0, label);
            if label % 1000 == 0 || (250..260).contains(&label) || (65_530..65_540).contains(&label) {
                driven.make(&[change]);
                driven.check([change.0, net(200), net(u128::from(label) - 1)], 10);
            } else {
                driven.live.change(&[driven.model.as_change(change, &driven.names)]).unwrap();
                driven.reader.start_burst();
            }
        }
        assert!(driven.live.labels().len() >= 70_000);
    }
}

#[test]
fn short_prefixes_lie_under_what_is_there() {
    for layout in [Layout::RankLeaf, Layout::RankLeaf6, Layout::Dxr16x4, Layout::Range6] {
        let mut driven = Driven::new(layout, Kind::Labels, 2000, 3);
        for len in (0..=18).chain((0..=18).rev()) {
            for label in [1 + u32::from(len) % 5, 0, 4] {
                let first =
                    if len == 0 { 0 } else { (0x0a01_u128 << 112) >> (128 - u32::from(len)) << (128 - u32::from(len)) };
                driven.model.set((first, len), label);
                driven.make(&[((first, len), label)]);
                driven.check([(first, len), (0x0a01 << 112, 16)], 100);
            }
        }
    }
}

/// A lookup asks for a network, then for a host. A reader that asked before the network came, and asks after the host
/// has gone, must see one of them.
#[test]
fn a_host_goes_in_place_only_after_readers_can_see_its_network() {
    let mut entries = Entries::new(Family::Ipv6, Kind::Set);
    for index in 0..100 {
        entries.insert_text(&format!("2001:db8:{index}::/64"), None).unwrap();
        entries.insert_text(&format!("2001:db8:0:1::{index}"), None).unwrap();
    }
    let readers = Readers::new();
    let mut live = LiveTable::new(&readers, &entries.settle(), Layout::ExactSet6).unwrap();
    let mut reader = readers.register().unwrap();
    let network = "2001:db8:0:1::".parse().unwrap();
    let host = |index: u32| format!("2001:db8:0:1::{index:x}").parse().unwrap();

    reader.start_burst();
    assert!(live.insert(network, 64, None).unwrap());
    assert!(live.remove(host(1), 128).unwrap());
    assert_eq!(live.built_anew(), 1, "the reader is in the burst that it began before");
    reader.start_burst();
    assert!(live.remove(host(2), 128).unwrap());
    assert_eq!(live.built_anew(), 1, "everybody knows the network");
    // The other way round: the network goes while a host has just come.
    assert!(live.insert(host(0xffff), 128, None).unwrap());
    assert!(live.remove(network, 64).unwrap());
    assert_eq!(live.built_anew(), 2);
    reader.rest();
    assert!(live.insert(network, 64, None).unwrap() && live.remove(host(3), 128).unwrap());
    assert_eq!(live.built_anew(), 2, "nobody reads");
}
