use super::*;
use std::collections::BTreeMap;
use weir_tables::SplitMix;

type Key = (u32, u8);

/// Moves the time of a wheel on and returns what expires, sorted.
fn expire(wheel: &mut Wheel<Key>, to: u64, keys: usize) -> Vec<Key> {
    let mut expired = Vec::new();
    loop {
        let done = wheel.step(keys, &mut expired) && {
            let arrived = wheel.advance(to);
            wheel.step(keys, &mut expired) && arrived
        };
        if done {
            break;
        }
    }
    expired.sort_unstable();
    expired
}

/// What expires in a map of deadlines, sorted.
fn expire_model(model: &mut BTreeMap<Key, u64>, to: u64) -> Vec<Key> {
    let expired: Vec<Key> = model.iter().filter(|&(_, &until)| until <= to).map(|(&key, _)| key).collect();
    expired.iter().for_each(|key| _ = model.remove(key));
    expired
}

/// Steps of time and timeouts: of all levels, around their borders, and up to a year.
const SPANS: [u64; 10] = [1, 3, 200, 256, 513, 60_000, 66_000, 1 << 22, 1 << 25, LEFT_MAX - WINDOW];

fn compare(seed: u64, start: u64, rounds: u64) {
    let mut random = SplitMix::new(seed);
    let (mut wheel, mut model) = (Wheel::new(start), BTreeMap::new());
    let mut now = start;
    // Each run prefers some spans, so that all levels are busy at some time.
    let (step, timeout) = (1 + random.below(10), 1 + random.below(10));
    for round in 0..rounds {
        let span = SPANS[random.below(step) as usize];
        if random.below(4) == 0 {
            now += random.below(span + 1);
        }
        let expected = expire_model(&mut model, now);
        assert_eq!(expire(&mut wheel, now, 1 + random.below(7) as usize), expected, "seed {seed}, round {round}");
        for _ in 0..random.below(8) {
            let key = (random.below(64) as u32, 24 + random.below(2) as u8);
            let span = SPANS[random.below(timeout) as usize];
            let until = now + random.below(span + 1);
            match random.below(5) {
                0 => assert_eq!(wheel.remove(key), model.remove(&key).is_some()),
                _ => {
                    wheel.set(key, until);
                    model.insert(key, until);
                }
            }
            assert_eq!((wheel.until(key), wheel.len()), (model.get(&key).copied(), model.len()));
        }
        assert!(wheel.nodes.len() <= HEADS as usize + 128, "freed nodes are used again");
    }
    let last = model.values().copied().max().unwrap_or(now);
    let expected = expire_model(&mut model, last);
    assert_eq!(expire(&mut wheel, last, 100), expected);
    assert_eq!(wheel.len(), 0);
}

#[test]
fn keys_expire_at_their_deadlines() {
    for seed in 0..200 {
        // Around the wrap of the lowest 32 bits, of a level, and in the time of captures.
        for start in [0, (1 << 32) - 5000, (1 << 24) - 3, 170_000_000_000] {
            compare(seed, start, 150);
        }
    }
}

#[test]
fn a_later_deadline_is_only_written() {
    let mut wheel = Wheel::<Key>::new(100);
    wheel.set((1, 32), 110);
    let place = *wheel.node(HEADS);
    for until in 111..200 {
        wheel.set((1, 32), until);
    }
    assert_eq!((wheel.node(HEADS).previous, wheel.node(HEADS).next), (place.previous, place.next));
    assert_eq!(expire(&mut wheel, 198, 1), []);
    assert_eq!(expire(&mut wheel, 199, 1), [(1, 32)]);
}

#[test]
fn time_moves_on_without_touching_keys_that_are_not_due() {
    let mut wheel = Wheel::<Key>::new(0);
    (0..100_000).for_each(|addr| wheel.set((addr, 32), 60_000 + u64::from(addr)));
    let mut expired = Vec::new();
    let mut now = 0;
    // Half of the time until they are due, they are in level 1 and 2.
    while now < 40_000 {
        now += 1;
        assert!(wheel.advance(now));
        let mut steps = 0;
        while !wheel.step(1, &mut expired) {
            steps += 1;
        }
        assert!(steps <= 65_536, "at most the keys of one slot move");
    }
    assert!(expired.is_empty());
    // A year without a call takes no longer.
    assert_eq!(expire(&mut wheel, 1 << 33, 1000).len(), 100_000);
}

#[test]
fn a_deadline_is_at_most_a_year_ahead() {
    let mut wheel = Wheel::<Key>::new(7);
    wheel.set((1, 32), u64::MAX);
    assert_eq!(wheel.until((1, 32)), Some(7 + LEFT_MAX));
    assert_eq!(expire(&mut wheel, 6 + LEFT_MAX, 9), []);
    assert_eq!(expire(&mut wheel, 7 + LEFT_MAX, 9), [(1, 32)]);
}

#[test]
fn due_keys_are_counted_as_far_as_needed() {
    let mut wheel = Wheel::<Key>::new(0);
    (0..100).for_each(|addr| wheel.set((addr, 32), 10 + u64::from(addr % 2)));
    // Prolonged, but still in the old slot.
    (0..20).for_each(|addr| wheel.set((addr, 32), 1000));
    let due = |wheel: &Wheel<Key>| [40, 41, 80, 81].map(|count| wheel.has_due(count));
    assert_eq!((wheel.has_due(0), due(&wheel)), (true, [false; 4]));
    wheel.advance(10);
    assert_eq!(due(&wheel), [true, false, false, false]);
    wheel.advance(11);
    assert_eq!(due(&wheel), [true, true, true, false]);
    assert!(!wheel.step(50, &mut Vec::new()));
    assert_eq!(due(&wheel), [true, false, false, false]);
}
