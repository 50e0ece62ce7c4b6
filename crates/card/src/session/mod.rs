//! The session of software with a card: frames out, frames in, time in (`docs/decisions/0050-card-sessions.md`).
//!
//! ```text
//!             open            configure                        commit                          count
//!   software  plain, commit   writes ...   reads ...           commit        reads             reads
//!   card            seal 0       answers      the same words   seal 1        COUNTERS_BEFORE   COUNTERS
//! ```
//! The first configuration is a plain one: the card passes frames as they are. Its seal proves that the card is there,
//! and no answer behind it can be forged. Every other configuration is written into the bank that is not active, read
//! back, and committed when the software is ready.
//!
//! The link keeps the order of frames and may lose some. Writes and reads are repeated until they are answered. A
//! commit changes the bank each time, so it is not repeated: if its answer is missing, a read behind it tells by the
//! seal of its answer which configuration is active.

mod answers;
mod error;
mod exchange;
#[cfg(test)]
mod tests;

use crate::control::{Control, Request, WORDS_MAX};
use crate::image::{Memory, memories, plain};
use crate::memories::Sizes;
use crate::profile::Profile;
use crate::program::CardProgram;
use crate::receive::Configured;
use answers::{Known, counters, is_commit, reads, verify};
use error::{asked, name};
use exchange::{Exchange, Heard};
use std::time::Duration;
use weir_abi::Counter;
use weir_abi::card::{SEAL_BYTES, Seal, memory, register};

pub use error::SessionError;

/// Tries of a request without any answer after which a card is silent: they take 2.7 s. Tries count and not time,
/// because a busy machine may keep the session itself from receiving.
const TRIES: u32 = 7;
/// Tries for a card that was silent in the previous task: 0.7 s.
const TRIES_AGAIN: u32 = 3;
/// Tries for a card that is being opened, because its link may just be coming up: 10.2 s.
const TRIES_OPENING: u32 = 22;
/// Time without an answer to a commit after which the session asks whether there was one.
const COMMIT_WAIT: Duration = Duration::from_millis(200);
/// Most commits that may be lost, one after the other.
const COMMITS_MAX: usize = 20;

/// The seal of a card without a configuration.
const UNCONFIGURED: Seal = Seal { token: 0, control: true, answers: false, body: 0, epoch: 0 };

/// What a session has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The bank that is not active has the configuration.
    Written,
    /// The configuration is active, and no frame of the earlier one follows.
    Committed {
        /// What the earlier configuration has dropped in all, by counter.
        before: Vec<Counter>,
    },
    /// What the active configuration has dropped so far, by counter.
    Counted(Vec<Counter>),
}

/// What the caller of a session does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'s> {
    /// Sends a frame to the card, and asks again.
    Send(&'s [u8]),
    /// Waits for a frame, until this time at the latest.
    Wait(Duration),
    /// Nothing: the task is done. There is no task afterwards.
    Done(Done),
    /// Nothing: the task has failed. There is no task afterwards.
    Failed(SessionError),
    /// Nothing: there is no task.
    Idle,
}

/// A configuration of the card, and the number of its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Active {
    configured: Configured,
    counters: usize,
}

/// The session of one program with a card.
pub struct Session {
    sizes: Sizes,
    token: u64,
    /// Number of the next control frame.
    number: u16,
    /// The active configuration; `None` before the first commit.
    active: Option<Active>,
    /// The configuration in the other bank.
    written: Option<Active>,
    /// Of the last configuration that was written.
    epoch: u16,
    /// Of the bank that is active and of the other one.
    known: [Known; 2],
    /// The number of a commit without answer.
    doubt: Option<u16>,
    /// Commits of the task.
    commits: usize,
    task: Task,
    /// When the card was last heard, or the task began; `None` before its first step.
    heard: Option<Duration>,
    /// Whether the card has not been heard since a task failed because of that.
    was_silent: bool,
    /// Tries until the first commit.
    opening: u32,
}

/// What the session is about.
enum Task {
    None,
    Write(Exchange),
    /// Reads what was written.
    Verify {
        exchange: Exchange,
        written: Vec<Request>,
    },
    /// A commit is to be sent, or was sent.
    Commit {
        frame: Vec<u8>,
        number: u16,
        sent: Option<Duration>,
    },
    /// The answer to the commit with this number is missing.
    Ask {
        number: u16,
        exchange: Exchange,
    },
    CountBefore(Exchange),
    Count(Exchange),
    /// The card has given an answer that ends the task.
    Failed(SessionError),
}

impl Session {
    /// A session with a card of this profile. `token` is a secret of 40 random bits, drawn for this session.
    pub fn new(profile: &Profile, token: u64) -> Self {
        assert!(token >> Seal::TOKEN_BITS == 0, "compiler bug: a token has 40 bits");
        Session {
            sizes: Sizes::of(profile),
            token,
            number: 0,
            active: None,
            written: None,
            epoch: 0,
            known: Default::default(),
            doubt: None,
            commits: 0,
            task: Task::None,
            heard: None,
            was_silent: false,
            opening: TRIES_OPENING,
        }
    }

    /// A session with a card that has just answered. It waits less long than for a card that is coming up.
    pub fn again(profile: &Profile, token: u64) -> Self {
        Session { opening: TRIES, ..Self::new(profile, token) }
    }

    /// The card's secret.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The active configuration, if there was a commit.
    pub fn active(&self) -> Option<Configured> {
        self.active.map(|active| active.configured)
    }

    /// Begins to write a configuration with which the card passes frames as they are. The first one of a session must
    /// be such a one.
    ///
    /// # Errors
    /// Only the errors of [`Session::write_program`], because every card has the registers.
    pub fn write_plain(&mut self) -> Result<Configured, SessionError> {
        let configured = Configured { epoch: self.next_epoch(), body: 0 };
        self.write(vec![plain(self.token, configured.epoch)], Active { configured, counters: 0 })
    }

    /// Begins to write a configuration. `tables` are the memories of its lookups ([`crate::image::table`]).
    ///
    /// # Errors
    /// It does not fit the profile.
    pub fn write_program(&mut self, program: &CardProgram, tables: Vec<Memory>) -> Result<Configured, SessionError> {
        assert!(self.active.is_some(), "compiler bug: a session begins with a plain configuration");
        let configured = Configured { epoch: self.next_epoch(), body: program.body.bytes() as u8 };
        let mut all = memories(program, self.token, configured.epoch);
        // Nothing of an earlier configuration stays.
        for Memory { number, words } in &mut all {
            words.resize(words.len().max(self.sizes.words(*number)), 0);
        }
        all.extend(tables);
        self.write(all, Active { configured, counters: program.dropped.len() })
    }

    /// Begins to make the written configuration active. If an earlier commit of it had no answer, this finds out
    /// whether it was carried out, and repeats it if not.
    pub fn commit(&mut self) {
        assert!(self.written.is_some(), "compiler bug: a commit without a configuration");
        self.commits = 0;
        let task = match self.doubt.take() {
            Some(number) => self.ask(number),
            None => self.new_commit(),
        };
        self.begin(task);
    }

    /// Whether a commit had no answer. Then the card has either of two configurations, until [`Session::commit`]
    /// succeeds.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Begins to read the counters of the active configuration. It also fails if the card has lost its configuration,
    /// whether it has counters or not.
    pub fn count(&mut self) {
        let counters = self.active.map_or(0, |active| active.counters);
        // A counter may change between its two words. The smaller one of two readings has no such word.
        let counters = reads(memory::COUNTERS, counters).chain(reads(memory::COUNTERS, counters));
        let exchange = self.exchange([Request::read(memory::CONFIG, 0, 1)].into_iter().chain(counters));
        self.begin(Task::Count(exchange));
    }

    fn next_epoch(&self) -> u16 {
        self.epoch.wrapping_add(1)
    }

    fn begin(&mut self, task: Task) {
        assert!(matches!(self.task, Task::None), "compiler bug: a session does one thing at a time");
        (self.task, self.heard) = (task, None);
    }

    /// Writes all words that the bank is not known to have.
    fn write(&mut self, all: Vec<Memory>, written: Active) -> Result<Configured, SessionError> {
        if let Some(large) = all.iter().find(|one| one.words.len() > self.sizes.words(one.number)) {
            let (needs, has) = (large.words.len(), self.sizes.words(large.number));
            return Err(SessionError::TooLarge { memory: name(large.number), needs, has });
        }
        assert!(self.doubt.is_none(), "compiler bug: which bank is active is not known");
        let known = &mut self.known[1];
        let mut requests = Vec::new();
        for Memory { number, words } in &all {
            for (first, words) in (0..).step_by(WORDS_MAX).zip(words.chunks(WORDS_MAX)) {
                if !known.get(&(*number, first)).is_some_and(|known| known.starts_with(words)) {
                    known.remove(&(*number, first));
                    requests.push(Request::write(*number, first, words));
                }
            }
        }
        self.epoch = written.configured.epoch;
        self.written = Some(written);
        let exchange = self.exchange(requests);
        self.begin(Task::Write(exchange));
        Ok(written.configured)
    }

    fn exchange(&mut self, requests: impl IntoIterator<Item = Request>) -> Exchange {
        Exchange::new(requests, || next(&mut self.number))
    }

    fn new_commit(&mut self) -> Task {
        self.commits += 1;
        if self.commits > COMMITS_MAX {
            return Task::Failed(SessionError::WrongSeal);
        }
        let number = next(&mut self.number);
        Task::Commit { frame: Request::commit().frame(number), number, sent: None }
    }

    /// Asks which configuration is active. This answer comes after the answer to the commit.
    fn ask(&mut self, number: u16) -> Task {
        let read = Request::read(memory::CONFIG, 0, register::COUNT as u16);
        Task::Ask { number, exchange: self.exchange([read]) }
    }

    /// Whether the card does not answer.
    fn is_silent(&self, now: Duration) -> bool {
        let tries = match self.active {
            _ if self.was_silent => TRIES_AGAIN,
            None => self.opening,
            Some(_) => TRIES,
        };
        match &self.task {
            Task::Write(exchange)
            | Task::Verify { exchange, .. }
            | Task::Ask { exchange, .. }
            | Task::CountBefore(exchange)
            | Task::Count(exchange) => exchange.is_unanswered(tries, now),
            Task::None | Task::Commit { .. } | Task::Failed(_) => false,
        }
    }

    /// The card is silent.
    fn silent(&mut self, silence: Duration) -> SessionError {
        self.was_silent = true;
        let waiting = match &self.task {
            Task::Ask { number, .. } => {
                self.doubt = Some(*number);
                Request::commit()
            }
            Task::Write(exchange)
            | Task::Verify { exchange, .. }
            | Task::CountBefore(exchange)
            | Task::Count(exchange) => exchange.waiting().expect("it is not done").clone(),
            Task::None | Task::Commit { .. } | Task::Failed(_) => panic!("compiler bug: nobody waits for the card"),
        };
        SessionError::Silent { asked: asked(&waiting), silence }
    }

    /// What to do next.
    pub fn poll(&mut self, now: Duration) -> Step<'_> {
        if let Some(done) = self.proceed(now) {
            self.task = Task::None;
            return match done {
                Ok(done) => Step::Done(done),
                Err(error) => Step::Failed(error),
            };
        }
        let next = match &mut self.task {
            Task::None | Task::Failed(_) => return Step::Idle,
            Task::Commit { sent: Some(sent), .. } => Err(*sent + COMMIT_WAIT),
            Task::Commit { frame, sent, .. } => {
                *sent = Some(now);
                Ok(&frame[..])
            }
            Task::Write(exchange)
            | Task::Verify { exchange, .. }
            | Task::Ask { exchange, .. }
            | Task::CountBefore(exchange)
            | Task::Count(exchange) => exchange.poll(now),
        };
        match next {
            Ok(frame) => Step::Send(frame),
            Err(due) => Step::Wait(due),
        }
    }

    /// Begins the next part of the task if one is done. Returns the result of the task.
    fn proceed(&mut self, now: Duration) -> Option<Result<Done, SessionError>> {
        let silence = now.saturating_sub(*self.heard.get_or_insert(now));
        match &self.task {
            Task::None => return None,
            Task::Failed(error) => return Some(Err(error.clone())),
            Task::Write(exchange) if exchange.is_done() => {
                let written: Vec<Request> = exchange.answers().map(|(request, _)| request.clone()).collect();
                let reads = written.iter().map(|one| Request::read(one.memory, one.first, one.count));
                self.task = Task::Verify { exchange: self.exchange(reads), written };
            }
            Task::Verify { exchange, written } if exchange.is_done() => {
                return Some(verify(exchange, written, &mut self.known[1]).map(|()| Done::Written));
            }
            Task::CountBefore(exchange) if exchange.is_done() => {
                return Some(Ok(Done::Committed { before: counters(exchange, 1) }));
            }
            Task::Count(exchange) if exchange.is_done() => return Some(Ok(Done::Counted(counters(exchange, 2)))),
            _ if self.is_silent(now) => return Some(Err(self.silent(silence))),
            Task::Commit { number, sent: Some(sent), .. } if now >= *sent + COMMIT_WAIT => {
                let number = *number;
                self.task = self.ask(number);
            }
            // The answer had the seal of the earlier configuration: the commit was lost.
            Task::Ask { exchange, .. } if exchange.is_done() => self.task = self.new_commit(),
            _ => return None,
        }
        self.proceed(now)
    }
}

impl Session {
    /// Takes a frame from the card's port, whole. Frames that are no answers of this card are ignored.
    pub fn receive(&mut self, frame: &[u8], now: Duration) {
        let Some((frame, seal)) = frame.split_last_chunk::<SEAL_BYTES>() else { return };
        let seal = Seal::of(u64::from_le_bytes(*seal));
        let Some(answer) = Control::of(frame) else { return };
        if !self.may_be(seal) {
            if seal == UNCONFIGURED && self.is_asked_for(answer) {
                self.was_silent = false;
                self.task = Task::Failed(SessionError::Unconfigured);
            }
            return;
        }
        match &mut self.task {
            Task::Commit { number, sent: Some(_), .. } => {
                if is_commit(answer, *number) {
                    (self.heard, self.was_silent) = (Some(now), false);
                    self.committed(seal);
                }
            }
            // The answer to the commit was late.
            Task::Ask { number, .. } if is_commit(answer, *number) => {
                (self.heard, self.was_silent) = (Some(now), false);
                self.committed(seal);
            }
            Task::Ask { exchange, .. } => {
                if exchange.receive(answer) == Heard::Answer {
                    (self.heard, self.was_silent) = (Some(now), false);
                    if self.is_written(seal) {
                        self.committed(seal);
                    }
                }
            }
            Task::Write(exchange)
            | Task::Verify { exchange, .. }
            | Task::CountBefore(exchange)
            | Task::Count(exchange) => match exchange.receive(answer) {
                Heard::Nothing => {}
                Heard::Answer => (self.heard, self.was_silent) = (Some(now), false),
                Heard::Refused(at) => {
                    let asked = asked(exchange.request(at));
                    self.task = Task::Failed(SessionError::Refused { asked });
                }
            },
            Task::None | Task::Commit { .. } | Task::Failed(_) => {}
        }
    }

    /// Whether a frame answers a request of the task.
    fn is_asked_for(&self, answer: Control<'_>) -> bool {
        match &self.task {
            Task::Commit { number, sent: Some(_), .. } => is_commit(answer, *number),
            Task::Ask { number, exchange } => is_commit(answer, *number) || exchange.waits_for(answer),
            Task::Write(exchange)
            | Task::Verify { exchange, .. }
            | Task::CountBefore(exchange)
            | Task::Count(exchange) => exchange.waits_for(answer),
            Task::None | Task::Commit { .. } | Task::Failed(_) => false,
        }
    }

    /// Whether an answer of this card may have this seal. Before the first commit the card has any, or none.
    fn may_be(&self, seal: Seal) -> bool {
        let control = Seal { control: true, answers: false, body: 0, ..seal };
        let known = self.active.is_none() || seal.token == self.token();
        seal == control && known
    }

    fn is_written(&self, seal: Seal) -> bool {
        let epoch = self.written.map(|written| written.configured.epoch);
        seal.token == self.token() && Some(seal.epoch) == epoch
    }

    /// The card has carried out the commit.
    fn committed(&mut self, seal: Seal) {
        if !self.is_written(seal) {
            // Which bank is active is not known, so both are written anew.
            self.known = Default::default();
            self.task = Task::Failed(SessionError::WrongSeal);
            return;
        }
        let before = self.active.map_or(0, |Active { counters, .. }| counters);
        self.active = self.written.take();
        self.known.swap(0, 1);
        self.task = Task::CountBefore(self.exchange(reads(memory::COUNTERS_BEFORE, before)));
    }
}

/// The number of the next control frame.
fn next(number: &mut u16) -> u16 {
    *number = number.wrapping_add(1);
    *number
}
