//! The deadlines of one table in one image.

use std::net::IpAddr;

use weir_tables::Table;

use super::wheel::{TICK_NS, Wheel};

/// The tick of a time.
pub(super) fn tick(now_ns: u64) -> u64 {
    now_ns / TICK_NS
}

/// The tick at which an entry expires, if its timeout begins at `now_ns`. It is not before the end of the timeout.
pub(super) fn deadline(now_ns: u64, timeout_ms: u64) -> u64 {
    now_ns.saturating_add(timeout_ms.saturating_mul(1_000_000)).div_ceil(TICK_NS)
}

/// The prefixes of a table.
pub(super) fn prefixes(table: &Table) -> impl Iterator<Item = (IpAddr, u8)> {
    let prefixes4 = table.prefixes4().iter().map(|prefix| (IpAddr::V4(prefix.addr.into()), prefix.len));
    let prefixes6 = table.prefixes6().iter().map(|prefix| (IpAddr::V6(prefix.addr.into()), prefix.len));
    prefixes4.chain(prefixes6)
}

/// An IPv6 prefix with the alignment of the wheel's nodes.
type Key6 = ([u32; 4], u8);

fn key6(addr: u128, len: u8) -> Key6 {
    ([addr >> 96, addr >> 64, addr >> 32, addr].map(|word| word as u32), len)
}

fn prefix6((words, len): Key6) -> (IpAddr, u8) {
    let addr = words.into_iter().fold(0, |addr: u128, word| addr << 32 | u128::from(word));
    (IpAddr::V6(addr.into()), len)
}

fn prefix4((addr, len): (u32, u8)) -> (IpAddr, u8) {
    (IpAddr::V4(addr.into()), len)
}

/// The deadlines of entries, by prefix and in ticks. An entry without a deadline never expires. Tables without
/// deadlines take no memory here.
#[derive(Clone, Default)]
pub(super) enum Expiry {
    /// No entry expires.
    #[default]
    Never,
    V4(Box<Wheel<(u32, u8)>>),
    V6(Box<Wheel<Key6>>),
}

impl Expiry {
    /// Whether no entry has a deadline.
    pub fn is_empty(&self) -> bool {
        match self {
            Expiry::Never => true,
            Expiry::V4(wheel) => wheel.len() == 0,
            Expiry::V6(wheel) => wheel.len() == 0,
        }
    }

    /// The deadline of an entry.
    pub fn until(&self, addr: IpAddr, len: u8) -> Option<u64> {
        match (self, addr) {
            (Expiry::V4(wheel), IpAddr::V4(addr)) => wheel.until((addr.into(), len)),
            (Expiry::V6(wheel), IpAddr::V6(addr)) => wheel.until(key6(addr.into(), len)),
            _ => None,
        }
    }

    /// Sets the deadline of an entry at tick `now`, or removes it.
    pub fn set(&mut self, (addr, len): (IpAddr, u8), until: Option<u64>, now: u64) {
        if let Expiry::Never = self
            && until.is_some()
        {
            *self = match addr {
                IpAddr::V4(_) => Expiry::V4(Box::new(Wheel::new(now))),
                IpAddr::V6(_) => Expiry::V6(Box::new(Wheel::new(now))),
            };
        }
        match (self, addr, until) {
            (Expiry::V4(wheel), IpAddr::V4(addr), Some(until)) => wheel.set((addr.into(), len), until),
            (Expiry::V4(wheel), IpAddr::V4(addr), None) => _ = wheel.remove((addr.into(), len)),
            (Expiry::V6(wheel), IpAddr::V6(addr), Some(until)) => wheel.set(key6(addr.into(), len), until),
            (Expiry::V6(wheel), IpAddr::V6(addr), None) => _ = wheel.remove(key6(addr.into(), len)),
            (Expiry::Never, ..) | (_, _, None) => {}
            _ => panic!("entries of a table are of one family"),
        }
    }

    /// Whether at least `count` entries have expired and were not handled yet. Walks over twice as many at most.
    pub fn has_due(&self, count: usize) -> bool {
        match self {
            Expiry::Never => false,
            Expiry::V4(wheel) => wheel.has_due(count),
            Expiry::V6(wheel) => wheel.has_due(count),
        }
    }

    /// Moves time on to tick `now` and adds up to `2 * keys` entries that have expired to `expired`. Returns whether
    /// nothing is left to be done at this tick. Without deadlines, the memory is freed.
    pub fn step(&mut self, now: u64, keys: usize, expired: &mut Vec<(IpAddr, u8)>) -> bool {
        let done = match self {
            Expiry::Never => true,
            Expiry::V4(wheel) => step(wheel, now, keys, |prefix| expired.push(prefix4(prefix))),
            Expiry::V6(wheel) => step(wheel, now, keys, |prefix| expired.push(prefix6(prefix))),
        };
        if self.is_empty() {
            *self = Expiry::Never;
        }
        done
    }
}

fn step<K>(wheel: &mut Wheel<K>, now: u64, keys: usize, expire: impl FnMut(K)) -> bool
where
    K: Copy + Default + Eq + std::hash::Hash,
{
    let mut expired = Vec::new();
    let done = wheel.step(keys, &mut expired) && {
        let arrived = wheel.advance(now);
        wheel.step(keys, &mut expired) && arrived
    };
    expired.into_iter().for_each(expire);
    done
}
