//! Exact leaves that change in place: hosts in the exact set (exact.rs, exact6.rs), other prefixes in the rank leaves
//! (rank.rs).
//!
//! A lookup searches for the host, and then for prefixes. So a host that a new prefix holds may be removed at any time
//! after the prefix was inserted: a lookup that no longer finds the one finds the other. The other way round, a lookup
//! could search for the host before it was inserted, and for the prefix after it was removed. So of several changes,
//! insertions of hosts come first and removals of hosts last. A prefix is removed in place only if all readers have
//! passed since a host inside it was inserted. Otherwise the table is rebuilt.

use std::collections::VecDeque;

use crate::cells::CellsMut;
use crate::layout::exact_leaf::{Hosts, Inside, Parts, set_has_prefixes};
use crate::layout::exact_sets;
use crate::live::epochs::Quiescence;
use crate::live::exact::{ExactWriter, Full};
use crate::live::exact6::Exact6Writer;
use crate::live::rank::RankWriter;
use crate::live::rib::{Net, Rib};
use crate::live::step::Step;

/// The writer's state of an image.
pub(super) struct ExactLeafWriter {
    hosts: HostsWriter,
    prefixes: RankWriter,
    prefixes_at: usize,
    /// The lengths of prefixes that the exact set has.
    host_lengths: &'static [u8],
    /// Hosts that some readers may not have seen, each with the epoch that its insertion began.
    young: VecDeque<(u64, Net)>,
    /// The epoch of the last of those that were forgotten, because there were too many.
    forgotten: u64,
}

/// Maximum number of hosts that are remembered as young.
const YOUNG_MAX: usize = 1 << 12;

#[cfg(test)]
impl ExactLeafWriter {
    /// Checks that the writer knows what is in use.
    pub fn assert_surveyed(&self, cells: &impl CellsMut) {
        self.prefixes.assert_surveyed(&Inside { cells, at: self.prefixes_at });
    }
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
        let (prefixes_at, young) = (parts.prefixes_at, VecDeque::new());
        ExactLeafWriter { hosts, prefixes, prefixes_at, host_lengths, young, forgotten: 0 }
    }

    fn is_host(&self, net: Net) -> bool {
        self.host_lengths.contains(&net.len)
    }

    /// The order of steps: insertions of hosts, prefixes, removals of hosts.
    pub fn turn(&self, step: &Step) -> u8 {
        match (self.is_host(step.net), step.new) {
            (true, 0) => 2,
            (true, _) => 0,
            (false, _) => 1,
        }
    }

    /// The number of steps, from the first on, that are made together: a prefix and those inside it.
    pub fn steps_covered(&self, steps: &[Step]) -> usize {
        let is_inside = |step: &&Step| !self.is_host(step.net) && steps[0].net.holds(step.net);
        steps.iter().take_while(is_inside).count().max(1)
    }

    /// Makes the image agree with `rib` for the steps, as many as [`ExactLeafWriter::steps_covered`] says.
    pub fn change<Q: Quiescence>(
        &mut self,
        cells: &impl CellsMut,
        readers: &Q,
        rib: &Rib,
        steps: &[Step],
    ) -> Result<(), Full> {
        if self.is_host(steps[0].net) {
            return self.change_host(cells, readers, steps[0]);
        }
        let is_removed = steps.iter().any(|step| step.new == 0);
        if is_removed && self.has_young(readers, steps[0].net) {
            return Err(Full);
        }
        let inside = Inside { cells, at: self.prefixes_at };
        self.prefixes.change(&inside, readers, rib, steps[0].net, 1)?;
        set_has_prefixes(cells, rib.has_others(self.host_lengths));
        Ok(())
    }

    fn change_host<Q: Quiescence>(&mut self, cells: &impl CellsMut, readers: &Q, step: Step) -> Result<(), Full> {
        match &mut self.hosts {
            HostsWriter::V4(hosts) => hosts.change(cells, step.net.addr4(), step.old, step.new)?,
            HostsWriter::V6(hosts) => hosts.change(cells, readers, step.net, (step.old, step.new))?,
        }
        if step.new != 0 {
            if self.young.len() == YOUNG_MAX {
                self.forgotten = self.young.pop_front().map_or(0, |(epoch, _)| epoch);
            }
            self.young.push_back((readers.unlinked(), step.net));
        }
        Ok(())
    }

    /// Whether some readers may not have seen a host inside `net`.
    fn has_young<Q: Quiescence>(&mut self, readers: &Q, net: Net) -> bool {
        while self.young.pop_front_if(|&mut (epoch, _)| readers.passed(epoch)).is_some() {}
        self.young.iter().any(|&(_, host)| net.holds(host)) || !readers.passed(self.forgotten)
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
