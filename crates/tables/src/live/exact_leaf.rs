//! Exact leaves that change in place: hosts in the exact set (exact.rs, exact6.rs), other prefixes in the rank leaves
//! (rank.rs).
//!
//! A lookup searches for the host, and then for prefixes. So a host that a new prefix holds may be removed at any time
//! after the prefix was inserted: a lookup that no longer finds the one finds the other. The other way round, a lookup
//! could search for the host before it was inserted, and for the prefix after it was removed. So a prefix is removed in
//! place only if it is the only change, and all readers have passed since a host was inserted. Otherwise the table is
//! rebuilt.

use crate::cells::CellsMut;
use crate::layout::exact_leaf::{Hosts, Inside, Parts, set_has_prefixes};
use crate::layout::exact_sets;
use crate::live::epochs::Quiescence;
use crate::live::exact::{ExactWriter, Full};
use crate::live::exact6::Exact6Writer;
use crate::live::held::{Held, Net};
use crate::live::rank::RankWriter;
use crate::live::step::Step;

/// The writer's state of an image.
pub(super) struct ExactLeafWriter {
    hosts: HostsWriter,
    prefixes: RankWriter,
    prefixes_at: usize,
    /// The lengths of prefixes that the exact set has.
    host_lengths: &'static [u8],
    /// The epoch that the last insertion of a host began.
    inserted: u64,
}

enum HostsWriter {
    V4(ExactWriter),
    V6(Exact6Writer),
}

impl ExactLeafWriter {
    /// Scans an image.
    pub fn new(cells: &impl CellsMut, parts: Parts, host_lengths: &'static [u8]) -> Self {
        let hosts = match parts.hosts {
            Hosts::V4(buckets) => {
                HostsWriter::V4(ExactWriter::new(cells, buckets, exact_sets::Ends::whole(buckets.geometry)))
            }
            Hosts::V6(buckets) => HostsWriter::V6(Exact6Writer::new(cells, buckets)),
        };
        let inside = Inside { cells, at: parts.prefixes_at };
        let prefixes = RankWriter::new(&inside, parts.prefixes, 1).without(host_lengths);
        ExactLeafWriter { hosts, prefixes, prefixes_at: parts.prefixes_at, host_lengths, inserted: 0 }
    }

    fn is_host(&self, net: Net) -> bool {
        self.host_lengths.contains(&net.len)
    }

    /// The number of steps, from the first on, that are made together: a prefix and what is inside it.
    pub fn steps_covered(&self, steps: &[Step]) -> usize {
        match self.is_host(steps[0].net) {
            true => 1,
            false => steps.iter().take_while(|step| steps[0].net.holds(step.net)).count(),
        }
    }

    /// Makes the image agree with `held` for the steps, as many as [`ExactLeafWriter::steps_covered`] says.
    pub fn change<Q: Quiescence>(
        &mut self,
        cells: &impl CellsMut,
        readers: &Q,
        held: &Held,
        steps: &[Step],
    ) -> Result<(), Full> {
        let first = steps[0];
        if !self.is_host(first.net) {
            self.change_prefix(cells, readers, held, steps)?;
        }
        let hosts = steps.iter().filter(|step| self.host_lengths.contains(&step.net.len));
        hosts.copied().try_for_each(|step| self.hosts.change(cells, readers, step, &mut self.inserted))
    }

    /// Makes the rank leaves agree with `held` for the first step and the prefixes inside it.
    fn change_prefix<Q: Quiescence>(
        &mut self,
        cells: &impl CellsMut,
        readers: &Q,
        held: &Held,
        steps: &[Step],
    ) -> Result<(), Full> {
        let is_removed = steps.iter().any(|step| step.new == 0 && !self.is_host(step.net));
        if is_removed && (steps.len() > 1 || !readers.passed(self.inserted)) {
            return Err(Full);
        }
        if !is_removed {
            set_has_prefixes(cells, true);
        }
        let inside = Inside { cells, at: self.prefixes_at };
        self.prefixes.change(&inside, readers, held, steps[0].net, 1)?;
        set_has_prefixes(cells, held.has_others(self.host_lengths));
        Ok(())
    }

    /// Whether anything waits for readers.
    pub fn is_waiting(&self) -> bool {
        let hosts_wait = matches!(&self.hosts, HostsWriter::V6(hosts) if hosts.is_waiting());
        hosts_wait || self.prefixes.is_waiting()
    }

    /// Frees what all readers have released.
    pub fn reclaim<Q: Quiescence>(&mut self, cells: &impl CellsMut, readers: &Q) {
        if let HostsWriter::V6(hosts) = &mut self.hosts {
            hosts.reclaim(cells, readers);
        }
        self.prefixes.reclaim(&Inside { cells, at: self.prefixes_at }, readers);
    }
}

impl HostsWriter {
    /// Inserts or removes a host. `inserted` is set to the epoch that an insertion begins.
    fn change<Q: Quiescence>(
        &mut self,
        cells: &impl CellsMut,
        readers: &Q,
        Step { net, old, new }: Step,
        inserted: &mut u64,
    ) -> Result<(), Full> {
        match self {
            HostsWriter::V4(hosts) => hosts.change(cells, net.addr4(), old, new)?,
            HostsWriter::V6(hosts) => hosts.change(cells, readers, net, new)?,
        }
        if new != 0 {
            *inserted = readers.unlinked();
        }
        Ok(())
    }
}
