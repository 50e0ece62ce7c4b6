//! Carries out actions on headers, for recordings and simulations.

use crate::action::{Action, ActionId, Hit, Measure};
use crate::class;
use crate::header::Header;
use crate::measure::{Belongs, Pickup, Source};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A limit may pass this many seconds of its rate at once.
const BURST_S: f64 = 1.0;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Active {
    action: Action,
    hit: Hit,
    /// Packets that a limit may pass now, and when that was computed.
    tokens: f64,
    time_ns: u64,
}

/// The actions that are carried out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Filter {
    active: Vec<Active>,
    /// SYN proxies among them.
    proxies: usize,
}

impl Filter {
    /// Begins to carry out an action.
    pub fn apply(&mut self, action: Action, now_ns: u64) {
        let tokens = if let Measure::Limit(_, pps) = action.measure { pps * BURST_S } else { 0.0 };
        let hit = Hit::none(action.id);
        self.proxies += usize::from(is_proxy(&action));
        self.active.push(Active { action, hit, tokens, time_ns: now_ns });
    }

    /// Ends an action. Returns whether it was carried out.
    pub fn undo(&mut self, id: ActionId) -> bool {
        let before = self.active.len();
        self.active.retain(|active| active.action.id != id);
        self.proxies = self.active.iter().filter(|active| is_proxy(&active.action)).count();
        self.active.len() < before
    }

    /// The action that drops a packet. `belongs` says what the packet belongs to, and is asked only for packets that
    /// are dropped.
    pub fn drops(&mut self, header: &Header, now_ns: u64, belongs: impl FnOnce() -> Belongs) -> Option<ActionId> {
        let active = self.active.iter_mut().find_map(|active| active.drops(header, now_ns).then_some(active))?;
        active.hit.packets += 1;
        active.hit.classes[class::of(header) as usize] += 1;
        match belongs() {
            Belongs::Nowhere => {}
            Belongs::Vouched => active.hit.vouched += 1,
            Belongs::Stream => active.hit.streamed += 1,
            Belongs::Conversation => active.hit.proven += 1,
        }
        Some(active.action.id)
    }

    /// The SYN proxy that a packet meets: the strictest one, and what it has hit.
    pub fn syn_proxy(&mut self, header: &Header) -> Option<(Pickup, &mut Hit)> {
        if self.proxies == 0 || !class::is_tcp(class::of(header)) {
            return None;
        }
        let proxies = self.active.iter_mut().filter_map(|active| match active.action.measure {
            Measure::SynProxy(victim, pickup) if victim.contains(header.is_ipv6, header.daddr) => {
                Some((pickup, &mut active.hit))
            }
            _ => None,
        });
        proxies.min_by_key(|(pickup, _)| *pickup == Pickup::On)
    }

    /// Counts packets of sources that a card has dropped at the actions that block the sources.
    pub fn hit_by_card(&mut self, dropped: Vec<(Source, u64)>) {
        let blocks = self.active.iter_mut().filter_map(|active| match active.action.measure {
            Measure::Block(source, _) => Some((source, &mut active.hit)),
            _ => None,
        });
        let mut blocks: HashMap<Source, &mut Hit> = blocks.collect();
        for (source, packets) in dropped {
            if let Some(hit) = blocks.get_mut(&source) {
                hit.by_card += packets;
            }
        }
    }

    /// The counter of an action's rule has counted packets that it dropped.
    pub fn count_by_rule(&mut self, id: ActionId, packets: u64) {
        let active = self.active.iter_mut().find(|active| active.action.id == id);
        active.into_iter().for_each(|active| *active.hit.counted.get_or_insert_default() += packets);
    }

    /// What each action has hit since the last call.
    pub fn take_hits(&mut self) -> Vec<Hit> {
        let take = |active: &mut Active| std::mem::replace(&mut active.hit, Hit::none(active.action.id));
        self.active.iter_mut().map(take).collect()
    }
}

fn is_proxy(action: &Action) -> bool {
    matches!(action.measure, Measure::SynProxy(..))
}

impl Active {
    fn drops(&mut self, header: &Header, now_ns: u64) -> bool {
        match &self.action.measure {
            Measure::Drop(signature) => signature.matches(header),
            Measure::Limit(signature, pps) => {
                if !signature.matches(header) {
                    return false;
                }
                let passed_s = now_ns.saturating_sub(self.time_ns) as f64 / 1e9;
                self.tokens = (self.tokens + passed_s * pps).min(pps * BURST_S);
                self.time_ns = self.time_ns.max(now_ns);
                let is_over = self.tokens < 1.0;
                if !is_over {
                    self.tokens -= 1.0;
                }
                is_over
            }
            Measure::Block(source, _) => *source == (header.is_ipv6, header.saddr),
            Measure::Posture(_) | Measure::SynProxy(..) => false,
        }
    }
}
