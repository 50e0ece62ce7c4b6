//! SYNs that a simulated SYN proxy has answered, until the handshakes of their connections complete.

use crate::measure::Handshake;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// Handshakes that are remembered, about 60 MB. The oldest is forgotten first: its SYNs stay dropped.
const HANDSHAKES_MAX: usize = 1 << 20;

/// SYNs of a connection, by what their labels say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syns {
    /// Attack packets.
    pub attack: u64,
    /// All others.
    pub others: u64,
}

/// The SYNs that wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// With the number of the handshake in `order`.
    syns: HashMap<Handshake, (u64, Syns)>,
    /// Handshakes in the order in which they began, and numbers. Some of them are complete.
    order: VecDeque<(u64, Handshake)>,
    next: u64,
    handshakes_max: usize,
}

impl Default for Waiting {
    /// No SYN waits.
    fn default() -> Self {
        Self::with_room(HANDSHAKES_MAX)
    }
}

impl Waiting {
    fn with_room(handshakes_max: usize) -> Self {
        Waiting { syns: HashMap::new(), order: VecDeque::new(), next: 0, handshakes_max }
    }

    /// A SYN waits.
    pub fn add(&mut self, handshake: Handshake, is_attack: bool) {
        let (_, syns) = self.syns.entry(handshake).or_insert_with(|| {
            self.next += 1;
            self.order.push_back((self.next, handshake));
            (self.next, Syns::default())
        });
        syns.attack += u64::from(is_attack);
        syns.others += u64::from(!is_attack);
        self.forget();
    }

    /// Forgets the oldest handshakes if there are too many, and from time to time those in `order` that are complete.
    fn forget(&mut self) {
        let is_current = |syns: &HashMap<Handshake, (u64, Syns)>, (number, handshake): &(u64, Handshake)| {
            syns.get(handshake).is_some_and(|(begun, _)| begun == number)
        };
        while self.syns.len() > self.handshakes_max
            && let Some(oldest) = self.order.pop_front()
        {
            if is_current(&self.syns, &oldest) {
                self.syns.remove(&oldest.1);
            }
        }
        if self.order.len() > self.handshakes_max * 2 {
            self.order.retain(|entry| is_current(&self.syns, entry));
        }
    }

    /// The SYNs of a handshake that has completed. They wait no longer.
    pub fn take(&mut self, handshake: Handshake) -> Syns {
        self.syns.remove(&handshake).map(|(_, syns)| syns).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Syns, Waiting};
    use crate::measure::Handshake;

    #[test]
    fn the_oldest_is_forgotten_and_a_handshake_can_begin_again() {
        let mut waiting = Waiting::with_room(2);
        let [first, second, third] = [1, 2, 3].map(Handshake::of_key);
        waiting.add(first, false);
        waiting.add(second, true);
        waiting.add(second, false);
        assert_eq!(waiting.take(first), Syns { attack: 0, others: 1 });
        // The first begins again, and is the youngest then.
        waiting.add(first, true);
        waiting.add(third, false);
        let taken = [first, second, third].map(|handshake| waiting.take(handshake));
        assert_eq!(taken, [Syns { attack: 1, others: 0 }, Syns::default(), Syns { attack: 0, others: 1 }]);
        assert_eq!(waiting.take(first), Syns::default());
    }
}
