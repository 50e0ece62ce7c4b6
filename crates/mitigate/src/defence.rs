//! Measurement, decisions and the actions in force, joined: packets in, decisions out.
//!
//! Packets are read in front of the actions. Packets that an action in force drops are not measured, so measurements
//! see the rest. Each action counts how many of its packets belong to proven sources.

use crate::action::{Action, ActionId, Decision};
use crate::class;
use crate::excerpt::{Excerpt, Excerpts, Frame};
use crate::filter::Filter;
use crate::header::Header;
use crate::held::HeldBack;
use crate::measure::observed::Observed;
use crate::measure::sampling::Sampling;
use crate::measure::{Belongs, Distrusted, Extractor, Handshake, Proxied, Source, WINDOW_NS, Way, Window};
use crate::mitigator::{Mitigator, Settings};
use crate::prefix::Prefix;
use crate::victim::SPAN_NS;
use serde::{Deserialize, Serialize};
use weir_abi::PacketClass;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet passes.
    Passes,
    /// An action drops it.
    Drops,
    /// A SYN proxy has answered it, and lets it pass if the handshake completes.
    Waits(Handshake),
    /// The packet passes, and so do the SYNs of the handshake.
    Completes(Handshake),
}

impl Fate {
    /// Whether it is dropped for now: a packet that waits passes only later, if it does.
    pub fn is_dropped(self) -> bool {
        matches!(self, Fate::Drops | Fate::Waits(_))
    }
}

/// Mitigation with all that it knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Defence {
    extractor: Extractor,
    mitigator: Mitigator,
    filter: Filter,
    /// Packets of sources that a card has dropped in this window.
    by_card: Vec<(Source, u64)>,
    /// What was counted of all packets, if anything counts them.
    observed: Option<Observed>,
    /// When an action began or ended to drop packets, ns.
    changed_ns: u64,
    #[serde(skip)]
    excerpts: Option<Excerpts>,
}

impl Defence {
    /// Nothing was seen. Without prefixes inside, every destination is protected. The seed is a secret.
    pub fn new(inside: Vec<Prefix>, settings: Settings, seed: u64) -> Self {
        Defence {
            extractor: Extractor::new(inside, seed, 0),
            mitigator: Mitigator::new(settings, seed),
            filter: Filter::default(),
            by_card: Vec::new(),
            observed: None,
            changed_ns: 0,
            excerpts: None,
        }
    }

    /// This defence, which another program has handed over, with the settings of this program. The mode stays, because
    /// an operator may have set it. Packets around attacks were not handed over.
    #[must_use]
    pub fn continued(mut self, inside: Vec<Prefix>, settings: Settings) -> Self {
        self.extractor.protect_inside(inside);
        self.mitigator.continue_with(settings);
        self
    }

    /// Keeps packets around attacks from now on. The seed is a secret.
    pub fn keep_excerpts(&mut self, seed: u64) {
        self.excerpts = Some(Excerpts::new(seed));
    }

    /// The excerpts that are complete.
    pub fn take_excerpts(&mut self) -> Vec<Excerpt> {
        self.excerpts.as_mut().map(Excerpts::take).unwrap_or_default()
    }

    /// Completes all excerpts, because nothing follows.
    pub fn finish_excerpts(&mut self, now_ns: u64) {
        self.excerpts.iter_mut().for_each(|excerpts| excerpts.finish(now_ns));
    }

    /// Attacks that have no excerpt, because there were too many at once.
    pub fn excerpts_left_out(&self) -> u64 {
        self.excerpts.as_ref().map_or(0, Excerpts::left_out)
    }

    /// What is known of attacks.
    pub fn mitigator(&self) -> &Mitigator {
        &self.mitigator
    }

    /// What is known of attacks, for operators. What begins or ends is told to [`Defence::enforce`] and
    /// [`Defence::lift`].
    pub fn mitigator_mut(&mut self) -> &mut Mitigator {
        &mut self.mitigator
    }

    /// What measures.
    pub fn extractor(&self) -> &Extractor {
        &self.extractor
    }

    /// Forgets the sources that are known to be real. Returns how many there were.
    pub fn forget_sources(&mut self) -> usize {
        self.extractor.forget_sources()
    }

    /// Sets the time of the first packet, or of the first after a gap.
    pub fn begin(&mut self, now_ns: u64) {
        self.extractor.begin(now_ns);
    }

    /// The way of a packet between the protected prefixes and the rest.
    pub fn way(&self, header: &Header) -> Way {
        self.extractor.way(header)
    }

    /// Takes a packet, with the packet itself for excerpts, and says what actions in force do with it. Times do not go
    /// back.
    pub fn see(&mut self, header: &Header, frame: Option<Frame<'_>>, now_ns: u64) -> Fate {
        let way = self.extractor.way(header);
        let is_outgoing = way == Way::Out;
        let (fate, is_proven) = match way {
            Way::Out => (Fate::Passes, self.extractor.see(header, now_ns)),
            Way::In | Way::Both | Way::Forged | Way::Elsewhere => self.judge(header, now_ns),
        };
        if let (Some(excerpts), Some(frame)) = (&mut self.excerpts, frame) {
            excerpts.see(header, frame, now_ns, is_outgoing, is_proven);
        }
        fate
    }

    /// What actions do with a packet to the protected network, and whether its source is proven.
    fn judge(&mut self, header: &Header, now_ns: u64) -> (Fate, bool) {
        let extractor = &mut self.extractor;
        let mut belongs = Belongs::Nowhere;
        let dropped = self.filter.drops(header, now_ns, || {
            belongs = extractor.see_dropped(header, now_ns);
            belongs
        });
        if dropped.is_some() {
            return (Fate::Drops, belongs == Belongs::Conversation);
        }
        let Some((pickup, hit)) = self.filter.syn_proxy(header) else {
            return (Fate::Passes, extractor.see(header, now_ns));
        };
        match extractor.see_proxied(header, now_ns, pickup) {
            Proxied::Waits(handshake) => {
                hit.packets += 1;
                hit.classes[class::of(header) as usize] += 1;
                (Fate::Waits(handshake), false)
            }
            Proxied::Refused => {
                hit.packets += 1;
                hit.classes[class::of(header) as usize] += 1;
                (Fate::Drops, false)
            }
            Proxied::Completes { handshake, syns, is_proven } => {
                hit.completed += 1;
                hit.released += u64::from(syns);
                (Fate::Completes(handshake), is_proven)
            }
            Proxied::Passes { is_proven } => (Fate::Passes, is_proven),
        }
    }

    /// A card has dropped packets of a source. They did not come here, and count for the action that blocks the source.
    pub fn see_by_card(&mut self, source: Source, packets: u64) {
        self.by_card.push((source, packets));
    }

    /// The counter of an action's rule has counted packets that it dropped. It counts all packets, whatever is sampled.
    pub fn see_by_rule(&mut self, id: ActionId, packets: u64) {
        self.filter.count_by_rule(id, packets);
    }

    /// The datapath has held packets back in this window.
    pub fn see_held_back(&mut self, held: HeldBack) {
        self.mitigator.see_held_back(held);
    }

    /// Takes exact counts of all packets, which hold for the next windows. Counts of a time before an action began or
    /// ended are about other traffic, and are ignored.
    pub fn observe(&mut self, observed: Observed) {
        self.observed = Some(observed).filter(|observed| observed.from_ns >= self.changed_ns);
    }

    /// The time of the last change of what is dropped.
    fn change(&mut self, now_ns: u64) {
        self.changed_ns = self.changed_ns.max(now_ns);
        self.observed = None;
    }

    /// Ends a window. `sampling` says which part of its packets was seen. The caller carries the decisions out, and
    /// tells what is in force then.
    pub fn end_window(&mut self, now_ns: u64, sampling: Sampling) -> Vec<Decision> {
        let mut window = self.extractor.close(now_ns);
        if !sampling.is_blind() {
            self.extractor.scale(sampling.scale());
        }
        window.complete(sampling, self.observed.as_ref());
        self.filter.hit_by_card(std::mem::take(&mut self.by_card));
        let hits = self.filter.take_hits();
        let extractor = &self.extractor;
        let decisions = self.mitigator.decide(&window, &hits, &|source| extractor.is_known(source));
        self.note_excerpts(&decisions, now_ns);
        decisions
    }

    fn note_excerpts(&mut self, decisions: &[Decision], now_ns: u64) {
        let Some(excerpts) = &mut self.excerpts else { return };
        excerpts.end_window(now_ns);
        for decision in decisions {
            match decision {
                Decision::Detected { attack, victim, .. } => excerpts.begin(*attack, *victim, now_ns),
                Decision::Ended(attack) => excerpts.end(*attack),
                Decision::VectorBegan { .. }
                | Decision::VectorEnded { .. }
                | Decision::Apply(_)
                | Decision::Propose(_)
                | Decision::Undo(..) => {}
            }
        }
    }

    /// Ends a recording that is too short for two windows with excess. Its packets are an attack only if they are one
    /// even if nothing else came for as long as the second window may be away. Nothing is carried out. Returns the
    /// prefix and the class with the most packets without proof.
    pub fn end_short(&mut self, now_ns: u64) -> Option<(Prefix, PacketClass, u64)> {
        let mut window = self.extractor.close(now_ns);
        let busiest = window.busiest();
        window.spread(SPAN_NS / WINDOW_NS);
        // The second window repeats the first one, so its packets must not count as samples again.
        let (unproven, strata, streamed, streamed_strata) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let to_ns = window.to_ns + 1;
        let again = Window { to_ns, unproven, strata, streamed, streamed_strata, ..window.clone() };
        for window in [window, again] {
            let decisions = self.mitigator.decide(&window, &[], &|_| false);
            self.note_excerpts(&decisions, now_ns);
        }
        busiest
    }

    /// Begins a window after the decisions of the previous one. Sources that became plausible in an attack are not
    /// trusted.
    pub fn begin_window(&mut self) {
        let current = self.mitigator.attacks().filter(|attack| !attack.is_over);
        self.extractor.distrust(current.map(|attack| Distrusted {
            prefix: attack.victim,
            detected_ns: attack.from_ns,
            is_unused: attack.is_unused,
        }));
    }

    /// An action is in force from now on.
    pub fn enforce(&mut self, action: Action, now_ns: u64) {
        self.filter.apply(action, now_ns);
        self.change(now_ns);
    }

    /// An action is not in force any more.
    pub fn lift(&mut self, id: ActionId, now_ns: u64) {
        if self.filter.undo(id) {
            self.change(now_ns);
        }
    }
}
