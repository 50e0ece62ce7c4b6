//! Headers of peaceful traffic, which signatures must spare.
//!
//! It grows only in peace, so an attack does not teach it. Most of it is traffic of proven sources, and one source has a
//! bounded share, so an attacker who prepares for days poisons little of it.

use crate::header::Header;
use crate::measure::Window;
use crate::measure::sample::Reservoir;
use std::collections::HashMap;

/// Headers of proven sources.
const PROVEN: usize = 6144;
/// Headers without proof, such as single datagrams.
const UNPROVEN: usize = 2048;
/// Headers of one window that are offered, of each kind.
const OFFERED: usize = 256;
/// Headers of one source in a window that are offered: an eighth.
const OFFERED_OF_SOURCE: usize = OFFERED / 8;

/// Samples of the peace so far.
#[derive(Clone, Debug)]
pub struct Reference {
    proven: Reservoir<Header>,
    unproven: Reservoir<Header>,
}

impl Reference {
    /// Nothing is known yet.
    pub fn new(seed: u64) -> Self {
        Reference { proven: Reservoir::new(PROVEN, seed), unproven: Reservoir::new(UNPROVEN, seed ^ 1) }
    }

    /// Learns from a window. Packets to destinations that are not peaceful are left out.
    pub fn learn(&mut self, window: &Window, is_peaceful: impl Fn(&Header) -> bool) {
        for (headers, reservoir) in [(&window.proven, &mut self.proven), (&window.unproven, &mut self.unproven)] {
            let mut of_source: HashMap<u128, usize> = HashMap::new();
            let bounded = headers.iter().filter(|header| is_peaceful(header)).filter(|header| {
                let count = of_source.entry(header.saddr).or_default();
                *count += 1;
                *count <= OFFERED_OF_SOURCE
            });
            bounded.take(OFFERED).for_each(|header| reservoir.offer(*header));
        }
    }

    /// Learns legitimate packets that an action has hit by mistake.
    pub fn learn_mistakes(&mut self, headers: &[Header]) {
        headers.iter().for_each(|header| self.proven.offer(*header));
    }

    /// All headers.
    pub fn headers(&self) -> impl Iterator<Item = &Header> {
        self.proven.kept().iter().chain(self.unproven.kept())
    }
}
