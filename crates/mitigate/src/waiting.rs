//! SYNs that a simulated SYN proxy has answered, until the handshakes of their connections complete.

use crate::measure::Handshake;
use std::collections::{HashMap, VecDeque};

/// Handshakes that are remembered. The oldest is forgotten first: its SYNs stay dropped.
const HANDSHAKES_MAX: usize = 1 << 20;

/// SYNs of a connection, by what their labels say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syns {
    /// Attack packets.
    pub attack: u64,
    /// All others.
    pub others: u64,
}

/// The SYNs that wait.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    syns: HashMap<Handshake, Syns>,
    order: VecDeque<Handshake>,
}

impl Waiting {
    /// A SYN waits.
    pub fn add(&mut self, handshake: Handshake, is_attack: bool) {
        let syns = self.syns.entry(handshake).or_insert_with(|| {
            self.order.push_back(handshake);
            Syns::default()
        });
        syns.attack += u64::from(is_attack);
        syns.others += u64::from(!is_attack);
        if self.order.len() > HANDSHAKES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.syns.remove(&oldest);
        }
    }

    /// The SYNs of a handshake that has completed. They wait no longer.
    pub fn take(&mut self, handshake: Handshake) -> Syns {
        self.syns.remove(&handshake).unwrap_or_default()
    }
}
