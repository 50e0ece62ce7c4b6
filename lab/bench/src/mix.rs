//! Named mixes of source addresses.

use weir_engine::traffic::SplitMix;

/// The distribution of source addresses.
#[derive(Clone, Copy, Debug)]
pub enum Mix<'a> {
    /// Uniformly random.
    Random,
    /// The botnet of the paper: 10% random, 20% allowed, 70% blocked.
    Botnet {
        /// Allowed addresses.
        allowed: &'a [u32],
        /// Blocked addresses.
        blocked: &'a [u32],
    },
}

impl Mix<'_> {
    /// A random address of the mix, in host byte order.
    pub fn source(self, random: &mut SplitMix) -> u32 {
        let any = |random: &mut SplitMix| random.draw() as u32;
        let one_of = |random: &mut SplitMix, list: &[u32]| match list.is_empty() {
            true => random.draw() as u32,
            false => list[random.below(list.len() as u64) as usize],
        };
        match self {
            Mix::Random => any(random),
            Mix::Botnet { allowed, blocked } => match random.below(10) {
                0 => any(random),
                1 | 2 => one_of(random, allowed),
                _ => one_of(random, blocked),
            },
        }
    }
}

/// `count` addresses of the mix, in host byte order.
pub fn sources(count: usize, mix: Mix<'_>, seed: u64) -> Vec<u32> {
    let mut random = SplitMix::new(seed);
    (0..count).map(|_| mix.source(&mut random)).collect()
}
