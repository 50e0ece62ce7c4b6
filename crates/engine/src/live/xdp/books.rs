//! What is counted by which policy: accounts of code whose programs decide packets.

use std::io;
use std::sync::Arc;

use weir_abi::Counter;

use super::code::{KernelCode, PortBlocks};
use super::counted::HandedCounts;
use super::ports;
use crate::live::datapath::{Counts, Loaded, Reading};
use crate::live::os::inherited::Kept;

/// Code whose programs decide packets or may do so, and the counters' values at the start of its account.
pub(super) struct Counting {
    pub(super) code: Arc<KernelCode>,
    pub(super) counts: Counts,
    pub(super) ports: PortBlocks,
}

impl Counting {
    /// An account that starts now.
    pub(super) fn of(code: &Arc<KernelCode>) -> Self {
        Counting { code: code.clone(), counts: code.counts(), ports: code.port_counts() }
    }

    /// A reading, and what the next program continues with.
    pub(super) fn hand_over(&self, kept: &mut Kept) -> io::Result<(Reading<KernelCode>, PortBlocks, HandedCounts)> {
        let (counts, ports) = (self.code.counts(), self.code.port_counts());
        let handed = self.code.keep_counts((&counts, &ports), kept)?;
        let reading = Reading { code: self.code.clone(), counts: difference(&counts, &self.counts) };
        Ok((reading, blocks(&ports, &self.ports, u64::wrapping_sub), handed))
    }

    pub(super) fn reading(&self) -> Reading<KernelCode> {
        Reading { code: self.code.clone(), counts: difference(&self.code.counts(), &self.counts) }
    }

    pub(super) fn port_counts(&self) -> PortBlocks {
        blocks(&self.code.port_counts(), &self.ports, u64::wrapping_sub)
    }

    /// Ends an account and starts the next with the same readings, so that nothing is counted twice or lost.
    pub(super) fn renew(&mut self) -> (Reading<KernelCode>, PortBlocks) {
        let next = Counting::of(&self.code);
        let counted = difference(&next.counts, &self.counts);
        let ports = blocks(&next.ports, &self.ports, u64::wrapping_sub);
        *self = next;
        (Reading { code: self.code.clone(), counts: counted }, ports)
    }
}

/// The current policy and all accounts of counts.
pub(super) struct Books {
    pub(super) active: Loaded<KernelCode>,
    /// Accounts of the active code and of other attached code, one for each.
    pub(super) open: Vec<Counting>,
    /// Counts of code without attached programs that were not taken yet.
    pub(super) closed: Vec<Reading<KernelCode>>,
    /// Port counts of all closed accounts.
    pub(super) past: PortBlocks,
    /// Receiving ports with programs of another policy than the active one.
    pub(super) strays: Vec<(usize, Loaded<KernelCode>)>,
}

impl Books {
    /// Opens an account for code before its programs are attached. Returns whether it had none.
    pub(super) fn open(&mut self, code: &Arc<KernelCode>) -> bool {
        let is_new = !self.open.iter().any(|one| Arc::ptr_eq(&one.code, code));
        if is_new {
            self.open.push(Counting::of(code));
        }
        is_new
    }

    /// Closes accounts. Attached code gets a new one.
    pub(super) fn close(&mut self, ends: impl Fn(&Counting) -> bool) {
        for one in self.open.iter_mut().filter(|one| ends(one)) {
            let (reading, ports) = one.renew();
            self.past = blocks(&self.past, &ports, u64::wrapping_add);
            self.closed.push(reading);
        }
        let attached = self.attached();
        self.open.retain(|one| attached.iter().any(|code| Arc::ptr_eq(&one.code, code)));
    }

    /// Records that all interfaces have the programs of a policy, and that others have ended. Counts start with the
    /// activation, even if only the posture changed.
    pub(super) fn replaced(&mut self, policy: &Loaded<KernelCode>, is_new: bool) {
        (self.active, self.strays) = (policy.clone(), Vec::new());
        self.close(|one| !(is_new && Arc::ptr_eq(&one.code, &policy.code)));
    }

    /// Records that the interfaces have their previous programs, except for strays, and that others have ended.
    pub(super) fn not_replaced(&mut self, strays: Vec<(usize, Loaded<KernelCode>)>) {
        self.strays = strays;
        let attached = self.attached();
        self.close(|one| !attached.iter().any(|code| Arc::ptr_eq(&one.code, code)));
    }

    /// Code with attached programs.
    pub(super) fn attached(&self) -> Vec<Arc<KernelCode>> {
        let strays = self.strays.iter().map(|(_, stray)| stray.code.clone());
        [self.active.code.clone()].into_iter().chain(strays).collect()
    }

    pub(super) fn is_active(&self, one: &Counting) -> bool {
        Arc::ptr_eq(&one.code, &self.active.code)
    }
}

fn difference(now: &Counts, then: &Counts) -> Counts {
    let minus = |now: &[Counter], then: &[Counter]| -> Vec<Counter> {
        let pairs = now.iter().zip(then);
        pairs
            .map(|(now, then)| Counter { packets: now.packets - then.packets, bytes: now.bytes - then.bytes })
            .collect()
    };
    now.iter().zip(then).map(|(now, then)| [minus(&now[0], &then[0]), minus(&now[1], &then[1])]).collect()
}

pub(super) fn blocks(one: &PortBlocks, other: &PortBlocks, both: impl Fn(u64, u64) -> u64) -> PortBlocks {
    let pairs = one.iter().zip(other);
    pairs.map(|(one, other)| std::array::from_fn(|port| ports::joined(one[port], other[port], &both))).collect()
}
