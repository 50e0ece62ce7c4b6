//! Headers of peaceful traffic, which signatures must spare.
//!
//! It grows only in peace, so an attack does not teach it. Headers of real sources are taken at once. All others wait:
//! if their destination comes under suspicion meanwhile, they are thrown away, because an attack begins before it is
//! detected. In the first minute of a life those that answers vouch for wait for a few seconds only: nothing else is
//! known of services without connections. One source has a bounded share, so an attacker who prepares for days poisons
//! little of it.

use crate::header::Header;
use crate::measure::Window;
use crate::measure::sample::Reservoir;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// Headers of real sources.
const REAL: usize = 4096;
/// Headers of plausible sources, those that answers vouch for, and those without proof, such as single datagrams: each.
const OTHERS: usize = 2048;
/// First packets of conversations, and datagrams that were answered: each.
const FIRST: usize = 1024;
/// Headers of one window that are offered, of each kind.
const OFFERED: usize = 64;
/// After so many offers, half of the headers are renewed in an hour of as many offers as there can be, and in a longer
/// time of fewer: 64 in each of 14,400 windows, divided by ln 2.
const FADING: u64 = 1_330_000;
/// Headers of one source in a window that are offered: an eighth.
const OFFERED_OF_SOURCE: usize = OFFERED / 8;
/// The time that others wait, and the time that those that answers vouch for wait in the beginning: longer than
/// detection takes.
const WAIT_NS: u64 = 60_000_000_000;
const SHORT_WAIT_NS: u64 = 5_000_000_000;
/// Headers that wait at once.
const WAITING_MAX: usize = 1 << 15;

/// What a header is taken for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Kind {
    Plausible,
    Vouched,
    Unproven,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    until_ns: u64,
    kind: Kind,
    header: Header,
}

/// How many headers of each kind are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Of real sources.
    pub real: usize,
    /// Of plausible sources.
    pub plausible: usize,
    /// Of sources that answers vouched for.
    pub vouched: usize,
    /// Without proof.
    pub unproven: usize,
    /// First packets of conversations.
    pub opening: usize,
    /// Datagrams that were answered.
    pub answered: usize,
}

/// Samples of the peace so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reference {
    real: Reservoir<Header>,
    plausible: Reservoir<Header>,
    vouched: Reservoir<Header>,
    unproven: Reservoir<Header>,
    opening: Reservoir<Header>,
    answered: Reservoir<Header>,
    waiting: VecDeque<Waiting>,
    waiting_shortly: VecDeque<Waiting>,
    /// When the first window ended, ns.
    since_ns: Option<u64>,
}

impl Reference {
    /// Nothing is known yet.
    pub fn new(seed: u64) -> Self {
        Reference {
            real: Reservoir::fading(REAL, seed, FADING),
            plausible: Reservoir::fading(OTHERS, seed ^ 1, FADING),
            vouched: Reservoir::fading(OTHERS, seed ^ 5, FADING),
            unproven: Reservoir::fading(OTHERS, seed ^ 2, FADING),
            opening: Reservoir::fading(FIRST, seed ^ 3, FADING),
            answered: Reservoir::fading(FIRST, seed ^ 4, FADING),
            waiting: VecDeque::new(),
            waiting_shortly: VecDeque::new(),
            since_ns: None,
        }
    }

    /// How many headers are kept.
    pub fn sizes(&self) -> Sizes {
        let size = |of: &Reservoir<Header>| of.kept().len();
        Sizes {
            real: size(&self.real),
            plausible: size(&self.plausible),
            vouched: size(&self.vouched),
            unproven: size(&self.unproven),
            opening: size(&self.opening),
            answered: size(&self.answered),
        }
    }

    /// Forgets everything, and begins anew. Returns how many headers were kept.
    pub fn reset(&mut self) -> usize {
        let Sizes { real, plausible, vouched, unproven, opening, answered } = self.sizes();
        for of in [
            &mut self.real,
            &mut self.plausible,
            &mut self.vouched,
            &mut self.unproven,
            &mut self.opening,
            &mut self.answered,
        ] {
            of.clear();
        }
        self.waiting.clear();
        self.waiting_shortly.clear();
        self.since_ns = None;
        real + plausible + vouched + unproven + opening + answered
    }

    /// Learns from a window. Packets to destinations that are not peaceful are left out.
    pub fn learn(&mut self, window: &Window, is_peaceful: impl Fn(&Header) -> bool) {
        bounded(&window.real, &is_peaceful).for_each(|header| self.real.offer(*header));
        bounded(&window.opening, &is_peaceful).for_each(|header| self.opening.offer(*header));
        bounded(&window.answered, &is_peaceful).for_each(|header| self.answered.offer(*header));
        let until_ns = window.to_ns + WAIT_NS;
        let is_young = window.to_ns.saturating_sub(*self.since_ns.get_or_insert(window.to_ns)) < WAIT_NS;
        for (headers, kind) in [
            (&window.plausible, Kind::Plausible),
            (&window.settled, Kind::Vouched),
            (&window.vouched, Kind::Vouched),
            (&window.unproven, Kind::Unproven),
            (&window.streamed, Kind::Unproven),
        ] {
            for header in bounded(headers, &is_peaceful) {
                let header = *header;
                match kind {
                    Kind::Vouched if is_young => {
                        let until_ns = window.to_ns + SHORT_WAIT_NS;
                        self.waiting_shortly.push_back(Waiting { until_ns, kind, header });
                    }
                    _ => self.waiting.push_back(Waiting { until_ns, kind, header }),
                }
            }
        }
        let excess = self.waiting.len().saturating_sub(WAITING_MAX);
        self.waiting.drain(..excess);
        let is_over = |first: &mut Waiting| first.until_ns <= window.to_ns;
        while let Some(first) =
            self.waiting_shortly.pop_front_if(is_over).or_else(|| self.waiting.pop_front_if(is_over))
        {
            if is_peaceful(&first.header) {
                let reservoir = match first.kind {
                    Kind::Plausible => &mut self.plausible,
                    Kind::Vouched => &mut self.vouched,
                    Kind::Unproven => &mut self.unproven,
                };
                reservoir.offer(first.header);
            }
        }
    }

    /// Learns legitimate packets that an action has hit by mistake.
    pub fn learn_mistakes(&mut self, headers: &[Header]) {
        headers.iter().for_each(|header| self.real.offer(*header));
    }

    /// Headers of real and plausible sources, and those that answers vouched for in peace: legitimate packets.
    pub fn legitimate(&self) -> impl Iterator<Item = &Header> {
        self.real.kept().iter().chain(self.plausible.kept()).chain(self.vouched.kept())
    }

    /// Headers that begin what a host serves: first packets of conversations, and datagrams that it has answered. They
    /// are few among all packets, and without them there is no conversation.
    pub fn first(&self) -> impl Iterator<Item = &Header> {
        self.opening.kept().iter().chain(self.answered.kept())
    }

    /// Headers without proof. They are usual, but a slow ramp can have put them there.
    pub fn usual(&self) -> impl Iterator<Item = &Header> {
        self.unproven.kept().iter()
    }
}

/// The peaceful headers of a window, not too many of one source.
fn bounded<'a>(headers: &'a [Header], is_peaceful: &'a impl Fn(&Header) -> bool) -> impl Iterator<Item = &'a Header> {
    let mut of_source: HashMap<u128, usize> = HashMap::new();
    let is_of_few = move |header: &&Header| {
        let count = of_source.entry(header.saddr).or_default();
        *count += 1;
        *count <= OFFERED_OF_SOURCE
    };
    headers.iter().filter(|header| is_peaceful(header)).filter(is_of_few).take(OFFERED)
}
