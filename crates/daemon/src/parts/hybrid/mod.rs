//! `weir run --card hybrid:`: a card that answers rules for every packet (docs/guide/hybrid.md, decision 50).
//!
//! The card has a configuration for what decides packets: a generation and its posture. A change writes the next one
//! into the card's other bank, lets the datapath decide by the new policy, and commits. In between, the datapath knows
//! the seals of both configurations, and uses the answers of its own only.

pub mod following;
pub mod link;
mod part;
mod reopening;
pub mod splitter;
mod status;
mod traffic;

use crate::generations::generation::Generation;
use crate::parts::card::accounts::Accounts;
use crate::parts::card::counted_rule::CountedRule;
use link::CardLink;
pub use part::{HybridPart, splitter};
pub use reopening::Found;
use splitter::Offloaded;
use status::Facts;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_abi::Counter;
use weir_card::Profile;
use weir_card::receive::Configured;
use weir_command::failure::Failure;
use weir_control::{FollowStatus, HybridStatus, Stats};
use weir_engine::live::Datapath;
use weir_engine::{Answered, CardPort, WithoutSeal};
use weir_mitigate::offload::Hits;
use weir_state::tables::TableBinding;
use weir_tables::Table;

/// No queue holds a frame longer: a worker that a busy machine keeps from running has its frames wait.
const DRAINED: Duration = Duration::from_millis(300);

/// Answers that wait for the session. More are never asked for at once.
const ANSWERS_MAX: usize = 256;
/// Time after the first commit in which frames without a seal are still on their way.
const IN_FLIGHT: Duration = Duration::from_millis(100);
/// How often the card is asked for its counters, so that its failure is noticed.
const PERIOD: Duration = Duration::from_secs(1);
/// Pause of the thread between two looks at its end.
const TICK: Duration = Duration::from_millis(20);

/// The entries that a table has now, for a generation.
pub type Contents = dyn Fn(&TableBinding, &str) -> Option<Arc<Table>> + Send + Sync;

/// The card of a running Weir.
#[derive(Clone)]
pub struct HybridCard(Arc<Inner>);

struct Inner {
    profile: Profile,
    /// The interface behind which it is, as the datapath names it.
    port: String,
    contents: Box<Contents>,
    answers: SyncSender<Vec<u8>>,
    state: Mutex<State>,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// How the choice follows traffic, and when it changed last.
    followed: Mutex<Option<(FollowStatus, Option<Instant>)>>,
}

struct State {
    link: CardLink,
    /// What happens to frames without a seal.
    without_seal: WithoutSeal,
    active: Active,
    /// The configuration of a commit that had no answer.
    in_doubt: Option<Active>,
    /// Earlier configurations, and when each was replaced: frames of theirs may still be in queues.
    earlier: VecDeque<(Configured, Instant)>,
    /// Counters of the active configuration as they were read last, and accounted.
    read: Vec<Counter>,
    accounts: Accounts,
    /// Number of commits.
    changes: u64,
    problem: Option<String>,
    /// The configurations that the datapath knows.
    known: Vec<Configured>,
    /// Whether the card was opened again, and has no configuration of a policy yet.
    is_bare: bool,
    /// How often it was opened again.
    reopened: u64,
}

/// What a configuration is about.
#[derive(Clone, Default)]
struct Active {
    /// The rules for which the card drops, by counter.
    counted: Vec<Arc<CountedRule>>,
    /// Why the software decides alone, if it does.
    alone: Option<String>,
}

/// A configuration that is written, and not active yet.
pub struct Next {
    /// What the policy reads of it.
    pub answered: Option<Answered>,
    active: Active,
}

impl HybridCard {
    /// Takes an open card. `port` is the datapath's name of its interface.
    pub fn new(mut link: CardLink, profile: Profile, port: String, contents: Box<Contents>) -> Self {
        let (answers, received) = sync_channel(ANSWERS_MAX);
        link.listen_to(received);
        let state = State {
            link,
            without_seal: WithoutSeal::Alone,
            active: Active::default(),
            in_doubt: None,
            earlier: VecDeque::new(),
            read: vec![],
            accounts: Accounts::default(),
            changes: 0,
            problem: None,
            known: vec![],
            is_bare: false,
            reopened: 0,
        };
        HybridCard(Arc::new(Inner {
            profile,
            port,
            contents,
            answers,
            state: Mutex::new(state),
            stop: AtomicBool::new(false),
            thread: Mutex::default(),
            followed: Mutex::default(),
        }))
    }

    /// Tells the datapath of the card, which passes frames as they are. Must come before the first configuration.
    ///
    /// # Errors
    /// The datapath cannot use it.
    pub fn announce<D: Datapath>(&self, datapath: &D) -> Result<(), Failure> {
        let mut state = self.0.state();
        let active = state.link.active();
        self.0.set_known(datapath, &mut state, vec![active])
    }

    /// Writes the configuration for a generation and a posture. The datapath knows its seals afterwards.
    ///
    /// # Errors
    /// The card does not answer. Nothing has changed.
    pub fn prepare<D: Datapath>(
        &self,
        datapath: &D,
        generation: &Generation<D::Code>,
        posture: Option<&str>,
    ) -> Result<Next, Failure> {
        let mut state = self.0.state();
        if self.has_ended() {
            return Err(Failure::Runtime("weir: Weir ends, and has left the card".to_owned()));
        }
        state.settle()?;
        let offloaded = self.0.offloaded(generation, posture);
        let (program, tables) = match &offloaded {
            Ok(Offloaded { card, tables, .. }) => (card.clone(), tables.clone()),
            Err(_) => (splitter::nothing(), vec![]),
        };
        let earlier = state.replaced();
        let configured = state.link.write(&program, tables)?;
        self.0.set_known(datapath, &mut state, [earlier, vec![configured]].concat())?;
        let answered = offloaded.as_ref().ok().map(|offloaded| Answered {
            chain: offloaded.chain,
            configured: weir_engine::Configured { epoch: configured.epoch, body: configured.body },
        });
        let active = match offloaded {
            Ok(offloaded) => Active { counted: offloaded.counted.clone(), alone: None },
            Err(why) => Active { counted: vec![], alone: Some(why) },
        };
        Ok(Next { answered, active })
    }

    /// Makes a written configuration active. The datapath decides by its policy already.
    ///
    /// # Errors
    /// The card does not answer. It is asked again until it does; the datapath decides packets of both configurations.
    pub fn commit(&self, next: Next) -> Result<(), Failure> {
        let mut state = self.0.state();
        state.in_doubt = Some(next.active);
        state.commit()
    }

    /// Drops frames without a seal from now on.
    ///
    /// # Errors
    /// The datapath does not take it.
    pub fn seal<D: Datapath>(&self, datapath: &D) -> Result<(), Failure> {
        thread::sleep(IN_FLIGHT);
        let mut state = self.0.state();
        state.without_seal = WithoutSeal::Drop;
        let active = state.link.active();
        self.0.set_known(datapath, &mut state, vec![active])
    }

    /// Notes that the software decides alone until the next configuration.
    pub fn note_alone(&self, why: String) {
        self.0.state().active.alone = Some(why);
    }

    /// Whether the active configuration has this table.
    pub fn has_table<C>(&self, generation: &Generation<C>, table: &str) -> bool {
        generation.is_on_card(table) && self.0.state().active.alone.is_none()
    }

    /// The card.
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Whether Weir leaves it, or has left it.
    pub fn has_ended(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// The epoch of the active configuration, and what the card has dropped in it, by counter.
    ///
    /// # Errors
    /// Why answers are not used now.
    pub fn counted(&self) -> Result<(u16, Vec<Counter>), String> {
        let mut state = self.0.state();
        if state.problem.is_none() {
            state.look();
        }
        match (&state.problem, &state.active.alone) {
            (Some(why), _) | (None, Some(why)) => Err(why.clone()),
            (None, None) => Ok((state.link.active().epoch, state.read.clone())),
        }
    }

    /// Whether a table has other entries than a generation was loaded with, or it is not known.
    pub fn has_changed<C>(&self, generation: &Generation<C>, table: &str) -> bool {
        self.0.has_changed(generation, table)
    }

    /// Notes how the choice of rules follows traffic, and when it changed last.
    pub fn note_following(&self, status: FollowStatus, changed: Option<Instant>) {
        *self.0.followed.lock().unwrap_or_else(PoisonError::into_inner) = Some((status, changed));
    }

    /// Starts the thread that notices when the card fails. `reopen` is called once in a while until it answers again.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn keep(&self, reopen: impl Fn() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
        let own = self.clone();
        let body = move || {
            if catch_unwind(AssertUnwindSafe(|| own.0.keep(&reopen))).is_err() {
                error!("weir: card: its thread has failed, so nobody notices if the card does");
            }
        };
        let thread = thread::Builder::new().name("weir-card".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Failure::system("a thread for the card", error))?;
        *self.0.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Adds what the card has dropped to the counters of the software.
    pub fn add_to(&self, stats: Stats) -> Stats {
        let mut stats = stats;
        let mut state = self.0.state();
        // The thread notices when a silent card answers again. Other callers do not wait for the card.
        if state.problem.is_none() {
            state.look();
        }
        state.accounts.add_to(&mut stats, &format!("card:{}", self.0.port));
        stats
    }

    /// What the card does. `stats` are the counters of the software.
    pub fn status<C>(&self, stats: Stats, generation: &Generation<C>) -> HybridStatus {
        let stats = self.add_to(stats);
        let state = self.0.state();
        let facts = Facts {
            profile: &self.0.profile,
            port: &self.0.port,
            active: state.link.active(),
            counted: &state.active.counted,
            alone: &state.active.alone,
            problem: &state.problem,
            sealed: state.without_seal != WithoutSeal::Alone,
            changes: state.changes,
            reopened: state.reopened,
            accounts: &state.accounts,
        };
        let follow = self.0.followed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let follow = follow.map(|(mut status, changed)| {
            if let (Some(last), Some(changed)) = (&mut status.last, changed) {
                last.ago_s = changed.elapsed().as_secs_f64();
            }
            Box::new(status)
        });
        HybridStatus { follow, ..status::status(&facts, &stats, generation.offloaded()) }
    }

    /// Makes the card pass frames as they are. The datapath decides them alone.
    ///
    /// # Errors
    /// The card does not answer: it keeps its configuration.
    pub fn end<D: Datapath>(&self, datapath: &D) -> Result<(), Failure> {
        self.0.stop.store(true, Ordering::Relaxed);
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic was reported when it happened.
        let _panicked = thread.map(JoinHandle::join);
        let mut state = self.0.state();
        state.settle()?;
        state.without_seal = WithoutSeal::Alone;
        let earlier = state.replaced();
        let plain = state.link.write_plain()?;
        self.0.set_known(datapath, &mut state, [earlier, vec![plain]].concat())?;
        state.in_doubt = Some(Active::default());
        state.commit()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the datapath which configurations the card may have.
    fn set_known<D: Datapath>(&self, datapath: &D, state: &mut State, known: Vec<Configured>) -> Result<(), Failure> {
        state.known.clone_from(&known);
        let known = known.into_iter().map(|Configured { epoch, body }| weir_engine::Configured { epoch, body });
        let port = CardPort {
            token: state.link.token(),
            known: known.collect(),
            without_seal: state.without_seal,
            control: Some(self.answers.clone()),
        };
        Ok(datapath.set_card(&self.port, Some(port))?)
    }

    fn has_changed<C>(&self, generation: &Generation<C>, table: &str) -> bool {
        let declared = generation.declared().named(table).map(|table| &table.entries);
        let now = generation.tables().and_then(|tables| (self.contents)(tables, table));
        match (declared, now) {
            (Some(declared), Some(now)) => !declared.difference(&now).is_empty(),
            // Its entries are not known.
            _ => true,
        }
    }

    /// What the card does for a generation and a posture, or why it does nothing.
    fn offloaded<'g, C>(&self, generation: &'g Generation<C>, posture: Option<&str>) -> Result<&'g Offloaded, String> {
        if let Some(posture) = posture {
            return Err(format!("rules of postures are not offloaded, and {posture} is active"));
        }
        let Some(offloaded) = generation.offloaded() else {
            return Err("the policy is a bundle".to_owned());
        };
        let has_changed = |name: &&str| self.has_changed(generation, name);
        match offloaded.card.lookups.iter().map(|lookup| lookup.name.as_str()).find(has_changed) {
            Some(table) => Err(changed(table)),
            None => Ok(offloaded),
        }
    }

    /// The work of the thread.
    fn keep(&self, reopen: &dyn Fn() -> Result<(), Failure>) {
        let (mut waited, mut reported) = (Duration::ZERO, None);
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            waited += TICK;
            if waited < PERIOD {
                continue;
            }
            waited = Duration::ZERO;
            let is_silent = {
                let mut state = self.state();
                if state.problem.is_none() {
                    state.look();
                }
                state.problem.is_some() || state.is_bare
            };
            let failed = if is_silent { reopen().err() } else { None };
            let failed = failed.map(|failure| failure.message().to_owned());
            if let Some(failed) = failed.as_ref().filter(|failed| reported.as_ref() != Some(*failed)) {
                error!("weir: card: it cannot be opened again: {failed}");
            }
            reported = failed;
        }
    }
}

/// Why answers about a table are not used.
pub fn changed(table: &str) -> String {
    format!("table {table} was changed since the policy was loaded; load it again")
}

impl State {
    /// The earlier configurations whose frames may still arrive, with the one that is about to be replaced. There is
    /// room for a few: a change that comes too soon waits until the oldest is no longer in any queue.
    fn replaced(&mut self) -> Vec<Configured> {
        let active = self.link.active();
        if self.earlier.back().is_none_or(|(last, _)| *last != active) {
            self.earlier.push_back((active, Instant::now()));
        }
        while self.earlier.len() >= CardPort::KNOWN_MAX {
            let oldest = self.earlier.pop_front();
            thread::sleep(oldest.map_or(Duration::ZERO, |(_, since)| DRAINED.saturating_sub(since.elapsed())));
        }
        self.earlier.iter().map(|(configured, _)| *configured).collect()
    }

    /// Finds out what became of a commit without answer.
    fn settle(&mut self) -> Result<(), Failure> {
        if self.in_doubt.is_some() { self.commit() } else { Ok(()) }
    }

    /// Commits the configuration in doubt.
    fn commit(&mut self) -> Result<(), Failure> {
        let before = self.link.commit()?;
        self.account(&before);
        self.active = self.in_doubt.take().expect("the caller has set it");
        self.read = vec![];
        self.accounts.begin();
        self.changes += 1;
        Ok(())
    }

    /// Accounts what the active configuration has dropped so far. A card that does not answer is reported once.
    fn look(&mut self) {
        match self.settle().and_then(|()| self.link.count()) {
            Ok(now) => {
                self.account(&now);
                if self.problem.take().is_some() {
                    notice!("weir: card: it answers again");
                }
            }
            Err(failure) => {
                let problem = failure.message().to_owned();
                if self.problem.replace(problem.clone()).is_none() {
                    error!("{problem}");
                }
            }
        }
    }

    /// Accounts counters of the active configuration that were read now.
    fn account(&mut self, now: &[Counter]) {
        for (index, (rule, now)) in self.active.counted.iter().zip(now).enumerate() {
            let before = self.read.get(index).copied().unwrap_or_default();
            let packets = now.packets.saturating_sub(before.packets);
            let bytes = now.bytes.saturating_sub(before.bytes);
            if packets > 0 {
                self.accounts.add(rule, Hits { packets, bytes, last_ns: 0 });
            }
        }
        self.read = now.to_vec();
    }
}
