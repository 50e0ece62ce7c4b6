//! Tables of addresses: no address ever passes more than its limit, however many there are; each gets its own while
//! there is room.

#![allow(missing_docs, reason = "a test")]

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use weir_abi::each::{self, EXCEEDER_SET_BITS, EXCEEDER_SETS, HashedAddress, Record, SIZE_DEFAULT, TIME_BITS, WAYS};
use weir_abi::{Family, Limit, limit};

fn limit(text: &str) -> Limit {
    text.parse().unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

/// A table of few sets and what limits it.
struct Table {
    profile: weir_abi::LimitProfile,
    set_bits: u32,
    sets: Vec<[u64; WAYS]>,
}

impl Table {
    fn new(limit: Limit, set_bits: u32, now_ns: u64) -> Self {
        let profile = each::profile(limit).expect("a burst that fits");
        let word = each::empty(each::ticks(now_ns, profile.coarse));
        Table { profile, set_bits, sets: vec![[word; WAYS]; 1 << set_bits] }
    }

    fn passes(&mut self, address: u32, now_ns: u64, bytes: u32) -> bool {
        let HashedAddress { set, tag } = HashedAddress::of_ipv4(address, 0, self.set_bits);
        let now = each::ticks(now_ns, self.profile.coarse);
        each::charge(&mut self.sets[set as usize], tag, now, self.profile.cost(bytes), self.profile.room)
    }
}

/// A fluid bucket of one address that leaks exactly as the limit says: packets, or bytes, times ns times the seconds
/// that the rate counts in.
#[derive(Default)]
struct Exact {
    level: u128,
    last_ns: u64,
}

impl Exact {
    /// Takes a packet; whether what came is within burst + rate * time of every window.
    fn holds(&mut self, limit: Limit, now_ns: u64, bytes: u32) -> bool {
        let (rate, unit) = match limit.rate() {
            weir_abi::Rate::Packets { count, per: weir_abi::rate::Per::Second } => (u128::from(count), 1_000_000_000),
            weir_abi::Rate::Bits(bits) => (u128::from(bits), 8_000_000_000 * u128::from(bytes)),
            weir_abi::Rate::Packets { .. } => panic!("not asked here"),
        };
        let scale = if unit == 1_000_000_000 { 1_000_000_000 } else { 8_000_000_000 };
        self.level = self.level.saturating_sub(u128::from(now_ns - self.last_ns) * rate) + unit;
        self.last_ns = now_ns;
        self.level <= u128::from(limit.burst()) * scale
    }
}

fn limits() -> BoxedStrategy<Limit> {
    let packets = (1..5_000_000_u64, 1..200_u64).prop_map(|(rate, burst)| limit(&format!("{rate} burst {burst}")));
    let bits = (8_000..40_000_000_000_u64, 1514..100_000_u64)
        .prop_map(|(rate, burst)| limit(&format!("{rate}bit burst {burst}")));
    prop_oneof![packets, bits].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Up to 200 addresses share a set of eight words: each is held to its limit, in every window.
    #[test]
    fn no_address_passes_more_than_its_limit(
        limit in limits(),
        start in 0..u64::MAX / 4,
        arrivals in vec((0..200_u32, 0..300_u64, 60..1514_u32), 1..3000),
    ) {
        let mut table = Table::new(limit, 0, start);
        let mut exact: HashMap<u32, Exact> = HashMap::new();
        let (mut elapsed, cost) = (0, limit.profile().cost(60) >> limit::TICK_SHIFT);
        for (address, gap, bytes) in arrivals {
            elapsed += cost * gap / 1000;
            if table.passes(address, start + elapsed, bytes) {
                let holds = exact.entry(address).or_default().holds(limit, elapsed, bytes);
                prop_assert!(holds, "{limit} let {address} have too much at {elapsed}");
            }
        }
    }

    /// Packets come a little too fast all the time, so that each is judged at the edge.
    #[test]
    fn an_address_at_its_limit_stays_within_it(
        // Some cost whole ticks, so that no rounding hides a packet that is early.
        limit in prop_oneof![limits(), prop::sample::select(vec!["2kpps burst 3", "20kpps burst 50", "100 burst 1"]).prop_map(limit)],
        start in 0..u64::MAX / 4,
        gaps in vec(0..1_000_000_u64, 500),
        bytes in 60..1514_u32,
    ) {
        let mut table = Table::new(limit, 0, start);
        let (mut exact, mut elapsed) = (Exact::default(), 0);
        // At once all that it has room for.
        while table.passes(7, start, bytes) {
            prop_assert!(exact.holds(limit, 0, bytes));
        }
        let mut later = 0;
        for gap in gaps {
            elapsed += (limit.profile().cost(bytes) >> limit::TICK_SHIFT) * gap / 1_000_000;
            if table.passes(7, start + elapsed, bytes) {
                later += 1;
                prop_assert!(exact.holds(limit, elapsed, bytes), "{limit} let too much through at {elapsed}");
            }
        }
        prop_assert!(later > 0 || table.profile.room < 2 * table.profile.cost(bytes), "{limit}: nothing was tried");
    }

    /// Eight addresses of a set each have a bucket of their own, whatever the others do.
    #[test]
    fn while_there_is_room_each_has_its_own(
        limit in limits(),
        start in 0..u64::MAX / 4,
        arrivals in vec((0..8_u32, 0..300_u64, 60..1514_u32), 1..2000),
    ) {
        let mut table = Table::new(limit, 0, start);
        let mut alone: HashMap<u32, Table> = HashMap::new();
        let (mut elapsed, cost) = (0, limit.profile().cost(60) >> limit::TICK_SHIFT);
        for (address, gap, bytes) in arrivals {
            elapsed += cost * gap / 1000;
            let own = alone.entry(address).or_insert_with(|| Table::new(limit, 0, start));
            prop_assert_eq!(table.passes(address, start + elapsed, bytes), own.passes(address, start + elapsed, bytes));
        }
    }

    /// Ten times as much is offered as may pass.
    #[test]
    fn a_saturated_address_gets_its_rate(limit in limits(), start in 0..u64::MAX / 4) {
        let mut table = Table::new(limit, 7, start);
        let cost = table.profile.cost(1000);
        prop_assume!(table.profile.room >= 2 * cost);
        // Ticks of the table; a tenth of a packet each.
        let hashed = HashedAddress::of_ipv4(77, 0, 7);
        let set = &mut table.sets[hashed.set as usize];
        let begin = each::ticks(start, table.profile.coarse);
        while each::charge(set, hashed.tag, begin, cost, table.profile.room) {}
        let (mut now, mut passed) = (0, 0_u64);
        while passed < 2000 {
            now += (cost / 10).max(1);
            passed += u64::from(each::charge(set, hashed.tag, begin.wrapping_add(now), cost, table.profile.room));
        }
        // What the limit itself would have let pass in that time, in its own ticks.
        let earned = (u128::from(now) << table.profile.coarse) / u128::from(limit.profile().cost(1000));
        prop_assert!(u128::from(passed).abs_diff(earned) <= earned / 1000 + 2, "{limit}: {passed} of {earned}");
    }
}

#[test]
fn ipv4_addresses_share_no_word_in_the_default_table() {
    let bits = each::set_bits(SIZE_DEFAULT);
    for seed in [0, 1, 0xdead_beef] {
        let addresses = (0..1 << 16).chain((0..1 << 16).map(|host| host << 16)).chain((1..1 << 20).map(|a| a * 4093));
        let addresses: HashSet<u32> = addresses.collect();
        let hashes: HashSet<(u32, u16)> = addresses
            .iter()
            .map(|&address| HashedAddress::of_ipv4(address, seed, bits))
            .map(|hashed| (hashed.set, hashed.tag))
            .collect();
        assert_eq!(hashes.len(), addresses.len());
    }
}

/// Neighbours, strides and hosts of many networks: no set gets many more of them than another.
#[test]
fn addresses_spread_over_sets() {
    let spread = |hashes: &mut dyn Iterator<Item = HashedAddress>| {
        let mut counts = vec![0_u32; 1 << 10];
        hashes.for_each(|hashed| counts[hashed.set as usize] += 1);
        *counts.iter().max().expect("there are sets")
    };
    // 64 a set on average: 8 standard deviations more.
    for stride in [1, 256, 65536, 4093, 1 << 12] {
        let mut ipv4 = (0..1u32 << 16).map(|n| HashedAddress::of_ipv4(n.wrapping_mul(stride) ^ n >> 20, 5, 10));
        let most = spread(&mut ipv4);
        // A stride of 2^16 repeats itself.
        assert!(most <= 128 || stride == 65536 || stride == 1 << 12, "{stride}: {most}");
        let mut ipv6 = (0..1u128 << 16).map(|n| HashedAddress::of_ipv6(0x2001_0db8 << 96 | n << stride.ilog2(), 5, 10));
        assert!(spread(&mut ipv6) <= 128, "{stride}");
        let mut networks = (0..1u128 << 16).map(|n| HashedAddress::of_ipv6(n << (64 + stride.ilog2()), 5, 10));
        assert!(spread(&mut networks) <= 128, "{stride}");
    }
}

#[test]
fn words_come_round_unless_they_are_refreshed() {
    let mut table = Table::new(limit("250mpps burst 1000"), 0, 0);
    let coarse = table.profile.coarse;
    assert_eq!(coarse, 0, "the shortest ticks there are");
    let range_ns = 1_u64 << (TIME_BITS - limit::TICK_SHIFT);
    (0..1000).for_each(|_| assert!(table.passes(7, 0, 60)));
    assert!(!table.passes(7, 0, 60));
    // Behind by less than half of what a time can say, a bucket is full.
    assert!(
        table.sets[0].iter().all(|&word| each::refreshed(word, each::ticks(range_ns / 2 - 10_000, coarse)) != word)
    );
    let now = each::ticks(range_ns * 3 / 4, coarse);
    for word in &mut table.sets[0] {
        *word = each::refreshed(each::refreshed(*word, each::ticks(range_ns * 3 / 8, coarse)), now);
    }
    (0..1000).for_each(|_| assert!(table.passes(7, range_ns * 3 / 4, 60)));
    assert!(!table.passes(7, range_ns * 3 / 4, 60));
    // What is ahead stays as it is.
    let word = table.sets[0];
    assert_eq!(word.map(|word| each::refreshed(word, now)), word);
}

/// What rounding takes of a rate, by the smallest packets.
#[test]
fn rounding_takes_less_than_a_thousandth() {
    let worst = |text: &str| {
        let limit = limit(text);
        let profile = each::profile(limit).expect("it is short");
        let exact = match limit.rate() {
            weir_abi::Rate::Packets { count, .. } => limit::TICKS_PER_S as f64 / count as f64,
            weir_abi::Rate::Bits(bits) => limit::TICKS_PER_S as f64 * 480.0 / bits as f64,
        };
        (profile.cost(60) << profile.coarse) as f64 / exact - 1.0
    };
    for rate in (0..20_000_u64).map(|nth| 8_000 + nth * nth * 149 + nth) {
        for text in [
            format!("{rate}bit"),
            format!("{rate}bit burst {}", 1514 + rate % 50_000),
            format!("{}pps", 1 + rate % 1_000_000),
        ] {
            let taken = worst(&text);
            assert!((-1e-12..0.001).contains(&taken), "{text}: {taken}");
        }
    }
}

#[test]
fn extremes_fit_or_are_refused() {
    for text in ["1/hour burst 78", "8kbit burst 10000000", "1tbit burst 100000000", "250mpps burst 1000000", "0"] {
        let limit = limit(text);
        let profile = each::profile(limit).unwrap_or_else(|| panic!("{text}"));
        assert!(profile.room <= each::ROOM_MAX && profile.cost(u32::MAX) < 1 << 46, "{text}");
        let mut table = Table::new(limit, 1, u64::MAX);
        assert_eq!(table.passes(9, u64::MAX, 60), text != "0", "{text}");
    }
    assert_eq!(each::profile(limit("250mpps burst 99999999999")), None);
}

/// The records of a table, and what they should say.
struct Records {
    family: Family,
    seed: u32,
    sets: Vec<[Record; WAYS]>,
    /// Packets of each address, by set.
    exact: Vec<HashMap<u128, u64>>,
}

impl Records {
    fn new(family: Family, seed: u32) -> Self {
        let sets = vec![[Record::default(); WAYS]; EXCEEDER_SETS];
        Records { family, seed, sets, exact: vec![HashMap::new(); EXCEEDER_SETS] }
    }

    fn count(&mut self, address: u128) {
        let hashed = HashedAddress::of(address, self.family, self.seed, EXCEEDER_SET_BITS);
        each::count_exceeded(&mut self.sets[hashed.set as usize], hashed.tag, address);
        *self.exact[hashed.set as usize].entry(address).or_default() += 1;
    }

    /// The addresses of a set, with their counts.
    fn counted(&self, set: usize) -> HashMap<u128, u64> {
        let address = |record: &Record| each::exceeder(record, set, self.family, self.seed);
        let records = self.sets[set].iter();
        records.filter_map(|record| Some((address(record)?, record[0] & each::PACKETS_MASK))).collect()
    }

    fn holds(&self) {
        for (set, exact) in self.exact.iter().enumerate() {
            let counted = self.counted(set);
            let all: u64 = exact.values().sum();
            assert_eq!(counted.values().sum::<u64>(), all, "every packet is in a record");
            let fewest = if counted.len() < WAYS { 0 } else { counted.values().copied().min().unwrap_or(0) };
            for (address, &packets) in exact {
                let count = counted.get(address).copied();
                assert!(count.is_some() || packets <= fewest, "{packets} of {all} have no record");
                let count = count.unwrap_or(packets);
                assert!(packets <= count && count - packets <= fewest, "{count} for {packets}, fewest {fewest}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_most_exceeded_addresses_have_records(
        seed in any::<u32>(),
        is_v6 in any::<bool>(),
        addresses in vec(any::<u128>(), 1..4000),
        packets in vec((any::<prop::sample::Index>(), 0..4_u32), 1..4000),
    ) {
        let mut records = Records::new(if is_v6 { Family::Ipv6 } else { Family::Ipv4 }, seed);
        // Addresses of one tag share a record, so of those only one is taken.
        let mut seen = HashSet::new();
        let address = |address: u128| if is_v6 { address } else { address & u128::from(u32::MAX) };
        let place = |address: u128| HashedAddress::of(address, records.family, seed, EXCEEDER_SET_BITS);
        let mut known: Vec<u128> = addresses.into_iter().map(address).collect();
        known.retain(|&address| seen.insert((place(address).set, place(address).tag)));
        for (index, times) in packets {
            // A few addresses have many packets.
            let index = index.index(known.len()) >> (4 * times.min(2));
            (0..=times * 7).for_each(|_| records.count(known[index]));
        }
        records.holds();
    }
}

#[test]
fn two_addresses_of_one_set_and_tag_share_a_record() {
    let place = |address: u128| HashedAddress::of(address, Family::Ipv4, 7, EXCEEDER_SET_BITS);
    let one = place(1);
    let other = (2..1 << 32).find(|&address| place(address) == one).expect("2^9 addresses have each place");
    let mut records = Records::new(Family::Ipv4, 7);
    [1, 1, other].into_iter().for_each(|address| records.count(address));
    assert_eq!(records.counted(one.set as usize), HashMap::from([(other, 3)]));
}

#[test]
fn a_record_that_is_being_written_is_skipped() {
    let mut records = Records::new(Family::Ipv6, 7);
    let address = 0x2001_0db8 << 96 | 1;
    records.count(address);
    let set = HashedAddress::of(address, Family::Ipv6, 7, EXCEEDER_SET_BITS).set as usize;
    assert_eq!(records.counted(set), HashMap::from([(address, 1)]));
    records.sets[set][0][2] += 1;
    assert_eq!(records.counted(set), HashMap::new());
}
