//! Limits against exact models: no window sees more than burst + rate * time, a saturated limit gives what it says, and
//! the wrapping arithmetic decides as one that never wraps.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_abi::limit::{DEBT_MAX, ROOM_MAX, TICKS_PER_S, charge, ticks};
use weir_abi::rate::Unit;
use weir_abi::{Limit, LimitProfile, Rate};

/// A bucket as engines keep it.
struct Bucket {
    profile: LimitProfile,
    word: u64,
}

impl Bucket {
    /// Full at `now`.
    fn new(profile: LimitProfile, now: u64) -> Self {
        Bucket { profile, word: now }
    }

    fn passes(&mut self, now: u64, bytes: u32) -> bool {
        match charge(self.word, now, self.profile.cost(bytes), self.profile.room) {
            Some(word) => {
                self.word = word;
                true
            }
            None => false,
        }
    }
}

/// A bucket whose time never wraps.
struct Unwrapped {
    profile: LimitProfile,
    arrival: u128,
}

impl Unwrapped {
    fn passes(&mut self, now: u128, bytes: u32) -> bool {
        let arrival = self.arrival.max(now) + u128::from(self.profile.cost(bytes));
        let fits = arrival - now <= u128::from(self.profile.room);
        if fits {
            self.arrival = arrival;
        }
        fits
    }
}

/// The exact leaky bucket of a limit, in fractions of a packet or byte that leave no remainder: each tick drains
/// `rate`, each packet or byte adds `scale`.
struct Exact {
    rate: u128,
    scale: u128,
    burst: u128,
    unit: Unit,
    level: u128,
    last: u128,
}

impl Exact {
    fn of(limit: Limit) -> Self {
        let (rate, scale) = match limit.rate() {
            Rate::Packets { count, per } => {
                let seconds = match per {
                    weir_abi::rate::Per::Second => 1,
                    weir_abi::rate::Per::Minute => 60,
                    weir_abi::rate::Per::Hour => 3600,
                };
                (count, TICKS_PER_S * seconds)
            }
            Rate::Bits(bits) => (bits, 8 * TICKS_PER_S),
        };
        Exact {
            rate: rate.into(),
            scale: scale.into(),
            burst: u128::from(limit.burst()) * u128::from(scale),
            unit: limit.rate().unit(),
            level: 0,
            last: 0,
        }
    }

    /// Takes a packet that a bucket let through: whether what came is still within burst + rate * time of every window.
    fn holds(&mut self, now: u128, bytes: u32) -> bool {
        self.level += self.asked(now, bytes);
        self.level <= self.burst
    }

    /// Decides itself.
    fn passes(&mut self, now: u128, bytes: u32) -> bool {
        let asked = self.asked(now, bytes);
        let fits = self.level + asked <= self.burst;
        if fits {
            self.level += asked;
        }
        fits
    }

    /// Drains, and says what a packet adds.
    fn asked(&mut self, now: u128, bytes: u32) -> u128 {
        self.level = self.level.saturating_sub((now - self.last) * self.rate);
        self.last = now;
        self.scale * if self.unit == Unit::Packets { 1 } else { u128::from(bytes) }
    }
}

fn limits() -> BoxedStrategy<Limit> {
    let bursts = |least: u64, most: u64| prop_oneof![Just(None), (least..most).prop_map(Some)];
    let packets = (1..=250_000_000_u64, prop::sample::select(vec!["second", "minute", "hour"]), bursts(1, 10_000))
        .prop_map(|(count, per, burst)| (format!("{count}/{per}"), burst));
    let slow = (1..10_000_u64, bursts(1, 50)).prop_map(|(rate, burst)| (rate.to_string(), burst));
    let bits = (13..40_u32, any::<u64>(), bursts(1514, 10_000_000)).prop_map(|(power, low, burst)| {
        let bits = (1 << power | low & ((1 << power) - 1)).clamp(8_000, 1_000_000_000_000);
        (format!("{bits}bit"), burst)
    });
    let limit = |(rate, burst): (String, Option<u64>)| {
        let burst = burst.map(|burst: u64| burst.to_string());
        let rate = Rate::parse(&rate).expect("a rate within its bounds");
        // A burst too long for a slow rate gives way to the usual one.
        Limit::new(rate, burst.as_deref()).or_else(|_| Limit::new(rate, None)).expect("rates have a burst")
    };
    prop_oneof![packets, slow, bits].prop_map(limit).boxed()
}

/// Packets: how far their time is behind the last one's, as a share of what a packet costs, and their bytes.
fn arrivals() -> BoxedStrategy<Vec<(Gap, u32)>> {
    let gap = prop_oneof![
        3 => Just(Gap::None),
        3 => (0..300_u64).prop_map(Gap::Percent),
        1 => (0..10_000_u64).prop_map(Gap::Percent),
        1 => (0..1_u64 << 40).prop_map(Gap::Ns),
    ];
    vec((gap, 1..2000_u32), 1..400).boxed()
}

#[derive(Clone, Copy, Debug)]
enum Gap {
    None,
    /// Of a packet's cost.
    Percent(u64),
    /// Idle.
    Ns(u64),
}

impl Gap {
    fn ticks(self, cost: u64) -> u64 {
        match self {
            Gap::None => 0,
            Gap::Percent(share) => u64::try_from(u128::from(cost) * u128::from(share) / 100).expect("below 2^57"),
            Gap::Ns(ns) => ticks(ns),
        }
    }
}

/// Mean and standard deviation.
fn spread(counts: &[u64]) -> (f64, f64) {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let variance = counts.iter().map(|&count| (count as f64 - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    (mean, variance.sqrt())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// What passes in each 10 ms, of packets that come evenly or ten times as fast for a tenth of the time: as with a
    /// bucket without rounding, so no square wave. Half a packet is what a count may be off by.
    #[test]
    fn no_window_is_less_even_than_with_an_ideal_bucket(
        rate in 500..100_000_u64,
        burst in 1..2000_u64,
        offered_percent in 30..1000_u64,
        in_bursts: bool,
        start: u64,
    ) {
        const WINDOW: u64 = TICKS_PER_S / 100;
        const WINDOWS: usize = 40;
        let limit: Limit = format!("{rate} burst {burst}").parse().expect("a limit");
        let (mut bucket, mut ideal) = (Bucket::new(limit.profile(), start), Exact::of(limit));
        let (mut own_counts, mut ideal_counts) = ([0; WINDOWS], [0; WINDOWS]);
        let step = TICKS_PER_S * 100 / (rate * offered_percent);
        for packet in 0.. {
            let even = packet * step;
            let time = if in_bursts { even / WINDOW * WINDOW + even % WINDOW / 10 } else { even };
            let window = (time / WINDOW) as usize;
            if window >= WINDOWS {
                break;
            }
            own_counts[window] += u64::from(bucket.passes(start.wrapping_add(time), 60));
            ideal_counts[window] += u64::from(ideal.passes(time.into(), 60));
        }
        let ((own_mean, own), (ideal_mean, ideal)) = (spread(&own_counts), spread(&ideal_counts));
        prop_assert!(own <= ideal + 0.5, "{limit}: deviation {own} instead of {ideal}");
        prop_assert!((own_mean - ideal_mean).abs() <= 0.5, "{limit}: {own_mean} in a window instead of {ideal_mean}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// From any start, so that words wrap.
    #[test]
    fn no_window_sees_more_than_the_limit(limit in limits(), start: u64, arrivals in arrivals()) {
        let profile = limit.profile();
        let (mut bucket, mut exact) = (Bucket::new(profile, start), Exact::of(limit));
        let mut unwrapped = Unwrapped { profile, arrival: 0 };
        let mut elapsed = 0_u128;
        for (gap, bytes) in arrivals {
            elapsed += u128::from(gap.ticks(profile.cost(bytes)));
            let passes = bucket.passes(start.wrapping_add(elapsed as u64), bytes);
            prop_assert_eq!(passes, unwrapped.passes(elapsed, bytes), "{} wraps wrongly at {}", limit, elapsed);
            prop_assert!(!passes || exact.holds(elapsed, bytes), "{limit} let too much through at {elapsed}");
        }
    }

    /// The definition itself, for few packets: every window, from every packet to every later one.
    #[test]
    fn every_window_is_within_burst_and_rate(limit in limits(), arrivals in arrivals()) {
        let profile = limit.profile();
        let mut bucket = Bucket::new(profile, 0);
        let mut now = 0;
        let mut passed = Vec::new();
        for (gap, bytes) in arrivals.into_iter().take(100) {
            now += gap.ticks(profile.cost(bytes));
            if bucket.passes(now, bytes) {
                passed.push((now, bytes));
            }
        }
        let Exact { rate, scale, burst, unit, .. } = Exact::of(limit);
        for first in 0..passed.len() {
            let mut sum = 0;
            for &(at, bytes) in &passed[first..] {
                sum += scale * if unit == Unit::Packets { 1 } else { u128::from(bytes) };
                let time = u128::from(at - passed[first].0);
                prop_assert!(sum <= burst + rate * time, "{limit}: {sum} in {time} ticks");
            }
        }
    }

    /// Ten times as much is offered as may pass; frames of 60 bytes at least, up to 60 Gbit/s. Where a burst is less
    /// than two packets, a packet that comes a moment late is time lost.
    #[test]
    fn a_saturated_limit_gives_its_rate(limit in limits(), start: u64, bytes in 60..1515_u32) {
        prop_assume!(!matches!(limit.rate(), Rate::Bits(bits) if bits > 60_000_000_000));
        let profile = limit.profile();
        prop_assume!(profile.room >= 2 * profile.cost(bytes));
        let mut bucket = Bucket::new(profile, start);
        let step = (profile.cost(bytes) / 10).max(1);
        // Empties the burst.
        while bucket.passes(start, bytes) {}
        let (mut now, mut passed) = (0_u64, 0_u64);
        while passed < 2000 {
            now += step;
            passed += u64::from(bucket.passes(start.wrapping_add(now), bytes));
        }
        let Exact { rate, scale, unit, .. } = Exact::of(limit);
        let given = u128::from(passed) * scale * if unit == Unit::Packets { 1 } else { u128::from(bytes) };
        let earned = u128::from(now) * rate;
        // One packet more or less at each end.
        let slack = earned / 1000 + 2 * given / u128::from(passed);
        prop_assert!(given.abs_diff(earned) <= slack, "{limit}: {given} of {earned}");
    }

    #[test]
    fn a_packet_as_long_as_the_burst_passes_and_no_longer_one(bits in 8_000..1_000_000_000_000_u64, burst in 1514..65_000_u64) {
        let limit: Limit = format!("{bits}bit burst {burst}").parse().expect("a limit");
        let (bytes, each) = (burst as u32, weir_abi::each::profile(limit).expect("it is short"));
        for profile in [limit.profile(), each] {
            prop_assert!(profile.cost(bytes) <= profile.room && profile.cost(bytes + 1) > profile.room, "{limit}");
        }
    }

    /// Workers look at the clock and charge later, in any order: times fall as well as rise.
    #[test]
    fn no_window_sees_more_whatever_the_order_of_charges(
        limit in limits(),
        start: u64,
        arrivals in arrivals(),
        lags in vec(0..4_000_000_u64, 1..20),
    ) {
        let profile = limit.profile();
        let (mut bucket, mut now) = (Bucket::new(profile, start), lags.iter().copied().max().map_or(0, ticks));
        let mut passed = Vec::new();
        for ((gap, bytes), lag) in arrivals.into_iter().zip(lags.iter().cycle()) {
            now += gap.ticks(profile.cost(bytes));
            let judged = now - ticks(*lag);
            if bucket.passes(start.wrapping_add(judged), bytes) {
                passed.push((judged, bytes));
            }
        }
        passed.sort_unstable();
        let mut exact = Exact::of(limit);
        for (at, bytes) in passed {
            prop_assert!(exact.holds(at.into(), bytes), "{limit} let too much through at {at}");
        }
    }

    #[test]
    fn printed_limits_read_as_themselves(limit in limits()) {
        prop_assert_eq!(limit.to_string().parse(), Ok(limit));
    }
}

#[test]
fn the_extremes_do_not_overflow() {
    for text in
        ["1/hour burst 78", "8kbit burst 281474976", "1tbit burst 35184000000000000", "250mpps burst 70300000000000"]
    {
        let limit: Limit = text.parse().unwrap_or_else(|problem| panic!("{text}: {problem}"));
        let profile = limit.profile();
        assert!(profile.room <= ROOM_MAX && profile.room > ROOM_MAX / 100 * 99, "{text}: {}", profile.room);
        assert!(profile.cost(u32::MAX) < 1 << 50, "{text}");
        for now in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            for word in
                [0, now, now.wrapping_add(profile.room), now.wrapping_add(DEBT_MAX), now.wrapping_sub(1), u64::MAX]
            {
                if let Some(next) = charge(word, now, profile.cost(u32::MAX), profile.room) {
                    assert!(next.wrapping_sub(now) <= profile.room, "{text}");
                }
            }
        }
    }
}

/// 2.5 ticks a byte: the room of 1515 bytes is half a tick too long. Two packets of even length do not gain it.
#[test]
fn a_rounded_room_gives_nothing_to_two_packets() {
    let limit: Limit = "819200mbit burst 1515".parse().expect("a limit");
    let (mut bucket, mut exact) = (Bucket::new(limit.profile(), 0), Exact::of(limit));
    assert!(bucket.passes(0, 1000) && exact.holds(0, 1000));
    let now = (0..).find(|&now| bucket.passes(now, 516)).expect("it earns the byte");
    assert!(exact.holds(now.into(), 516), "too early at {now}");
}

#[test]
fn a_word_behind_the_clock_is_a_full_bucket() {
    let profile = "1000 burst 10".parse::<Limit>().expect("a limit").profile();
    let packet = profile.cost(60);
    for idle_ns in [0, 1, 1 << 40, (1 << 56) - (1 << 49) - 1] {
        let now = 7_u64.wrapping_add(ticks(idle_ns));
        assert_eq!(charge(7, now, packet, profile.room), Some(now + packet), "{idle_ns}");
    }
    // This bucket keeps its debt after its limit got less room.
    assert_eq!(charge(10 * packet, 0, packet, 5 * packet), None);
    assert_eq!(charge(4 * packet, 0, packet, 5 * packet), Some(5 * packet));
}

#[test]
fn nothing_passes_a_closed_limit_and_all_an_open_one() {
    let closed = "0".parse::<Limit>().expect("a limit").profile();
    for now in [0, 1, 1 << 63, u64::MAX] {
        for bytes in [0, 1, u32::MAX] {
            assert_eq!(charge(now, now, closed.cost(bytes), closed.room), None);
            assert_eq!(charge(now, now, LimitProfile::default().cost(bytes), 0), Some(now));
        }
    }
}
