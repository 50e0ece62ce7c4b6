//! One attack: what is known of it, and what was done.

use crate::action::{Action, ActionId, AttackId, Ending, Measure};
use crate::class;
use crate::header::Header;
use crate::measure::{Source, Window};
use crate::prefix::Prefix;
use crate::signature::Signature;
use crate::stored::StoredClass;
use crate::vector::Vectors;
use crate::victim::Evidence;
use serde::{Deserialize, Serialize};
use weir_abi::PacketClass;

/// Signatures are learned from packets of this long at most. An attack that changes is learned anew.
const POOL_NS: u64 = 2_000_000_000;
/// At a low rate, packets of this time, until there are enough.
const LONG_POOL_NS: u64 = 8_000_000_000;
const POOL_MIN: usize = 64;
/// Headers that are kept of these packets.
const POOL_MAX: usize = 4096;
/// Headers of the victim's proven sources that are kept.
const PROVEN_MAX: usize = 2048;
/// Headers of the victim's spared streams that are kept.
const STREAMED_MAX: usize = 256;
/// Ended actions that an attack lists.
const ENDED_MAX: usize = 64;
/// Headers of the last window with enough of them that are kept to describe the attack.
const LATEST_MAX: usize = 256;
/// A window with fewer headers describes nothing.
const LATEST_MIN: usize = 16;
/// With fewer headers of the victim in the sample of all, the sample with equal room for each destination is taken.
const ENOUGH: usize = 64;

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// The action waits for approval.
    Proposed,
    /// The action is carried out.
    Active,
    /// The action is over.
    Ended(Ending),
}

/// An action of an attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The action.
    pub action: Action,
    /// The class of the vector that it is for.
    #[serde(with = "StoredClass")]
    pub class: PacketClass,
    /// What became of it.
    pub state: State,
    /// When it was decided, ns.
    pub since_ns: u64,
    /// When it last hit packets, ns.
    pub last_hit_ns: u64,
    /// Packets that it has hit, an estimate if packets are sampled.
    pub packets: u64,
    /// Packets of proven sources that it has hit.
    pub proven: u64,
    /// Packets of proven sources that it has hit and that were seen.
    pub proven_seen: u64,
    /// Packets that it has hit and that answers vouch for.
    pub vouched: u64,
    /// Packets that answers vouch for and that were seen.
    pub vouched_seen: u64,
    /// Packets of proven sources that have reached the victim since.
    pub proven_passed: u64,
    /// Connections that it has let pass, if it is a SYN proxy.
    pub completed: u64,
    /// Packets a second that it hit in the last window.
    pub rate_pps: f64,
    /// Windows in a row in which nearly all that it hit were streams that would be spared.
    pub(crate) harmless_windows: u32,
    /// Why it could not be carried out.
    pub problem: Option<String>,
    /// How often in a row that was so.
    pub tries: u32,
}

impl Record {
    pub(crate) fn new(action: Action, class: PacketClass, state: State, now_ns: u64) -> Self {
        Record {
            action,
            class,
            state,
            since_ns: now_ns,
            last_hit_ns: now_ns,
            packets: 0,
            proven: 0,
            proven_seen: 0,
            vouched: 0,
            vouched_seen: 0,
            proven_passed: 0,
            completed: 0,
            rate_pps: 0.0,
            harmless_windows: 0,
            problem: None,
            tries: 0,
        }
    }
}

/// An attack, or a suspicion that may become one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attack {
    /// Its number, once it is certain.
    pub id: Option<AttackId>,
    /// The victim.
    pub victim: Prefix,
    /// The class with the largest excess when it was detected.
    #[serde(with = "StoredClass")]
    pub class: PacketClass,
    /// When it was detected, ns.
    pub from_ns: u64,
    /// When it was last seen, ns.
    pub last_ns: u64,
    /// Whether the victim had no users before the attack. Then plausible sources are not trusted, and packets that no
    /// signature covers are limited.
    pub is_unused: bool,
    /// Whether no user of the victim is known. This says something only after enough time of observation.
    pub(crate) may_be_unused: bool,
    /// Whether it is over.
    pub is_over: bool,
    /// Whether an operator has removed or dismissed an action. Then nothing harder is tried.
    pub is_overruled: bool,
    /// Whether an operator has removed an action. Then all further ones wait, in every mode.
    pub waits: bool,
    /// The highest rate of packets without proof, packets a second.
    pub peak_pps: f64,
    /// What exceeded which threshold when it was detected: also what belongs to further vectors.
    pub evidence: Vec<Evidence>,
    /// What it consists of. The first vector has the attack's class.
    pub vectors: Vectors,
    /// What was done, in order.
    pub records: Vec<Record>,
    /// Signatures that hit legitimate packets, or that the operator did not want.
    pub(crate) refused: Vec<Signature>,
    /// Windows until signatures are learned again, and how often learning has failed in a row.
    pub(crate) pause: u32,
    pub(crate) failures: u32,
    /// How often a posture against it has ended because nothing showed that the attack went on.
    pub(crate) lifted: u32,
    /// Classes that are known to be no part of what the victim does.
    pub(crate) foreign: usize,
    /// The rest that could not be learned, packets a second.
    pub(crate) failed_pps: f64,
    /// The mean of the rest over some seconds, packets a second.
    pub(crate) rest_pps: f64,
    pool: Vec<(u64, Header)>,
    proven: Vec<Header>,
    streamed: Vec<Header>,
    latest: Vec<Header>,
}

impl Attack {
    /// What kind of attack it is.
    pub fn kind(&self) -> &'static str {
        class::attack(self.class)
    }

    /// A suspicion.
    pub(crate) fn new(victim: Prefix, class: PacketClass, now_ns: u64) -> Self {
        Attack {
            id: None,
            victim,
            class,
            from_ns: now_ns,
            last_ns: now_ns,
            is_unused: false,
            may_be_unused: false,
            is_over: false,
            is_overruled: false,
            waits: false,
            peak_pps: 0.0,
            evidence: Vec::new(),
            vectors: Vectors::default(),
            records: Vec::new(),
            refused: Vec::new(),
            pause: 0,
            failures: 0,
            lifted: 0,
            foreign: 0,
            failed_pps: 0.0,
            rest_pps: 0.0,
            pool: Vec::new(),
            proven: Vec::new(),
            streamed: Vec::new(),
            latest: Vec::new(),
        }
    }

    /// The actions that are carried out or wait.
    pub fn standing(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| !matches!(record.state, State::Ended(_)))
    }

    pub(crate) fn standing_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.records.iter_mut().filter(|record| !matches!(record.state, State::Ended(_)))
    }

    pub(crate) fn record_mut(&mut self, id: ActionId) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.action.id == id)
    }

    /// The class that most of the kept headers have that a signature covers and no action does.
    pub(crate) fn class_of(&self, signature: &Signature) -> Option<PacketClass> {
        let mut counts = [0usize; PacketClass::COUNT];
        let pool = self.pool();
        pool.iter().filter(|header| signature.matches(header)).for_each(|one| counts[class::of(one) as usize] += 1);
        let most = PacketClass::ALL.into_iter().max_by_key(|&class| counts[class as usize])?;
        (counts[most as usize] > 0).then_some(most)
    }

    /// Forgets the oldest ended actions, so that an attack that lasts takes no more memory.
    pub(crate) fn bound_records(&mut self) {
        let ended = self.records.iter().filter(|record| matches!(record.state, State::Ended(_))).count();
        let mut excess = ended.saturating_sub(ENDED_MAX);
        self.records.retain(|record| {
            let goes = excess > 0 && matches!(record.state, State::Ended(_));
            excess -= usize::from(goes);
            !goes
        });
    }

    /// Whether a signature, or one that is nearly the same, has hit legitimate packets or was not wanted.
    pub(crate) fn is_refused(&self, signature: &Signature) -> bool {
        self.refused.iter().any(|refused| refused.is_like(signature))
    }

    /// Signatures that have described the attack.
    pub(crate) fn signatures(&self) -> Vec<&Signature> {
        let is_right = |record: &&Record| match record.state {
            State::Proposed | State::Active => true,
            State::Ended(ending) => matches!(ending, Ending::Quiet | Ending::Timeout | Ending::Merged),
        };
        self.records.iter().filter(is_right).filter_map(|record| record.action.measure.signature()).collect()
    }

    /// Whether a standing signature covers a packet.
    fn is_covered(&self, header: &Header) -> bool {
        self.standing().filter_map(|record| record.action.measure.signature()).any(|one| one.matches(header))
    }

    /// Takes the victim's headers of a window. Returns the share of packets of each class without proof that no
    /// signature covers: 1 if the sample has none of them.
    pub(crate) fn take(&mut self, window: &Window) -> [f64; PacketClass::COUNT] {
        let is_here = |header: &&Header| self.victim.contains(header.is_ipv6, header.daddr);
        let mut headers: Vec<&Header> = window.unproven.iter().filter(is_here).collect();
        if headers.len() < ENOUGH {
            let strata: Vec<&Header> = window.strata.iter().filter(is_here).collect();
            if strata.len() > headers.len() {
                headers = strata;
            }
        }
        if headers.len() >= LATEST_MIN {
            self.latest = headers.iter().take(LATEST_MAX).map(|header| **header).collect();
        }
        let (mut all, mut open) = ([0u32; PacketClass::COUNT], [0u32; PacketClass::COUNT]);
        let mut fresh: Vec<(u64, Header)> = Vec::new();
        for header in &headers {
            let class = class::of(header) as usize;
            all[class] += 1;
            if !self.is_covered(header) {
                open[class] += 1;
                fresh.push((window.to_ns, **header));
            }
        }
        for record in self.records.iter_mut().filter(|record| record.state == State::Proposed) {
            let signature = record.action.measure.signature();
            if signature.is_some_and(|signature| headers.iter().any(|header| signature.matches(header))) {
                record.last_hit_ns = window.to_ns;
            }
        }
        let proven: Vec<Header> = window.real.iter().chain(&window.plausible).filter(is_here).copied().collect();
        let streamed: Vec<Header> = window.streamed.iter().filter(is_here).copied().collect();
        self.pool.extend(fresh);
        self.forget(window.to_ns);
        keep_last(&mut self.proven, proven, PROVEN_MAX);
        keep_last(&mut self.streamed, streamed, STREAMED_MAX);
        std::array::from_fn(|class| if all[class] == 0 { 1.0 } else { f64::from(open[class]) / f64::from(all[class]) })
    }

    /// Forgets old headers, unless there are few.
    fn forget(&mut self, now_ns: u64) {
        let age_ns = |time_ns: u64| now_ns.saturating_sub(time_ns);
        let standing: Vec<Signature> =
            self.standing().filter_map(|record| record.action.measure.signature()).cloned().collect();
        self.pool.retain(|(time_ns, header)| {
            age_ns(*time_ns) <= LONG_POOL_NS && !standing.iter().any(|signature| signature.matches(header))
        });
        let recent = self.pool.iter().filter(|(time_ns, _)| age_ns(*time_ns) <= POOL_NS).count();
        let old = self.pool.len() - recent;
        let excess = old.saturating_sub(POOL_MIN.saturating_sub(recent)).max(self.pool.len().saturating_sub(POOL_MAX));
        self.pool.drain(..excess);
    }

    /// Headers without proof of the last window that had enough of them, also those that actions hold back.
    pub fn latest(&self) -> &[Header] {
        &self.latest
    }

    /// Headers that no standing signature covers.
    pub(crate) fn pool(&self) -> Vec<Header> {
        self.pool.iter().map(|(_, header)| *header).filter(|header| !self.is_covered(header)).collect()
    }

    /// Headers of the victim's proven sources during the attack.
    pub(crate) fn proven(&self) -> &[Header] {
        &self.proven
    }

    /// Headers of the victim's spared streams during the attack.
    pub(crate) fn streamed(&self) -> &[Header] {
        &self.streamed
    }

    /// The standing block of a source, also one that waits.
    pub(crate) fn block_of(&mut self, source: Source) -> Option<&mut Record> {
        self.standing_mut().find(|record| matches!(record.action.measure, Measure::Block(one, _) if one == source))
    }
}

/// Adds headers and keeps the last `most` of all.
fn keep_last(kept: &mut Vec<Header>, more: Vec<Header>, most: usize) {
    kept.extend(more);
    let excess = kept.len().saturating_sub(most);
    kept.drain(..excess);
}

#[cfg(test)]
mod tests {
    use super::{Attack, ENDED_MAX, POOL_MAX, Record, State};
    use crate::action::{Action, Ending, Measure, Trial};
    use crate::header::Header;
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::prefix::Prefix;
    use weir_abi::PacketClass;

    fn attack() -> Attack {
        Attack::new(Prefix::of(false, 0xc000_0201, 32), PacketClass::Udp, 0)
    }

    #[test]
    fn an_attack_keeps_so_many_headers() {
        let mut window = Extractor::new(Vec::new(), 1, 0).close(WINDOW_NS);
        window.unproven = vec![Header::between(1, 0xc000_0201); POOL_MAX + 1];
        let mut attack = attack();
        for _ in 0..2 {
            attack.take(&window);
            assert_eq!(attack.pool().len(), POOL_MAX);
        }
    }

    #[test]
    fn an_attack_keeps_the_latest_ended_actions_and_all_standing_ones() {
        let mut attack = attack();
        for id in 0..200 {
            let action = Action { id, attack: 1, measure: Measure::Posture(String::new()), trial: Trial::default() };
            let state = if id % 2 == 0 { State::Active } else { State::Ended(Ending::Quiet) };
            attack.records.push(Record::new(action, PacketClass::Udp, state, 0));
        }
        attack.bound_records();
        let ended = attack.records.iter().filter(|record| matches!(record.state, State::Ended(_)));
        let ended: Vec<u32> = ended.map(|record| record.action.id).collect();
        assert_eq!((attack.standing().count(), ended.len(), ended[0]), (100, ENDED_MAX, 73));
    }
}
