//! Samples of headers, bounded in number whatever arrives.

use super::slots::hash;
use crate::header::Header;
use serde::{Deserialize, Serialize};

/// How far a packet's sender is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// Not at all.
    None,
    /// The protected host has sent it few answers. Its questions may be forged.
    Vouched,
    /// The protected host has answered it in many turns. Its questions may still be forged.
    Settled,
    /// Probably real.
    Plausible,
    /// Certainly real.
    Real,
}

/// A uniform sample of a stream (reservoir sampling, algorithm R), or one in which the past fades.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reservoir<T> {
    kept: Vec<T>,
    capacity: usize,
    seen: u64,
    seen_max: u64,
    random: u64,
}

impl<T> Reservoir<T> {
    /// A sample of at most `capacity` items.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self::fading(capacity, seed, u64::MAX)
    }

    /// A sample in which each item is replaced with a chance of one in `seen_max` for each one that is offered, as soon
    /// as so many were offered.
    pub fn fading(capacity: usize, seed: u64, seen_max: u64) -> Self {
        Reservoir { kept: Vec::with_capacity(capacity), capacity, seen: 0, seen_max, random: seed }
    }

    /// Offers an item.
    pub fn offer(&mut self, item: T) {
        self.offer_with(|| item);
    }

    /// Offers an item, which is made only if it is taken.
    pub fn offer_with(&mut self, make: impl FnOnce() -> T) {
        self.seen = (self.seen + 1).min(self.seen_max);
        if self.kept.len() < self.capacity {
            self.kept.push(make());
            return;
        }
        self.random = hash(self.random, &[self.seen]);
        let at = (self.random % self.seen) as usize;
        if let Some(slot) = self.kept.get_mut(at) {
            *slot = make();
        }
    }

    /// The sample.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }

    /// The number of items offered.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.seen = 0;
    }

    /// Takes the sample, and begins anew.
    pub fn take(&mut self) -> Vec<T> {
        self.seen = 0;
        std::mem::take(&mut self.kept)
    }
}

/// Groups of destinations that have a sample each, so that a small victim is seen beside a large one.
const STRATA: usize = 64;
/// Headers of each group.
const STRATUM_HEADERS: usize = 16;
/// Headers without regard to their destination.
const HEADERS: usize = 1024;
/// Headers of real, and of plausible sources.
const REAL_HEADERS: usize = 512;
const PLAUSIBLE_HEADERS: usize = 512;
/// Headers that answers vouch for.
const VOUCHED_HEADERS: usize = 512;

/// The samples of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Samples {
    unproven: Reservoir<Header>,
    strata: Vec<Reservoir<Header>>,
    plausible: Reservoir<Header>,
    vouched: Reservoir<Header>,
    settled: Reservoir<Header>,
    real: Reservoir<Header>,
}

impl Samples {
    /// Empty samples.
    pub fn new(seed: u64) -> Self {
        let reservoir = |capacity, number| Reservoir::new(capacity, hash(seed, &[number]));
        Samples {
            unproven: reservoir(HEADERS, 1),
            strata: (0..STRATA).map(|stratum| reservoir(STRATUM_HEADERS, 3 + stratum as u64)).collect(),
            plausible: reservoir(PLAUSIBLE_HEADERS, 0),
            vouched: reservoir(VOUCHED_HEADERS, 3 + STRATA as u64),
            settled: reservoir(VOUCHED_HEADERS, 4 + STRATA as u64),
            real: reservoir(REAL_HEADERS, 2),
        }
    }

    /// Offers a header.
    pub fn offer(&mut self, header: &Header, trust: Trust, host_hash: u64) {
        match trust {
            Trust::Real => self.real.offer(*header),
            Trust::Plausible => self.plausible.offer(*header),
            Trust::Vouched => self.vouched.offer(*header),
            Trust::Settled => self.settled.offer(*header),
            Trust::None => {
                self.unproven.offer(*header);
                self.strata[(host_hash >> 32) as usize % STRATA].offer(*header);
            }
        }
    }

    /// The sample of packets without proof.
    pub fn unproven(&self) -> &[Header] {
        self.unproven.kept()
    }

    /// Samples of packets without proof, with equal room for each group of destinations.
    pub fn strata(&self) -> impl Iterator<Item = &Header> {
        self.strata.iter().flat_map(Reservoir::kept)
    }

    /// The sample of packets of plausible sources.
    pub fn plausible(&self) -> &[Header] {
        self.plausible.kept()
    }

    /// The sample of packets that few answers vouch for.
    pub fn vouched(&self) -> &[Header] {
        self.vouched.kept()
    }

    /// The sample of packets that answers vouch for again and again.
    pub fn settled(&self) -> &[Header] {
        self.settled.kept()
    }

    /// The sample of packets of real sources.
    pub fn real(&self) -> &[Header] {
        self.real.kept()
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.unproven.clear();
        self.strata.iter_mut().for_each(Reservoir::clear);
        self.plausible.clear();
        self.vouched.clear();
        self.settled.clear();
        self.real.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Reservoir, Samples, Trust};
    use crate::header::Header;

    #[test]
    fn a_reservoir_is_uniform() {
        let mut hits = [0u32; 10];
        for round in 0..2000 {
            let mut reservoir = Reservoir::new(2, round);
            (0..10).for_each(|item: usize| reservoir.offer(item));
            assert_eq!((reservoir.kept().len(), reservoir.seen()), (2, 10));
            reservoir.kept().iter().for_each(|&item| hits[item] += 1);
        }
        // Binomial with mean 400 and a standard deviation of 18.
        assert!(hits.iter().all(|&hits| (310..490).contains(&hits)), "{hits:?}");
    }

    #[test]
    fn a_small_victim_is_seen_beside_a_large_one() {
        let mut samples = Samples::new(7);
        let (large, small) = (Header::between(1, 2), Header::between(1, 3));
        for at in 0..100_000u64 {
            samples.offer(&large, Trust::None, 1 << 32);
            if at % 10_000 == 0 {
                samples.offer(&small, Trust::None, 2 << 32);
            }
        }
        assert_eq!(samples.strata().filter(|header| header.daddr == 3).count(), 10);
        assert_eq!(samples.unproven().len(), 1024);
    }
}
