//! Turns: which thread may change a table.
//!
//! A turn is for one table or for several by name. Of two claims that share a table, the earlier one goes first, so no
//! claim starves. A turn for several tables is taken at once or not at all. No claim waits for turns of other tables.
//!
//! ```text
//!   claims, oldest first    bad        bad+admin     geo        admin
//!                           has it     waits (bad)   has it     waits (bad+admin)
//! ```

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The turns of all tables.
#[derive(Default)]
pub(super) struct Turns {
    claims: Mutex<Claims>,
    ended: Condvar,
}

#[derive(Default)]
struct Claims {
    next: u64,
    /// Claims of threads that change tables or wait for a turn, oldest first. As many as there are threads.
    waiting: Vec<Claim>,
}

struct Claim {
    number: u64,
    names: Vec<String>,
}

impl Claims {
    /// Adds a claim and returns its number.
    fn push(&mut self, names: Vec<String>) -> u64 {
        self.next += 1;
        self.waiting.push(Claim { number: self.next, names });
        self.next
    }

    /// Whether no earlier claim shares a table with this one.
    fn is_first(&self, number: u64) -> bool {
        let own = self.waiting.iter().position(|claim| claim.number == number).expect("the claim waits");
        let names = &self.waiting[own].names;
        self.waiting[..own].iter().all(|earlier| earlier.names.iter().all(|name| !names.contains(name)))
    }

    fn remove(&mut self, number: u64) {
        self.waiting.retain(|claim| claim.number != number);
    }
}

/// The right to change some tables, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    /// Waits for the turn of a table.
    pub fn take(&self, name: &str) -> Turn<'_> {
        self.take_all(vec![name.to_owned()])
    }

    /// Waits for the turn of several tables. Holds none of them while it waits.
    pub fn take_all(&self, names: Vec<String>) -> Turn<'_> {
        let mut claims = self.claims();
        let number = claims.push(names);
        while !claims.is_first(number) {
            claims = self.ended.wait(claims).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { turns: self, number }
    }

    /// Waits for the turn of a table, until a time at most.
    pub fn take_until(&self, name: &str, until: Instant) -> Option<Turn<'_>> {
        let mut claims = self.claims();
        let number = claims.push(vec![name.to_owned()]);
        while !claims.is_first(number) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                claims.remove(number);
                self.ended.notify_all();
                return None;
            }
            claims = self.ended.wait_timeout(claims, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(Turn { turns: self, number })
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.claims().remove(self.number);
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    #[test]
    fn turns_of_other_tables_do_not_wait() {
        let turns = Turns::default();
        let bad = turns.take("bad");
        let geo = turns.take("geo");
        assert!(turns.take_until("bad", soon()).is_none());
        drop(bad);
        let bad = turns.take_until("bad", Instant::now());
        assert!(bad.is_some() && turns.take_until("geo", Instant::now()).is_none());
        drop(geo);
        assert!(turns.take_until("geo", Instant::now()).is_some());
    }

    #[test]
    fn the_earlier_claim_goes_first_and_a_turn_for_several_holds_nothing_meanwhile() {
        let turns = &Turns::default();
        let bad = turns.take("bad");
        thread::scope(|scope| {
            let (send, order) = channel();
            let (both_send, admin_send) = (send.clone(), send);
            scope.spawn(move || {
                let _turn = turns.take_all(vec!["admin".to_owned(), "bad".to_owned()]);
                both_send.send("both").expect("the test receives");
            });
            while turns.claims().waiting.len() < 2 {
                thread::yield_now();
            }
            // Later than a claim for the same table, although no thread changes that table now.
            assert!(turns.take_until("admin", soon()).is_none());
            scope.spawn(move || {
                let _turn = turns.take("admin");
                admin_send.send("admin").expect("the test receives");
            });
            while turns.claims().waiting.len() < 3 {
                thread::yield_now();
            }
            assert!(turns.take_until("geo", Instant::now()).is_some());
            assert!(order.try_recv().is_err(), "both wait");
            drop(bad);
            assert_eq!(order.iter().collect::<Vec<_>>(), ["both", "admin"]);
        });
        assert!(turns.claims().waiting.is_empty());
    }
}
