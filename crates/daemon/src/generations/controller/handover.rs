//! What the next program in this process continues with.

use super::{Controller, Shared};
use crate::generations::carried::{CarriedLedger, HandedLedger};
use crate::generations::ledger::Ledger;
use crate::generations::succession::HandedSuccession;
use std::io;
use std::time::{Duration, Instant};
use weir_engine::live::os::inherited::Kept;
use weir_engine::live::{Datapath, HandedLink, HandedPath, Readings};

impl<D: Datapath> Controller<D> {
    /// The decisions of the operator, and the generations in use.
    pub fn succession(&self) -> (HandedSuccession, Vec<Shared<D::Code>>) {
        let state = self.state();
        let handed = state.succession.hand_over(Instant::now(), weir_state::now_ns());
        let generations = handed.generations().into_iter().map(|id| state.ready(id)).collect();
        (handed, generations)
    }

    /// Hands over what decides packets. See [`Datapath::hand_over`].
    ///
    /// # Errors
    /// A descriptor cannot be kept.
    pub fn hand_over(&self, kept: &mut Kept) -> io::Result<Option<HandedPath<D::Code>>> {
        self.datapath.hand_over(kept)
    }

    /// Hands over all counts: the last readings of a datapath that goes on deciding packets, or those of one that was
    /// stopped. Returns the links of programs, if the datapath goes on.
    pub fn hand_over_counts(&self, path: Option<HandedPath<D::Code>>) -> (HandedLedger, Option<Vec<HandedLink>>) {
        let (mut open, mut missed) = (Vec::new(), Vec::new());
        let (readings, ports, links) = match path {
            Some(path) => {
                let mut readings = Vec::new();
                for (reading, handed) in path.counts {
                    let generation = self.ledger.generation(&reading.code).expect("the datapath was given it");
                    open.push((generation.program().to_string(), handed));
                    readings.push(reading);
                }
                missed = path.missed;
                let active = readings.remove(0);
                (Readings { active, others: readings }, path.ports, Some(path.links))
            }
            None => (self.datapath.readings(), self.datapath.ports(), None),
        };
        let (past, current, ports) = self.ledger.hand_over(&readings, &ports);
        let (uptime_ns, activations) = (self.started.elapsed().as_nanos() as u64, self.state().activations);
        (HandedLedger { past, current, ports, open, missed, uptime_ns, activations }, links)
    }

    /// This controller with the counts of the program before this one in its process.
    #[must_use]
    pub fn continuing(self, carried: CarriedLedger) -> Self {
        let CarriedLedger { past, current, ports, uptime_ns, activations } = carried;
        let started = self.started.checked_sub(Duration::from_nanos(uptime_ns)).unwrap_or(self.started);
        self.state().activations = activations;
        let ledger = Ledger::continued(self.active(), past, current, ports);
        Controller { ledger, started, ..self }
    }
}
