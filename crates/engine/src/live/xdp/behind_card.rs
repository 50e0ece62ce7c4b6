//! What interfaces behind a card need of a policy: the programs in front of chains, and the seals of each port
//! (datapath/card/kernel_front.h).

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::Object;
use memmap2::MmapRaw;
use weir_abi::kernel::{CardPorts, CardSeals, PORTS_MAX};

use crate::xdp::load::{CARD, front_name, join_chains, map};
use crate::xdp::{failed, find};
use crate::{EngineError, ProgramShape};

/// The programs in front of chains, and what they know of cards.
pub(in crate::live) struct BehindCard {
    /// By chain; `None` for those that get no packets of a card.
    fronts: Vec<Option<OwnedFd>>,
    /// Kept open, because the kernel empties maps of programs when their last descriptor is closed.
    _chains: OwnedFd,
    memory: MmapRaw,
    /// The chain that reads answers, and the bytes of a body.
    pub answered: (usize, usize),
}

impl BehindCard {
    /// The programs of a loaded object. Its policy must read a card's answers.
    pub fn of(object: &Object, program: &ProgramShape) -> Result<Self, EngineError> {
        let front = |chain: usize| {
            let name = front_name(chain);
            if object.progs().all(|program| program.name() != name.as_str()) {
                return Ok(None);
            }
            let descriptor = find(object, &name)?.as_fd().try_clone_to_owned();
            descriptor.map(Some).map_err(|error| failed(&name, error.to_string()).caused_by(&error))
        };
        Ok(BehindCard {
            fronts: (0..program.chains.len()).map(front).collect::<Result<_, _>>()?,
            _chains: join_chains(object, &program.chains)?,
            memory: map(object, CARD, size_of::<CardPorts>())?,
            answered: program.answered.expect("the caller asked for what the policy has"),
        })
    }

    /// The program in front of a chain.
    pub fn front(&self, chain: usize) -> Option<BorrowedFd<'_>> {
        self.fronts[chain].as_ref().map(OwnedFd::as_fd)
    }

    /// Sets the seals of each port, from the next packet on. No program that began before the previous call may still
    /// run.
    pub fn write(&self, ports: &[CardSeals; PORTS_MAX]) {
        // SAFETY: the mapping holds a `CardPorts` (checked by `map`) and is aligned to a page. Programs only read.
        let half = unsafe { &*self.memory.as_ptr().cast::<AtomicU32>() };
        let next = (half.load(Ordering::Relaxed) & 1) ^ 1;
        let at = offset_of!(CardPorts, port) + next as usize * size_of_val(ports);
        // SAFETY: as above. Programs read the other half: those that read this one have ended, by the caller's promise.
        unsafe { self.memory.as_mut_ptr().add(at).cast::<[CardSeals; PORTS_MAX]>().write(*ports) };
        half.store(next, Ordering::Release);
    }
}

const _: () = assert!(offset_of!(CardPorts, half) == 0);
