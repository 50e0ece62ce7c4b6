//! The keys of lookups: named mixes, which are the same in every run.

use super::{Data, Dataset};
use crate::mix::Mix;
use crate::plan::Plan;
use weir_abi::Family;
use weir_command::failure::Failure;
use weir_engine::traffic::SplitMix;

/// Maximum number of runs of neighbouring addresses in sequential keys.
const RUNS_MAX: usize = 1 << 14;

/// The file of the data directory that has sources of real attacks.
pub const REAL: &str = "ipsum.txt";

/// A mix of keys with a stable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMix {
    /// Uniformly random. IPv6 keys are in 2000::/3, which contains all public unicast addresses.
    Random,
    /// IPv4: 10% random, 20% in the allow list, 70% in the block list. IPv6: 10% random, 90% inside the table's
    /// prefixes.
    Botnet,
    /// Runs of ascending neighbours. The runs start at prefixes spread over the table.
    Sequential,
    /// Random addresses in random prefixes of the table.
    Entries,
    /// IPv4: sources of real attacks, from the list `ipsum.txt`.
    Real,
}

impl KeyMix {
    /// All mixes.
    pub const ALL: [KeyMix; 5] = [KeyMix::Random, KeyMix::Botnet, KeyMix::Sequential, KeyMix::Entries, KeyMix::Real];

    /// The name in benchmark rows.
    pub const fn name(self) -> &'static str {
        match self {
            KeyMix::Random => "random",
            KeyMix::Botnet => "botnet",
            KeyMix::Sequential => "sequential",
            KeyMix::Entries => "entries",
            KeyMix::Real => "real",
        }
    }
}

/// Lists that mixes draw from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The allow list of the botnet mix.
    pub allowed: Vec<u32>,
    /// The block list of the botnet mix.
    pub blocked: Vec<u32>,
    /// Sources of real attacks.
    pub real: Vec<u32>,
}

impl Sources {
    /// The lists of the data directory.
    ///
    /// # Errors
    /// A list cannot be read.
    pub fn load(plan: &Plan<'_>) -> Result<Self, Failure> {
        let path = plan.options.data.join(REAL);
        let real = if path.exists() { Data::read("real", &path)?.addresses() } else { Vec::new() };
        Ok(Sources {
            allowed: plan.load(Dataset::ALLOW_100K)?.addresses(),
            blocked: plan.load(Dataset::BLOCK_178K)?.addresses(),
            real,
        })
    }
}

/// Keys of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Addresses in host byte order.
    V4(Vec<u32>),
    /// The upper and lower halves of addresses in host byte order.
    V6 {
        /// Upper halves.
        hi: Vec<u64>,
        /// Lower halves.
        lo: Vec<u64>,
    },
}

impl Keys {
    /// `count` keys for a table, or `None` if there are no real sources for its family.
    pub fn of(mix: KeyMix, data: &Data, sources: &Sources, count: usize) -> Option<Self> {
        let mut random = SplitMix::new(23);
        let is_possible = mix != KeyMix::Real || data.table.family() == Family::Ipv4 && !sources.real.is_empty();
        is_possible.then(|| match data.table.family() {
            Family::Ipv4 => Keys::V4(match mix {
                KeyMix::Random => (0..count).map(|_| Mix::Random.source(&mut random)).collect(),
                KeyMix::Botnet => {
                    let mix = Mix::Botnet { allowed: &sources.allowed, blocked: &sources.blocked };
                    (0..count).map(|_| mix.source(&mut random)).collect()
                }
                // A list is sorted. Packets are not.
                KeyMix::Real => (0..count).map(|_| drawn(&sources.real, &mut random)).collect(),
                KeyMix::Sequential => {
                    let starts: Vec<u128> = data.table.prefixes4().iter().map(|prefix| prefix.addr.into()).collect();
                    runs(&starts, count).map(|key| key as u32).collect()
                }
                KeyMix::Entries => (0..count).map(|_| entry4(data, &mut random)).collect(),
            }),
            Family::Ipv6 => Keys::split(match mix {
                KeyMix::Random => (0..count).map(|_| random6(&mut random)).collect(),
                KeyMix::Botnet => (0..count).map(|_| botnet6(data, &mut random)).collect(),
                KeyMix::Sequential => {
                    let starts: Vec<u128> = data.table.prefixes6().iter().map(|prefix| prefix.addr).collect();
                    runs(&starts, count).collect()
                }
                KeyMix::Entries => (0..count).map(|_| entry6(data, &mut random)).collect(),
                KeyMix::Real => unreachable!("compiler bug: checked above"),
            }),
        })
    }

    /// First and last addresses of up to `prefixes_max` prefixes, and their neighbours outside. These reveal most
    /// lookup errors.
    pub fn edges(data: &Data, prefixes_max: usize) -> Self {
        let ends = |first: u128, last: u128| [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
        let step = |count: usize| count.div_ceil(prefixes_max).max(1);
        match data.table.family() {
            Family::Ipv4 => {
                let prefixes = data.table.prefixes4();
                let prefixes = prefixes.iter().step_by(step(prefixes.len()));
                let ends = prefixes.flat_map(|prefix| ends(prefix.addr.into(), prefix.last().into()));
                Keys::V4(ends.map(|key| key as u32).collect())
            }
            Family::Ipv6 => {
                let prefixes = data.table.prefixes6();
                let prefixes = prefixes.iter().step_by(step(prefixes.len()));
                Keys::split(prefixes.flat_map(|prefix| ends(prefix.addr, prefix.last())).collect())
            }
        }
    }

    fn split(keys: Vec<u128>) -> Self {
        Keys::V6 {
            hi: keys.iter().map(|key| (key >> 64) as u64).collect(),
            lo: keys.iter().map(|&key| key as u64).collect(),
        }
    }

    /// The keys in parts of at most `count`.
    pub fn parts(&self, count: usize) -> impl Iterator<Item = Keys> + '_ {
        (0..self.len()).step_by(count.max(1)).map(move |start| {
            let part = start..self.len().min(start + count);
            match self {
                Keys::V4(keys) => Keys::V4(keys[part].to_vec()),
                Keys::V6 { hi, lo } => Keys::V6 { hi: hi[part.clone()].to_vec(), lo: lo[part].to_vec() },
            }
        })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        match self {
            Keys::V4(keys) => keys.len(),
            Keys::V6 { hi, .. } => hi.len(),
        }
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sources of IPv6 packets like those of [`Mix`], `count` of them: 10% random, 20% in the allow list, 70% in the block
/// list; without lists all are random.
pub fn sources6(count: usize, lists: Option<(&Data, &Data)>, seed: u64) -> Vec<u128> {
    let mut random = SplitMix::new(seed);
    let source = |random: &mut SplitMix| match (lists, random.below(10)) {
        (None, _) | (_, 0) => random6(random),
        (Some((allowed, _)), 1 | 2) => entry6(allowed, random),
        (Some((_, blocked)), _) => entry6(blocked, random),
    };
    (0..count).map(|_| source(&mut random)).collect()
}

fn random6(random: &mut SplitMix) -> u128 {
    let word = u128::from(random.draw()) << 64 | u128::from(random.draw());
    word >> 3 | 1 << 125
}

fn botnet6(data: &Data, random: &mut SplitMix) -> u128 {
    if random.below(10) == 0 { random6(random) } else { entry6(data, random) }
}

/// A random element of a list that is not empty.
fn drawn(list: &[u32], random: &mut SplitMix) -> u32 {
    list[random.below(list.len() as u64) as usize]
}

/// An address in a random prefix of the table, or a random address if the table is empty.
fn entry4(data: &Data, random: &mut SplitMix) -> u32 {
    let prefixes = data.table.prefixes4();
    let drawn = Mix::Random.source(random);
    match prefixes.len() {
        0 => drawn,
        count => {
            let prefix = &prefixes[random.below(count as u64) as usize];
            prefix.addr | drawn & (prefix.last() ^ prefix.addr)
        }
    }
}

fn entry6(data: &Data, random: &mut SplitMix) -> u128 {
    let prefixes = data.table.prefixes6();
    if prefixes.is_empty() {
        return random6(random);
    }
    let prefix = &prefixes[random.below(prefixes.len() as u64) as usize];
    prefix.addr | random6(random) & (prefix.last() ^ prefix.addr)
}

/// Ascending runs with `count` keys in total. Each run starts at one of the sorted `starts`.
fn runs(starts: &[u128], count: usize) -> impl Iterator<Item = u128> {
    let wanted = starts.len().clamp(1, RUNS_MAX.min(count).max(1));
    let length = count.div_ceil(wanted).max(1);
    (0..count).map(move |index| {
        let start = starts.get(index / length * starts.len() / wanted).copied().unwrap_or(0);
        start.wrapping_add((index % length) as u128)
    })
}
