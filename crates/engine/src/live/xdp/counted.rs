//! Counts of programs that decide packets until the next program in this process has replaced them
//! (docs/decisions/0072-upgrades.md).
//!
//! ```text
//!   this program: counts until its last reading     the maps: counts since     the next program: counts of its own
//!   ------------------------------------------------+-------------------------+-------------------------------------
//! ```
//! Maps count since they were made, so their values at the last reading are handed over with them.

use std::io;
use std::os::fd::OwnedFd;

use memmap2::MmapRaw;
use serde::{Deserialize, Serialize};
use weir_abi::Counter;
use weir_abi::kernel::{PORTS_MAX, PortCounters};

use super::books::blocks;
use super::code::{PortBlocks, counters, port_blocks};
use crate::live::datapath::Counts;
use crate::live::os::inherited::{Inherited, Kept};

/// A map with its values at the last reading.
#[derive(Debug, Serialize, Deserialize)]
struct Read {
    map: i32,
    /// The length of the map's only value.
    bytes: usize,
    /// Words that are not 0, with their indices.
    words: Vec<(usize, u64)>,
}

/// The counters of a policy's programs that still decide packets. Descriptors are numbers of this process.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedCounts {
    cpus: usize,
    /// Number of counters of a program.
    counters: usize,
    verdicts: Read,
    ports: Read,
}

/// The maps in which the programs of a policy count, by their numbers in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedIn {
    pub verdicts: u32,
    pub ports: u32,
}

impl HandedCounts {
    /// Keeps the maps open. `counts` and `ports` are their values at the last reading.
    pub(super) fn keep(
        maps: CountedIn,
        number: usize,
        (counts, ports): (&Counts, &PortBlocks),
        kept: &mut Kept,
    ) -> io::Result<Self> {
        let stride = number.next_power_of_two();
        let sides = counts.iter().flatten().enumerate();
        let verdicts = sides.flat_map(|(block, side)| {
            let words = side.iter().flat_map(|counter| [counter.packets, counter.bytes]).enumerate();
            words.map(move |(at, word)| (2 * block * stride + at, word))
        });
        let of_ports = ports.iter().flatten().flat_map(|counters| counters.words()).enumerate();
        let verdicts = Read::keep(maps.verdicts, verdicts, kept)?;
        let ports = Read::keep(maps.ports, of_ports, kept)?;
        Ok(HandedCounts { cpus: counts.len(), counters: number, verdicts, ports })
    }

    /// Takes the maps that were handed over.
    ///
    /// # Errors
    /// They were not handed over, or are other maps.
    pub fn take(self, inherited: &mut Inherited) -> io::Result<HeldCounts> {
        let HandedCounts { cpus, counters, verdicts, ports } = self;
        let is_of_machine = weir_state::cpus()? == cpus && counters > 0;
        let sides = 2 * cpus * counters.next_power_of_two();
        let (verdicts, counted) = verdicts.take(sides * size_of::<Counter>(), inherited)?;
        let (ports, of_ports) = ports.take(cpus * PORTS_MAX * size_of::<PortCounters>(), inherited)?;
        match is_of_machine {
            true => Ok(HeldCounts { cpus, counters, verdicts, counted, ports, of_ports }),
            false => Err(io::Error::other(format!("counters of {cpus} processors"))),
        }
    }
}

/// The maps of another program's counters, and their values at its last reading.
pub struct HeldCounts {
    cpus: usize,
    counters: usize,
    verdicts: MmapRaw,
    counted: Vec<(usize, u64)>,
    ports: MmapRaw,
    of_ports: Vec<(usize, u64)>,
}

// SAFETY: the mappings keep their maps alive. They are only read, word by word.
unsafe impl Send for HeldCounts {}

impl HeldCounts {
    /// What was counted since the last reading. The programs have ended.
    pub(super) fn since(&self) -> (Counts, PortBlocks) {
        let stride = self.counters.next_power_of_two();
        let mut counts = counters(&self.verdicts, self.cpus, self.counters);
        for &(at, before) in &self.counted {
            let (block, at) = (at / (2 * stride), at % (2 * stride));
            let counter = counts.get_mut(block / 2).and_then(|sides| sides[block % 2].get_mut(at / 2));
            let word = counter.map(|counter| if at % 2 == 0 { &mut counter.packets } else { &mut counter.bytes });
            word.into_iter().for_each(|word| *word = word.saturating_sub(before));
        }
        let mut words = vec![0; self.cpus * PORTS_MAX * PortCounters::WORDS];
        for &(at, before) in &self.of_ports {
            words.get_mut(at).into_iter().for_each(|word| *word = before);
        }
        let block = |cpu: usize, port: usize| {
            let first = (cpu * PORTS_MAX + port) * PortCounters::WORDS;
            PortCounters::from_words(std::array::from_fn(|word| words[first + word]))
        };
        let before: PortBlocks = (0..self.cpus).map(|cpu| std::array::from_fn(|port| block(cpu, port))).collect();
        (counts, blocks(&port_blocks(&self.ports, self.cpus), &before, u64::saturating_sub))
    }
}

impl Read {
    fn keep(number: u32, words: impl Iterator<Item = (usize, u64)>, kept: &mut Kept) -> io::Result<Self> {
        // A descriptor for each generation would use up those of the process, so it is opened only now.
        let (map, bytes) = weir_state::map_of_number(number)?;
        let words = words.filter(|&(_, word)| word > 0).collect();
        Ok(Read { map: kept.own(map)?, bytes, words })
    }

    fn take(self, needed: usize, inherited: &mut Inherited) -> io::Result<(MmapRaw, Vec<(usize, u64)>)> {
        let map: OwnedFd = inherited.take(self.map)?;
        if self.bytes < needed {
            return Err(io::Error::other(format!("counters of {} bytes, {needed} are needed", self.bytes)));
        }
        Ok((weir_state::handed_section(&map, self.bytes)?, self.words))
    }
}
