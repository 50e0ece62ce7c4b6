//! What is known of peace: baselines, headers to spare, and the fastest source.

use crate::attack::Attack;
use crate::baseline::{Baselines, Growth, LEARNING_WINDOWS, Pace};
use crate::header::Header;
use crate::learned::UsualRate;
use crate::measure::counts::Counts;
use crate::measure::entropy;
use crate::measure::{WINDOW_NS, Window};
use crate::prefix::Prefix;
use crate::reference::Reference;
use crate::unanswered;
use crate::victim::{Evidence, Suspect, Victims};
use serde::{Deserialize, Serialize};
use weir_abi::PacketClass;

/// Traffic without proof above this share, most of it from new sources, is not usual even if it was there first.
const STRANGE_UNPROVEN: f64 = 0.9;
const STRANGE_NEW: f64 = 0.5;
/// Answers without questions of a window that are strange: the floor of a host.
const STRANGE_ANSWERS: f64 = 25.0;
/// SYNs of a window that are strange if nearly none of them leads to a connection: 500 a second.
const STRANGE_SYNS: f64 = 125.0;
/// The rate of a source that is usual everywhere, packets a second: a third of the floor of a host.
const SOURCE_PPS: f64 = 33.0;
/// Sources that such answers have at least: a tunnel or a stream has one or two.
pub const ANSWERERS_MIN: usize = 8;

/// The knowledge of peace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Peace {
    /// Usual rates by prefix and class.
    pub baselines: Baselines,
    /// Headers of peaceful traffic.
    pub reference: Reference,
    /// The highest usual rate of a proven source.
    source: UsualRate,
    windows: u32,
}

impl Peace {
    /// Nothing is known. The seed is a secret.
    pub fn new(seed: u64) -> Self {
        Peace {
            baselines: Baselines::default(),
            reference: Reference::new(seed),
            source: UsualRate::default(),
            windows: 0,
        }
    }

    /// Whether too little was seen to know what is usual.
    pub fn is_beginning(&self) -> bool {
        self.windows < LEARNING_WINDOWS
    }

    /// The highest usual rate of a proven source, packets a second.
    pub fn source_pps(&self) -> f64 {
        self.source.pps()
    }

    /// Sets the highest usual rate of a proven source.
    pub fn set_source_pps(&mut self, pps: f64) {
        self.source.set(pps);
    }

    /// Forgets everything, and begins anew. Returns how many prefixes and headers that were.
    pub fn reset(&mut self) -> usize {
        self.source.set(0.0);
        self.windows = 0;
        self.baselines.reset(None) + self.reference.reset()
    }

    /// How long packets were seen, ns.
    pub fn seen_ns(&self) -> u64 {
        u64::from(self.windows) * WINDOW_NS
    }

    /// Whether a suspect counts. In the beginning, traffic counts only if it is not usual anywhere.
    pub fn believes(&self, suspect: &Suspect, window: &Window) -> bool {
        !self.is_beginning() || window.counts_of(suspect.prefix).is_some_and(|counts| is_strange(counts, window))
    }

    /// Learns from the prefixes that are in peace. In the beginning, what is there counts as peaceful.
    pub fn learn(&mut self, window: &Window, growth: &Growth, victims: &Victims, attacks: &[Attack]) {
        let is_beginning = self.is_beginning();
        let pace = if is_beginning { Pace::Follow } else { Pace::Slow };
        self.windows = self.windows.saturating_add(1);
        let is_attacked = |prefix: &Prefix| {
            let certain = attacks.iter().filter(|attack| attack.id.is_some());
            certain.into_iter().any(|attack| attack.victim.covers(prefix) || prefix.covers(&attack.victim))
        };
        let is_peaceful = |prefix: &Prefix| !is_attacked(prefix) && !victims.is_suspicious(prefix);
        for counts in &window.counts {
            if is_peaceful(&counts.prefix) || is_beginning && !is_strange(counts, window) {
                let pace = (pace, growth.of(&counts.prefix));
                self.baselines.learn(counts, window.seconds(), window.to_ns, pace);
            }
        }
        if !attacks.is_empty() {
            self.baselines.freeze(|prefix| !is_peaceful(prefix), window.to_ns);
        }
        self.reference.learn(window, |header| is_peaceful(&Prefix::of(header.is_ipv6, header.daddr, u8::MAX)));
        if attacks.is_empty() {
            // A source without answers is no example.
            let peaceful = window.heavy.iter().filter(|heavy| !unanswered::is_unanswered(heavy, window));
            let fastest = peaceful.map(|heavy| heavy.packets).max().unwrap_or(0);
            self.source.learn(fastest as f64 / window.seconds(), window.seconds(), pace, SOURCE_PPS);
        }
    }

    /// How evenly sources, ports and lengths of a sample are spread, against the reference.
    pub fn entropies(&self, sample: &[Header]) -> Vec<Evidence> {
        type Value = fn(&Header) -> u128;
        let fields: [(&str, Value); 3] = [
            ("entropy of sources", |header| header.saddr),
            ("entropy of ports", |header| u128::from(header.sport) << 16 | u128::from(header.dport)),
            ("entropy of lengths", |header| header.length.into()),
        ];
        let evidence = |(name, value): (&str, Value)| {
            let usual = entropy::normalised(self.reference.legitimate().map(value));
            Evidence {
                measure: name.to_owned(),
                value: entropy::normalised(sample.iter().map(value)),
                usual,
                threshold: None,
            }
        };
        fields.map(evidence).to_vec()
    }
}

fn is_strange(counts: &Counts, window: &Window) -> bool {
    let total = counts.total() as f64;
    let is_new = counts.new_sources as f64 >= total * STRANGE_NEW;
    let is_unproven = counts.unproven_total() as f64 >= total * STRANGE_UNPROVEN;
    is_unproven && is_new || has_strange_answers(counts) || has_strange_syns(counts, window)
}

/// Whether nearly no SYN to a host leads to a connection, and there are more of them than packets of connections. A net
/// receives such SYNs all day. Samples seldom show the packet that proves a SYN.
fn has_strange_syns(counts: &Counts, window: &Window) -> bool {
    let syn = PacketClass::Syn as usize;
    let unproven = counts.unproven[syn];
    let are_most =
        unproven as f64 >= counts.packets[syn] as f64 * STRANGE_UNPROVEN && unproven >= counts.proven_total();
    let is_certain = counts.prefix.is_host() && window.sampling.scale() == 1.0;
    is_certain && are_most && unproven as f64 >= STRANGE_SYNS
}

/// Whether a host gets answers without questions at a rate that is not usual anywhere. Whether they look as answers do
/// is for signatures to say.
fn has_strange_answers(counts: &Counts) -> bool {
    let answers = [PacketClass::UdpService, PacketClass::Fragment, PacketClass::SynAck].map(|class| class as usize);
    let sum = |of: &[u64; PacketClass::COUNT]| answers.iter().map(|&class| of[class]).sum::<u64>() as f64;
    let unproven = sum(&counts.unproven);
    unproven >= sum(&counts.packets) * STRANGE_UNPROVEN && unproven >= STRANGE_ANSWERS
}
