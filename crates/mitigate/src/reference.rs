//! Headers of peaceful traffic, which signatures must spare.
//!
//! It grows only in peace, so an attack does not teach it. Headers of real sources are taken at once. All others wait:
//! if their destination comes under suspicion meanwhile, they are thrown away, because an attack begins before it is
//! detected. One source has a bounded share, so an attacker who prepares for days poisons little of it.

use crate::header::Header;
use crate::measure::Window;
use crate::measure::sample::Reservoir;
use std::collections::{HashMap, VecDeque};

/// Headers of real sources.
const REAL: usize = 4096;
/// Headers of plausible sources, and those without proof, such as single datagrams: each.
const OTHERS: usize = 2048;
/// First packets of conversations, and datagrams that were answered: each.
const FIRST: usize = 1024;
/// Headers of one window that are offered, of each kind.
const OFFERED: usize = 64;
/// Headers of one source in a window that are offered: an eighth.
const OFFERED_OF_SOURCE: usize = OFFERED / 8;
/// The time that others wait.
const WAIT_NS: u64 = 60_000_000_000;
/// Headers that wait at once.
const WAITING_MAX: usize = 1 << 15;

#[derive(Clone, Debug)]
struct Waiting {
    until_ns: u64,
    is_plausible: bool,
    header: Header,
}

/// Samples of the peace so far.
#[derive(Clone, Debug)]
pub struct Reference {
    real: Reservoir<Header>,
    plausible: Reservoir<Header>,
    unproven: Reservoir<Header>,
    opening: Reservoir<Header>,
    answered: Reservoir<Header>,
    waiting: VecDeque<Waiting>,
}

impl Reference {
    /// Nothing is known yet.
    pub fn new(seed: u64) -> Self {
        Reference {
            real: Reservoir::new(REAL, seed),
            plausible: Reservoir::new(OTHERS, seed ^ 1),
            unproven: Reservoir::new(OTHERS, seed ^ 2),
            opening: Reservoir::new(FIRST, seed ^ 3),
            answered: Reservoir::new(FIRST, seed ^ 4),
            waiting: VecDeque::new(),
        }
    }

    /// Learns from a window. Packets to destinations that are not peaceful are left out.
    pub fn learn(&mut self, window: &Window, is_peaceful: impl Fn(&Header) -> bool) {
        bounded(&window.real, &is_peaceful).for_each(|header| self.real.offer(*header));
        bounded(&window.opening, &is_peaceful).for_each(|header| self.opening.offer(*header));
        bounded(&window.answered, &is_peaceful).for_each(|header| self.answered.offer(*header));
        let until_ns = window.to_ns + WAIT_NS;
        for (headers, is_plausible) in [(&window.plausible, true), (&window.unproven, false), (&window.streamed, false)]
        {
            let waiting = |header: &Header| Waiting { until_ns, is_plausible, header: *header };
            self.waiting.extend(bounded(headers, &is_peaceful).map(waiting));
        }
        let excess = self.waiting.len().saturating_sub(WAITING_MAX);
        self.waiting.drain(..excess);
        while let Some(first) = self.waiting.pop_front_if(|first| first.until_ns <= window.to_ns) {
            if is_peaceful(&first.header) {
                let reservoir = if first.is_plausible { &mut self.plausible } else { &mut self.unproven };
                reservoir.offer(first.header);
            }
        }
    }

    /// Learns legitimate packets that an action has hit by mistake.
    pub fn learn_mistakes(&mut self, headers: &[Header]) {
        headers.iter().for_each(|header| self.real.offer(*header));
    }

    /// Headers of real and plausible sources: legitimate packets.
    pub fn legitimate(&self) -> impl Iterator<Item = &Header> {
        self.real.kept().iter().chain(self.plausible.kept())
    }

    /// Headers that begin what a host serves: first packets of conversations, and datagrams that it has answered. They are
    /// few among all packets, and without them there is no conversation.
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
