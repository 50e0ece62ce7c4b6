//! What the screen shows: the last snapshot, the rates since the one before, and what the operator has chosen. It
//! changes only by events, and knows the time only from its caller.

use crate::history::History;
use crate::input::Question;
use crate::rates::{Losses, Rates, is_restart};
use crate::rows::{self, Order, Row};
use crate::{Snapshot, text};
use std::time::Duration;
use weir_control::{Active, AttackEntry};

/// Rates are unknown if no snapshot comes for this time.
const STALE: Duration = Duration::from_secs(3);
/// How long a message stays.
const MESSAGE_TIME: Duration = Duration::from_secs(5);
/// For so long after its start, the screen says that Weir was restarted.
const RESTART_TIME: Duration = Duration::from_secs(30);

/// What does not change while the screen is open.
#[derive(Clone)]
pub struct Setup {
    /// Where the snapshots come from: the path of a socket or of a recording.
    pub from: String,
    /// Whether it is a recording.
    pub is_recording: bool,
    /// Whether colours are used.
    pub has_colour: bool,
    /// What `weir ctl attacks show` says about an attack.
    pub explain: fn(&AttackEntry) -> String,
}

/// What covers a part of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// The keys and the fields.
    Help,
    /// The filter is edited.
    Filter,
    /// An attack is explained.
    Explain {
        /// Its number.
        attack: u32,
        /// Lines that are scrolled away.
        scroll: usize,
    },
    /// A question.
    Ask(Question),
}

/// What is shown at the foot for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub text: String,
    pub is_problem: bool,
    since: Duration,
}

/// The histories of the last two minutes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histories {
    pub packets: History,
    pub passed: History,
    pub dropped: History,
    pub lost: History,
}

/// The model of the screen.
pub struct Model {
    pub(crate) setup: Setup,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) rates: Rates,
    pub(crate) histories: Histories,
    pub(crate) problem: Option<String>,
    pub(crate) overlay: Option<Overlay>,
    pub(crate) message: Option<Message>,
    pub(crate) filter: String,
    pub(crate) order: Order,
    /// The number of the selected attack; `None` for the first one.
    pub(crate) selected: Option<u32>,
    pub(crate) is_paused: bool,
    pub(crate) is_over: bool,
    pub(crate) is_done: bool,
    /// The last snapshot with an answer, also while the screen is paused.
    last: Option<Snapshot>,
    last_at: Duration,
    answered_at: Duration,
    restarted_at: Option<Duration>,
    now: Duration,
}

impl Model {
    /// A model that has seen nothing yet.
    pub fn new(setup: Setup) -> Self {
        Model {
            setup,
            snapshot: None,
            rates: Rates::default(),
            histories: Histories::default(),
            problem: None,
            overlay: None,
            message: None,
            filter: String::new(),
            order: Order::default(),
            selected: None,
            is_paused: false,
            is_over: false,
            is_done: false,
            last: None,
            last_at: Duration::ZERO,
            answered_at: Duration::ZERO,
            restarted_at: None,
            now: Duration::ZERO,
        }
    }

    /// Whether the operator has closed the screen.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// The time is now `now`. Messages that are older than their time leave.
    pub(crate) fn set_time(&mut self, now: Duration) {
        self.now = now;
        if self.message.as_ref().is_some_and(|message| now.saturating_sub(message.since) > MESSAGE_TIME) {
            self.message = None;
        }
    }

    /// Takes the next snapshot.
    pub(crate) fn take(&mut self, snapshot: Snapshot) {
        self.last_at = self.now;
        self.problem = snapshot.problem.as_ref().map(|problem| text::printable(problem));
        let rates = match &self.last {
            Some(last) if self.problem.is_none() => Rates::between(last, &snapshot),
            _ => Rates::default(),
        };
        if self.last.as_ref().is_some_and(|last| is_restart(last, &snapshot)) {
            self.restarted_at = Some(self.now);
        }
        // Between what was before Weir went away and what comes after it, nothing is known.
        if self.last.is_some() {
            self.histories.packets.push(rates.upstream.packets);
            self.histories.passed.push(rates.upstream.passed);
            self.histories.dropped.push(rates.upstream.dropped);
            self.histories.lost.push(rates.lost);
        }
        if !self.is_paused {
            self.rates = rates;
        }
        if self.problem.is_none() {
            self.answered_at = self.now;
            if !self.is_paused {
                self.snapshot = Some(snapshot.clone());
            }
            self.last = Some(snapshot);
        }
    }

    /// Whether Weir answers. The screen then shows what is, and otherwise what was.
    pub(crate) fn is_live(&self) -> bool {
        self.snapshot.is_some() && self.problem.is_none() && (self.setup.is_recording || !self.is_stale())
    }

    fn is_stale(&self) -> bool {
        self.now.saturating_sub(self.last_at) > STALE
    }

    /// How old the last answer is, if Weir does not answer any more.
    pub(crate) fn age(&self) -> Option<f64> {
        let answered = self.last.as_ref().map(|_| self.now.saturating_sub(self.answered_at));
        answered.filter(|_| !self.is_live()).map(|age| age.as_secs_f64())
    }

    /// Whether Weir was restarted a short time ago.
    pub(crate) fn was_restarted(&self) -> bool {
        self.restarted_at.is_some_and(|at| self.now.saturating_sub(at) < RESTART_TIME)
    }

    /// The current rates; `None` if Weir does not answer.
    pub(crate) fn current(&self) -> Option<&Rates> {
        self.is_live().then_some(&self.rates)
    }

    /// What Weir lost itself.
    pub(crate) fn losses(&self) -> Option<Losses> {
        self.snapshot.as_ref().and_then(Losses::of)
    }

    /// The attacks that are shown.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let attacks = self.snapshot.as_ref().and_then(|snapshot| snapshot.attacks.as_ref());
        attacks.map_or(Vec::new(), |attacks| rows::rows(&attacks.attacks, self.current(), &self.filter, self.order))
    }

    /// The attack with a number.
    pub(crate) fn attack(&self, number: u32) -> Option<&AttackEntry> {
        self.snapshot.as_ref()?.attacks.as_ref()?.attacks.iter().find(|attack| attack.attack == number)
    }

    /// The number of the selected attack: the first one, if none was selected or the selected one is not shown.
    pub(crate) fn selected_attack(&self) -> Option<u32> {
        let rows = self.rows();
        let selected = rows.iter().find(|row| Some(row.attack) == self.selected);
        selected.or(rows.first()).map(|row| row.attack)
    }

    /// Whether actions against an attack wait for `accept`.
    pub(crate) fn has_waiting(&self, number: u32) -> bool {
        self.attack(number).is_some_and(|attack| attack.actions.iter().any(|action| action.state == "proposed"))
    }

    pub(crate) fn select(&mut self, by: isize) {
        let rows = self.rows();
        let at = rows.iter().position(|row| Some(row.attack) == self.selected).unwrap_or(0);
        let at = at.saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|row| row.attack);
    }

    pub(crate) fn is_on_trial(&self) -> bool {
        self.snapshot.as_ref().and_then(|snapshot| snapshot.status.as_ref()?.confirm_left_s).is_some()
    }

    /// What a rollback activates; `None` if there is nothing.
    pub(crate) fn rollback_target(&self) -> Option<String> {
        let status = self.snapshot.as_ref()?.status.as_ref()?;
        let generation = status.rollback_to?;
        Some(text::printable(&Active { generation, posture: status.rollback_posture.clone() }.to_string()))
    }

    pub(crate) fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused
            && let Some(last) = &self.last
        {
            self.snapshot = Some(last.clone());
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.tell(text, false);
    }

    pub(crate) fn tell(&mut self, text: &str, is_problem: bool) {
        let text = text::printable(text.lines().next().unwrap_or_default());
        self.message = Some(Message { text, is_problem, since: self.now });
    }
}
