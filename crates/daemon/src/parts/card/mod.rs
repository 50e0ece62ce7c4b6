//! `weir run --card`: lets a card drop the fastest sources of tables (docs/guide/card.md, decision 44).
//!
//! The card is a cache of tables: every entry stays in software too. A thread exchanges entries once a period. It looks
//! at removed entries and at the active policy every few milliseconds, and requests that change those wait until the
//! card has followed.

pub mod accounts;
pub mod counted_rule;
mod driver;
pub mod options;
mod part;
mod place;
pub mod policy;
mod state;
mod status;
pub mod sweeper;
mod wire;

use crate::parts::card::options::Placement;
use driver::DriverPlace;
use place::Place;
use state::{PlaceChange, State, TABLE};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sweeper::Sweeper;
use weir_command::failure::Failure;
use weir_control::{CardStatus, Stats};
use weir_engine::live::card::WireCard;
use weir_engine::live::card::flower::FlowerCard;
#[cfg(feature = "dpdk")]
use weir_engine::live::dpdk::FlowTable;
use weir_mitigate::offload::OffloadTable;
use wire::WirePlace;

pub use part::CardPart;
pub use state::Now;

/// Pause between two looks at what has left tables.
const TICK: Duration = Duration::from_millis(5);
/// Pause between two looks at all sources, and at the counters of the card. It grows so that these take at most a
/// twentieth of a CPU.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_SHARE: u32 = 20;
/// A period takes at least this many times what its measurement takes.
const PERIOD_SHARE: u32 = 10;
/// Pause of the thread while a request waits for the card.
const YIELD: Duration = Duration::from_micros(100);

/// The card of a running Weir.
#[derive(Clone)]
pub struct Card(Arc<Inner>);

/// A card that is open but not used yet.
pub struct Opened {
    places: Vec<(&'static str, Box<dyn OffloadTable<IpAddr> + Send>)>,
    /// The card passes everything when this is dropped.
    held: Box<dyn Send + Sync>,
}

impl Opened {
    /// A wire-side card.
    pub fn of_wire(mut wire: WireCard) -> Self {
        let places = [(TABLE, wire.table.take()), ("cpu", wire.cpu.take())];
        let boxed = |table| Box::new(WirePlace(table)) as Box<dyn OffloadTable<IpAddr> + Send>;
        let places = places.into_iter().filter_map(|(name, table)| Some((name, boxed(table?)))).collect();
        Opened { places, held: Box::new(wire) }
    }

    /// A card with filters of TC flower, and the process that deletes them.
    pub fn of_flower(FlowerCard { table, held, .. }: FlowerCard, sweeper: Sweeper) -> Self {
        Opened { places: vec![(TABLE, Box::new(DriverPlace(table)))], held: Box::new((held, Mutex::new(sweeper))) }
    }

    /// A port of DPDK whose driver takes flows.
    #[cfg(feature = "dpdk")]
    pub fn of_port(table: FlowTable) -> Self {
        let held = table.held();
        Opened { places: vec![(TABLE, Box::new(DriverPlace(table)))], held: Box::new(held) }
    }
}

/// What a card is for the operator, and how often its entries are exchanged.
pub struct Properties {
    /// What it is, and where.
    pub name: String,
    /// The interface at which it drops.
    pub interface: String,
    /// Which part of it drops.
    pub placement: Placement,
    /// The tables by which it drops.
    pub tables: Vec<String>,
    /// The period.
    pub period: Duration,
    /// Packets that this machine can drop in a second.
    pub software_pps: f64,
}

struct Inner {
    properties: Properties,
    state: Mutex<State>,
    /// Requests that wait for the state.
    waiting: AtomicUsize,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The card passes everything when this is dropped.
    held: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl Card {
    /// Starts to use a card.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(opened: Opened, properties: Properties, now: Box<Now>) -> Result<Self, Failure> {
        let places = opened.places.into_iter().map(|(name, table)| Place::new(name, table));
        let Properties { tables, period, software_pps, .. } = &properties;
        let state = State::new(now, tables.clone(), places.collect(), *period, *software_pps);
        let (state, stop, thread) = (Mutex::new(state), AtomicBool::new(false), Mutex::default());
        let waiting = AtomicUsize::new(0);
        let held = Mutex::new(Some(opened.held));
        let card = Card(Arc::new(Inner { properties, state, waiting, stop, thread, held }));
        let own = card.clone();
        let body = move || {
            if catch_unwind(AssertUnwindSafe(|| own.0.keep())).is_err() {
                // Without the thread, removals from tables would not reach the card. This call does not use the state,
                // which may be inconsistent.
                own.0.pass_everything();
                error!("weir: card: its thread has failed, so the card passes everything from now on");
            }
        };
        let thread = thread::Builder::new().name("weir-card".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Failure::system("a thread for the card", error))?;
        *card.0.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(card)
    }

    /// Returns when the card drops nothing that the active policy would not drop.
    pub fn follow(&self) {
        self.0.asked().follow_all();
    }

    /// Like `follow`, if only a table has changed since the last look.
    pub fn follow_table(&self, table: &str) {
        self.0.asked().follow_table(table);
    }

    /// Brings the counters of tables up to date.
    pub fn look(&self) {
        let mut state = self.0.asked();
        state.follow();
        state.look();
    }

    /// Adds what the card has dropped to the counters of the software.
    pub fn add_to(&self, stats: Stats) -> Stats {
        let mut stats = stats;
        let mut state = self.0.asked();
        state.follow();
        state.look();
        state.accounts.add_to(&mut stats, &self.0.properties.interface);
        stats
    }

    /// What the card does. `stats` are the counters of the software.
    pub fn status(&self, stats: Stats, top: usize) -> CardStatus {
        let stats = self.add_to(stats);
        let Properties { name, placement, .. } = &self.0.properties;
        status::status(&self.0.asked(), name.clone(), placement.name(), &stats, top)
    }

    /// Packets that the card has dropped by source since the last call.
    pub fn take_dropped(&self) -> Vec<(IpAddr, u64)> {
        let mut state = self.0.asked();
        state.look();
        state.take_untold()
    }

    /// Ends the thread, and empties the card.
    pub fn end(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic was reported when it happened.
        let _panicked = thread.map(JoinHandle::join);
        self.0.asked().empty();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for a request, before the thread goes on.
    fn asked(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// The state for the thread, after all requests.
    fn unasked(&self) -> MutexGuard<'_, State> {
        while self.waiting.load(Ordering::Relaxed) > 0 {
            thread::sleep(YIELD);
        }
        self.state()
    }

    /// The card drops nothing any more, whatever its entries are.
    fn pass_everything(&self) {
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The work of the thread.
    fn keep(&self) {
        let (mut look, mut period) = (Instant::now() + LOOK, Instant::now() + self.properties.period);
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            let begun = Instant::now();
            if begun >= period {
                let changes = self.unasked().choose();
                // The next measurement may take as long. Changes have their time in the period.
                let next = self.properties.period.max(begun.elapsed() * PERIOD_SHARE);
                period = begun + next;
                look = self.make(&changes, look);
            } else {
                look = self.follow(look);
            }
        }
    }

    /// Follows tables and the policy. Looks at all sources that may have become exempt, and at the counters, if it is
    /// time. Returns when it is time again.
    fn follow(&self, look: Instant) -> Instant {
        let mut state = self.unasked();
        if Instant::now() < look {
            state.follow_paced();
            return look;
        }
        let looked = state.look_at_all();
        Instant::now() + LOOK.max(looked * LOOK_SHARE)
    }

    /// Makes changes one after the other, and follows meanwhile. Requests do not wait for more than one. Returns when
    /// it is time to look at all sources again.
    fn make(&self, changes: &[PlaceChange], mut look: Instant) -> Instant {
        for &change in changes {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.unasked().make(change);
            look = self.follow(look);
        }
        look
    }
}
