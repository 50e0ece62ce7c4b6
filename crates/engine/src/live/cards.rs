//! The cards in front of interfaces: what the controller says of them, and what a worker needs of each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::FrameBurst;
use crate::live::lane::Role;
use crate::live::{Lane, Side};
use crate::sealed::{CardPort, Configured, Received, SealedBurst, Seals};

/// The cards of a datapath, by interface.
#[derive(Default)]
pub(super) struct Cards {
    /// Number of the last change. This is the only word that a worker reads for each burst.
    version: AtomicU64,
    cards: Mutex<HashMap<String, CardPort>>,
}

impl Cards {
    /// Sets the card of an interface. Returns the number of the change.
    pub fn set(&self, interface: &str, card: Option<CardPort>) -> u64 {
        let mut cards = self.lock();
        match card {
            Some(card) => cards.insert(interface.to_owned(), card),
            None => cards.remove(interface),
        };
        self.version.fetch_add(1, Ordering::Release) + 1
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CardPort>> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port behind a card, as its worker knows it.
pub(super) struct CardAtPort {
    pub seals: Seals,
    control: Option<SyncSender<Vec<u8>>>,
}

impl CardAtPort {
    /// Hands the card's answers to control frames to the session that asked. Frames without room are lost, as on a
    /// wire.
    pub fn hand_control(&self, burst: &SealedBurst<'_>) {
        let Some(control) = &self.control else { return };
        let mut from = 0;
        while from < burst.len() {
            let (received, run) = burst.run(from);
            if received == Received::Control {
                for index in from..from + run.len() {
                    let _no_room = control.try_send(burst.sealed(index).to_vec());
                }
            }
            from += run.len();
        }
    }
}

/// The cards in front of a worker's ports.
pub(super) struct WorkerCards {
    cards: Arc<Cards>,
    /// The interfaces of the lower side's ports.
    interfaces: Vec<String>,
    /// The change and the activation that `ports` are of.
    of: (u64, u64),
    /// One for each port of the lower side; empty if there are no cards.
    ports: Vec<Option<CardAtPort>>,
}

impl WorkerCards {
    pub fn new(cards: Arc<Cards>, lane: &dyn Lane) -> Self {
        let lower = lane.ports().into_iter().filter(|port| port.role == Role::Lower);
        WorkerCards { cards, interfaces: lower.map(|port| port.interface.clone()).collect(), of: (0, 0), ports: vec![] }
    }

    /// Between bursts: takes changes of cards, and the configuration of the active policy. `seen` becomes the number of
    /// the last change.
    pub fn follow(&mut self, activation: u64, own: Option<Configured>, seen: &AtomicU64) {
        let version = self.cards.version.load(Ordering::Acquire);
        if self.of == (version, activation) {
            return;
        }
        let cards = self.cards.lock();
        let of = |name: &String| {
            let card = cards.get(name)?;
            Some(CardAtPort { seals: Seals::new(card, own), control: card.control.clone() })
        };
        self.ports = if cards.is_empty() { vec![] } else { self.interfaces.iter().map(of).collect() };
        drop(cards);
        self.of = (version, activation);
        seen.store(version, Ordering::Release);
    }

    /// The card from which a burst comes.
    pub fn before(&self, from: Side, burst: &FrameBurst<'_>) -> Option<&CardAtPort> {
        if from == Side::Upper {
            return None;
        }
        self.ports.get(burst.port()).and_then(Option::as_ref)
    }
}
