//! A table in which some entries expire at each tick and come back a little later.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{panic, thread};
use weir_abi::Family;
use weir_command::failure::Failure;
use weir_engine::Bound;
use weir_state::SharedState;
use weir_state::tables::{TICK_NS, TableBinding, TableChange, TableStore};
use weir_tables::{Entries, Kind, Table};

/// The timeout of all entries in ticks, and number of parts: ten minutes.
const PARTS: usize = 60_000;
/// Ticks until what has expired comes back.
const ABSENT: u64 = 5;

/// Which timeouts entries get.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timeouts {
    /// None.
    None,
    /// One part expires at each tick from now on.
    Spread,
}

/// The entries of the table `t`. Their time passes only in [`Steady::during`].
pub struct Steady {
    shared: Arc<SharedState>,
    binding: Arc<TableBinding>,
    parts: Vec<Table>,
    tick: u64,
    returned: usize,
}

impl Steady {
    /// Follows a table of these addresses.
    pub fn new(shared: Arc<SharedState>, data: &Bound, addresses: &[u32]) -> Self {
        let binding = data.state.tables.as_ref().expect("a dynamic table can change").binding.clone();
        let parts = addresses.chunks(addresses.len().div_ceil(PARTS)).map(table).collect();
        Steady { shared, binding, parts, tick: 0, returned: 0 }
    }

    /// Gives each entry its first timeout.
    ///
    /// # Errors
    /// The table refuses it.
    pub fn set_all(&mut self, timeouts: Timeouts) -> Result<(), Failure> {
        for (tick, entries) in (1..).zip(&self.parts) {
            let timeout = if timeouts == Timeouts::Spread { tick } else { 0 };
            self.change(TableChange::Update { entries, timeout_ms: Some(timeout * TICK_NS / 1_000_000) })?;
        }
        Ok(())
    }

    /// Lets time pass while `work` runs, `speed` times as fast as it does.
    ///
    /// # Errors
    /// The errors of `work`, or the table refuses what comes back.
    pub fn during<T>(&mut self, speed: u64, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let passing = scope.spawn(|| self.pass(speed, &stop));
            let done = work();
            stop.store(true, Ordering::Relaxed);
            passing.thread().unpark();
            passing.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))?;
            done
        })
    }

    /// Number of entries that have expired and come back.
    pub fn returned(&self) -> usize {
        self.returned
    }

    fn pass(&mut self, speed: u64, stop: &AtomicBool) -> Result<(), Failure> {
        let (start, first) = (Instant::now(), self.tick);
        while !stop.load(Ordering::Relaxed) {
            let passed = start.elapsed().as_nanos() as u64 / TICK_NS;
            while self.tick < first + passed * speed {
                self.tick += 1;
                self.end_tick()?;
            }
            let next = Duration::from_nanos(TICK_NS * (passed + 1));
            thread::park_timeout(next.saturating_sub(start.elapsed()));
        }
        Ok(())
    }

    fn end_tick(&mut self) -> Result<(), Failure> {
        self.store().expire(self.tick * TICK_NS);
        // The part of tick 1 is the first one.
        if let Some(expired) = self.tick.checked_sub(1 + ABSENT) {
            let entries = &self.parts[expired as usize % self.parts.len()];
            let timeout_ms = Some(self.parts.len() as u64 * TICK_NS / 1_000_000);
            self.returned += self.change(TableChange::Add { entries, timeout_ms })?;
        }
        Ok(())
    }

    /// The number of entries that have changed.
    fn change(&self, change: TableChange<'_>) -> Result<usize, Failure> {
        let changed = self.store().change(&self.binding, "t", change, self.tick * TICK_NS);
        changed.map(|done| done.changed).map_err(|error| Failure::Runtime(format!("weir: {error}")))
    }

    fn store(&self) -> &TableStore {
        self.shared.tables()
    }
}

fn table(addresses: &[u32]) -> Table {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    for &address in addresses {
        entries.insert_prefix(Ipv4Addr::from(address).into(), 32, None).expect("it is an address");
    }
    entries.settle()
}
