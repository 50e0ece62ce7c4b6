//! Decides about attacks: one call a window.
//!
//! A suspicion becomes an attack when signatures can be learned that cover most of its packets without proof and spare
//! the legitimate ones. What remains behind the actions is learned again, so an attack that changes its packets is
//! followed. An action that hits packets of proven sources is undone.

mod acting;
mod ending;
mod hits;
mod knowledge;
mod learning;
mod operator;
mod resort;
mod vectors;

use crate::action::{ActionId, AttackId, Decision, Hit, Measure, Mode, Prepared, Trial};
use crate::attack::Attack;
use crate::baseline::{LEARNING_WINDOWS, floor_pps};
use crate::behind_proxy;
use crate::class;
use crate::header::Header;
use crate::held::{HeldBack, UsuallyHeld};
use crate::last_resort;
use crate::measure::counts::Counts;
use crate::measure::{DOUBTFUL_NS, Source, WINDOW_NS, Window};
use crate::peace::{ANSWERERS_MIN, Peace};
use crate::prefix::Prefix;
use crate::protected::Protected;
use crate::retreat::SOURCE_NS;
use crate::signature::Signature;
use crate::signature::learn::Learned;
use crate::streams;
use crate::unanswered::Unanswered;
use crate::victim::{Suspect, Victims};
pub use knowledge::{Attacked, Part};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use weir_abi::PacketClass;

/// A suspicion is an attack if signatures cover this share of its packets. Less is a part of something else.
const COVERED_MIN: f64 = 0.5;
/// Headers without which no signature is learned.
const POOL_MIN: usize = 8;
/// What remains of an attack is learned again above this share of its peak: below, 97 % are dropped.
const REST_SHARE: f64 = 0.03;
/// A further signature covers at least this share of the peak.
const SIGNATURE_SHARE: f64 = 0.01;
/// The lowest limit.
const LIMIT_PPS: f64 = 1.0;
/// The least rate at which remaining traffic of an attack is learned again. At this rate two seconds have 20 headers.
const REST_PPS: f64 = 10.0;
/// The least mean rate over some seconds at which it is learned again. At this rate eight seconds have 32 headers.
const MEAN_REST_PPS: f64 = 4.0;
/// The weight of a window in this mean.
const MEAN_WEIGHT: f64 = 0.1;
/// Maximum rate that a victim without users receives besides the packets that signatures cover.
const UNUSED_PPS: f64 = 10.0;
/// A suspicion without an action, and an attack without traffic, end after this time; a suspicion of pulses later.
const FORGET_NS: u64 = 10_000_000_000;
/// Sources that are blocked for one attack at once: as many as a window measures. They need no rule each.
const BLOCKS_MAX: usize = 1024;
/// Rules of one attack at once.
const RULES_MAX: usize = 32;
/// Attacks with suspicions at once.
const ATTACKS_MAX: usize = 256;
/// If there are more, pulses are not waited for: they would take the room of attacks.
const AWAITED_MAX: usize = ATTACKS_MAX / 2;
/// Attacks that are over and still listed.
const OVER_MAX: usize = 1024;
/// Signatures of former attacks that come back at once.
const REMEMBERED_MAX: usize = 64;
/// Learning pauses for up to this many windows after it has failed.
const PAUSE_MAX: u32 = 16;
/// A pause ends at once if the rest is this many times as high as when learning failed.
const WORSE: f64 = 2.0;
/// A victim counts as unused only if packets were seen for this long.
const UNUSED_NS: u64 = DOUBTFUL_NS + LEARNING_WINDOWS as u64 * WINDOW_NS;
/// Packets of real sources in an attack that show that its victim is in use.
const USED_MIN: usize = 8;

/// The usual time that a quiet action stays.
pub const HOLD_NS: u64 = 60_000_000_000;

/// How decisions are made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// How far decisions go.
    pub mode: Mode,
    /// Sources that are never blocked and that no signature names.
    pub protected: Vec<Prefix>,
    /// What is prepared for attacks that no signature separates.
    pub prepared: Prepared,
    /// A quiet action stays for this long, because attacks come in pulses.
    pub hold_ns: u64,
    /// Rules of one attack at once. More than there is room for cannot be carried out.
    pub rules_max: usize,
}

impl Default for Settings {
    /// Attacks are reported. Actions would be held for a minute.
    fn default() -> Self {
        let (mode, prepared) = (Mode::default(), Prepared::default());
        Settings { mode, protected: Vec::new(), prepared, hold_ns: HOLD_NS, rules_max: RULES_MAX }
    }
}

/// The state of detection and of all attacks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mitigator {
    settings: Settings,
    protected: Protected,
    peace: Peace,
    victims: Victims,
    unanswered: Unanswered,
    attacks: Vec<Attack>,
    over: Vec<Attack>,
    remembered: Vec<Signature>,
    /// What the datapath has held back in this window, and what it usually holds back.
    held: HeldBack,
    usually_held: UsuallyHeld,
    /// When a SYN was last answered with a cookie, ns.
    cookie_ns: Option<u64>,
    next_action: ActionId,
    next_attack: AttackId,
    #[serde(skip)]
    decisions: Vec<Decision>,
    /// Datagrams that were not judged, because only one direction is seen.
    unjudged: u64,
}

impl Mitigator {
    /// Nothing was measured yet. The seed is a secret.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Mitigator {
            protected: Protected::new(settings.protected.clone()),
            settings,
            peace: Peace::new(seed),
            victims: Victims::default(),
            unanswered: Unanswered::default(),
            attacks: Vec::new(),
            over: Vec::new(),
            remembered: Vec::new(),
            held: HeldBack::default(),
            usually_held: UsuallyHeld::default(),
            cookie_ns: None,
            next_action: 1,
            next_attack: 1,
            decisions: Vec::new(),
            unjudged: 0,
        }
    }

    /// Attacks: those that are over, then the current ones.
    pub fn attacks(&self) -> impl Iterator<Item = &Attack> {
        self.over.iter().chain(&self.attacks).filter(|attack| attack.id.is_some())
    }

    /// Decides after a window. `hits` is what the actions hit in it, `is_known` whether a source is a known real one.
    pub fn decide(&mut self, window: &Window, hits: &[Hit], is_known: &dyn Fn(Source) -> bool) -> Vec<Decision> {
        self.peace.baselines.begin(window.to_ns);
        let growth = self.peace.baselines.growth(&window.counts, window.seconds());
        let mut window = streams::judge(window, &self.peace.baselines, &growth);
        if self.is_proxied(window.to_ns) {
            window = behind_proxy::judge(window, &self.peace.baselines);
        }
        let window = &*window;
        self.unjudged += window.unjudged;
        if window.sampling.is_blind() {
            self.hold(window);
            self.held = HeldBack::default();
            self.peace.baselines.freeze(|_| true, window.to_ns);
            self.retreat(window.to_ns);
            return std::mem::take(&mut self.decisions);
        }
        self.peace.reference.learn_mistakes(&window.dropped_proven);
        self.count_hits(window, hits);
        self.undo_mistakes();
        if window.is_two_way && window.sampling.scale() == 1.0 {
            self.peace.baselines.count_proven(&window.counts, window.seconds());
        }
        let mut suspects = self.victims.assess(window, &self.peace.baselines, &growth);
        let pinged: Vec<Suspect> = suspects.extract_if(.., |suspect| self.is_pinged(suspect, window)).collect();
        pinged.iter().for_each(|suspect| self.victims.forget(&suspect.prefix));
        suspects.retain(|suspect| self.peace.believes(suspect, window));
        for suspect in &suspects {
            if let Some(at) = self.case(suspect, window.to_ns) {
                self.keep_posture(at, suspect.class, window.to_ns);
            }
        }
        self.measure_vectors(window, &suspects, &growth);
        for at in 0..self.attacks.len() {
            self.pursue(at, window, &suspects, is_known);
        }
        self.block_unanswered(window);
        self.follow_vectors(window.to_ns);
        self.retreat(window.to_ns);
        if !window.sampling.is_lossy() {
            self.peace.learn(window, &growth, &self.victims, &self.attacks);
            self.learn_held(window);
        } else {
            self.peace.baselines.freeze(|_| true, window.to_ns);
        }
        self.held = HeldBack::default();
        std::mem::take(&mut self.decisions)
    }

    /// Whether a suspect receives nothing unusual but pings, and answers them. Such pings do no harm, up to ten times
    /// the threshold. During an attack they may be a part of it.
    fn is_pinged(&self, suspect: &Suspect, window: &Window) -> bool {
        let is_attacked = || self.attacks.iter().any(|attack| attack.id.is_some() && attack.victim == suspect.prefix);
        let others = window
            .counts_of(suspect.prefix)
            .map_or(0, |counts| counts.unproven_total().saturating_sub(counts.unproven[PacketClass::Icmp as usize]));
        let is_only_icmp = suspect.class == PacketClass::Icmp
            && suspect.evidence.len() == 1
            && others as f64 / window.seconds() <= floor_pps(&suspect.prefix);
        is_only_icmp && !last_resort::is_bad(suspect) && window.is_pinged(&suspect.prefix) && !is_attacked()
    }

    /// The case of a suspect, a new one if it has none. `None` if there are too many.
    fn case(&mut self, suspect: &Suspect, now_ns: u64) -> Option<usize> {
        let known = self.attacks.iter().position(|attack| attack.victim.covers(&suspect.prefix));
        if known.is_none() && self.attacks.len() >= ATTACKS_MAX {
            return None;
        }
        let at = known.unwrap_or_else(|| {
            self.attacks.push(Attack::new(suspect.prefix, suspect.class, now_ns));
            self.attacks.len() - 1
        });
        self.attacks[at].last_ns = now_ns;
        Some(at)
    }

    /// Follows one case: takes its headers, and acts on what no action covers.
    fn pursue(&mut self, at: usize, window: &Window, suspects: &[Suspect], is_known: &dyn Fn(Source) -> bool) {
        let open = self.attacks[at].take(window);
        let victim = self.attacks[at].victim;
        let suspect = suspects.iter().find(|suspect| suspect.prefix == victim);
        let unproven_pps = window.counts_of(victim).map_or(0, Counts::unproven_total) as f64 / window.seconds();
        let mut rest = self.rest(victim, window, &open);
        // As long as every question gets an answer, each datagram that an action drops may be a customer's.
        let is_served = window.is_served(&victim);
        if is_served {
            PacketClass::ALL
                .into_iter()
                .filter(|&class| class::is_datagram(class))
                .for_each(|class| rest[class as usize] = 0.0);
        }
        let rest_pps: f64 = rest.iter().sum();
        let foreign = self.foreign(&self.attacks[at], window).len();
        let attack = &mut self.attacks[at];
        attack.peak_pps = attack.peak_pps.max(unproven_pps);
        attack.rest_pps += (rest_pps.min(REST_PPS) - attack.rest_pps) * MEAN_WEIGHT;
        attack.may_be_unused &= !window.is_two_way || attack.proven().len() < USED_MIN;
        attack.is_unused = attack.may_be_unused && self.peace.seen_ns() >= UNUSED_NS;
        // What has just become known may separate what could not be separated before.
        attack.pause = if foreign > attack.foreign { 0 } else { attack.pause.saturating_sub(1) };
        attack.foreign = attack.foreign.max(foreign);
        if attack.pause > 0 && rest_pps < attack.failed_pps * WORSE {
            return;
        }
        attack.failed_pps = rest_pps;
        let is_more_than = |pps: f64, least: f64| pps > least.max(attack.peak_pps * REST_SHARE);
        // Whatever the peak was, and of another vector: what is an attack by itself is learned.
        let has_excess = suspect.is_some() && rest_pps > floor_pps(&victim);
        let has_rest = has_excess || is_more_than(rest_pps, REST_PPS) || is_more_than(attack.rest_pps, MEAN_REST_PPS);
        match (attack.id, suspect) {
            (None, Some(suspect)) if is_served && class::is_datagram(suspect.class) => {
                self.confirm_served(at, suspect, &rest, window, is_known);
            }
            (None, Some(suspect)) => self.confirm(at, suspect, window, is_known),
            (Some(_), _) if has_rest => {
                // Many signatures of a few packets each would risk more than they save.
                let attack = &self.attacks[at];
                let most = PacketClass::ALL
                    .into_iter()
                    .max_by(|&one, &other| rest[one as usize].total_cmp(&rest[other as usize]));
                let vector = most.and_then(|class| attack.vectors.current(class));
                let peak_pps = vector.map_or(rest_pps, |vector| vector.peak_pps).min(attack.peak_pps);
                let share_min = peak_pps * SIGNATURE_SHARE / rest_pps.max(attack.rest_pps);
                let mut pool = attack.pool();
                pool.retain(|header| rest[class::of(header) as usize] > 0.0);
                let learned = self.learn(at, &pool, share_min, window, is_known);
                // What actions that wait would stop is no reason for harder ones.
                let suspect = suspect.filter(|_| rest_pps > floor_pps(&victim));
                self.settle(at, learned, window, suspect, is_known);
            }
            _ => {}
        }
    }

    /// Packets a second of each class that are not usual and that no signature covers. `open` is the share of each
    /// class that none covers.
    fn rest(&self, victim: Prefix, window: &Window, open: &[f64; PacketClass::COUNT]) -> [f64; PacketClass::COUNT] {
        let usual = self.peace.baselines.of(&victim);
        let counts = window.counts_of(victim);
        PacketClass::ALL.map(|class| {
            let unproven = counts.map_or(0, |counts| counts.unproven[class as usize]) as f64 / window.seconds();
            (unproven * open[class as usize] - usual.unproven_pps(class)).max(0.0)
        })
    }

    /// Handles a suspect that answers all clients. Its other packets may be an attack. Questions are only reported, if
    /// they are very many.
    fn confirm_served(
        &mut self,
        at: usize,
        suspect: &Suspect,
        rest: &[f64; PacketClass::COUNT],
        window: &Window,
        is_known: &dyn Fn(Source) -> bool,
    ) {
        let most =
            PacketClass::ALL.into_iter().max_by(|&one, &other| rest[one as usize].total_cmp(&rest[other as usize]));
        match most {
            Some(class) if rest.iter().sum::<f64>() > floor_pps(&suspect.prefix) => {
                self.confirm(at, &Suspect { class, ..suspect.clone() }, window, is_known);
            }
            _ if last_resort::is_bad(suspect) => {
                let pool = self.attacks[at].pool();
                self.begin(at, suspect, window, &pool);
            }
            _ => {}
        }
    }

    /// Makes a suspicion an attack, if signatures separate it.
    fn confirm(&mut self, at: usize, suspect: &Suspect, window: &Window, is_known: &dyn Fn(Source) -> bool) {
        let mut pool = self.attacks[at].pool();
        if window.is_served(&suspect.prefix) {
            pool.retain(|header| !class::is_datagram(class::of(header)));
        }
        let mut learned: Vec<Learned> = self.returning(suspect.prefix, &pool).into_iter().collect();
        if !suspect.is_victim && learned.is_empty() {
            return;
        }
        if learned.is_empty() {
            if self.peace.is_beginning() && answerers(&pool) < ANSWERERS_MIN {
                return;
            }
            learned = self.learn(at, &pool, 0.0, window, is_known);
        }
        let covered: usize = learned.iter().map(|one| one.covered).sum();
        // Without samples no signature can be learned yet. The rate is certain nevertheless, so it is reported.
        let is_reported = suspect.is_exact && pool.len() < POOL_MIN;
        if (covered as f64) < pool.len() as f64 * COVERED_MIN && !is_reported {
            self.fail(at);
            self.resort(at, suspect, window, &pool, is_known);
            return;
        }
        self.begin(at, suspect, window, &pool);
        self.act(at, learned);
    }

    fn begin(&mut self, at: usize, suspect: &Suspect, window: &Window, pool: &[Header]) {
        let id = self.next_attack;
        self.next_attack += 1;
        let mut evidence = suspect.evidence.clone();
        evidence.extend(self.peace.entropies(pool));
        let attack = &mut self.attacks[at];
        let usual = self.peace.baselines.of(&attack.victim);
        // At the start it is unknown which hosts have users. A host with few samples may have proven sources that no
        // sample shows. Where answers are seen, every proof is valid. Elsewhere proofs of the last seconds may belong
        // to the attack, but the first seconds have no older ones.
        let is_certain = window.is_two_way || self.peace.seen_ns() < UNUSED_NS;
        let doubtful_ns = if is_certain { 0 } else { DOUBTFUL_NS };
        // A client that asks one question has no proof, but the answer shows that the host has users.
        let mut served = self.peace.reference.first().chain(&window.answered);
        let is_used = usual.is_used_since(attack.last_ns.saturating_sub(doubtful_ns))
            || usual.is_streamed_since(attack.last_ns.saturating_sub(DOUBTFUL_NS))
            || served.any(|header| attack.victim.contains(header.is_ipv6, header.daddr));
        attack.may_be_unused = !is_used && !self.peace.is_beginning() && !suspect.is_exact;
        attack.is_unused = attack.may_be_unused && self.peace.seen_ns() >= UNUSED_NS;
        (attack.id, attack.class, attack.from_ns) = (Some(id), suspect.class, attack.last_ns);
        // Further evidence is about other classes, and about the sample.
        let of_class = evidence.iter().take(1).chain(evidence.iter().filter(|one| one.threshold.is_none()));
        attack.vectors.begin(suspect.class, of_class.cloned().collect(), attack.last_ns);
        attack.evidence = evidence.clone();
        self.decisions.push(Decision::Detected { attack: id, victim: attack.victim, evidence });
    }

    fn fail(&mut self, at: usize) {
        let attack = &mut self.attacks[at];
        attack.failures = attack.failures.saturating_add(1);
        attack.pause = (1 << attack.failures.min(8)).min(PAUSE_MAX);
    }

    /// Acts on what was learned of the rest of an attack.
    fn settle(
        &mut self,
        at: usize,
        learned: Vec<Learned>,
        window: &Window,
        suspect: Option<&Suspect>,
        is_known: &dyn Fn(Source) -> bool,
    ) {
        let attack = &self.attacks[at];
        // Before the whole victim is limited, what separates its attack is tried.
        let is_tried = learned.is_empty() || attack.standing().next().is_some();
        let everything = Signature::new(attack.victim, Vec::new());
        if attack.is_unused && is_tried && !attack.is_overruled && !attack.is_refused(&everything) {
            let limit_pps = (attack.peak_pps * REST_SHARE).clamp(LIMIT_PPS, UNUSED_PPS);
            self.apply(
                at,
                suspect.map(|suspect| suspect.class),
                Measure::Limit(everything, limit_pps),
                Trial::default(),
            );
            return;
        }
        if !learned.is_empty() {
            (self.attacks[at].failures, self.attacks[at].rest_pps) = (0, 0.0);
            self.act(at, learned);
            return;
        }
        self.fail(at);
        if let Some(suspect) = suspect {
            let pool = self.attacks[at].pool();
            self.resort(at, suspect, window, &pool, is_known);
        }
    }

    /// Blocks real sources that attack.
    fn block_unanswered(&mut self, window: &Window) {
        if self.peace.is_beginning() {
            return;
        }
        for (source, suspect) in self.unanswered.judge(window, self.peace.source_pps()) {
            if self.protected.contains(source) {
                continue;
            }
            if let Some(block) = self.attacks.iter_mut().find_map(|attack| attack.block_of(source)) {
                block.last_hit_ns = window.to_ns;
                continue;
            }
            let Some(at) = self.case(&suspect, window.to_ns) else { continue };
            if self.attacks[at].id.is_none() {
                self.begin(at, &suspect, window, &[]);
            }
            self.join(at, suspect.class, &suspect.evidence);
            self.apply(at, Some(suspect.class), Measure::Block(source, SOURCE_NS), Trial::default());
        }
    }
}

/// Distinct sources of a pool.
fn answerers(pool: &[Header]) -> usize {
    pool.iter().map(|header| header.saddr).collect::<HashSet<u128>>().len()
}
