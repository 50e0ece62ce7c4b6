//! What signatures are learned from, and which are known already.

use super::{Mitigator, UNUSED_NS};
use crate::attack::Attack;
use crate::class;
use crate::header::Header;
use crate::measure::{DOUBTFUL_NS, Source, Window};
use crate::prefix::Prefix;
use crate::signature::Signature;
use crate::signature::learn::{Examples, Learned, learn};
use crate::signature::merge::merge;
use weir_abi::PacketClass;

/// A victim is in use if the reference and the sample have this many legitimate packets to it.
const USED_MIN: usize = 8;
/// Classes whose legitimate packets are answers to what the victim has asked, so that they have proof.
const ANSWERS: [PacketClass; 2] = [PacketClass::SynAck, PacketClass::UdpService];

impl Mitigator {
    /// The signature of a former attack that covers most of the pool.
    pub(super) fn returning(&self, victim: Prefix, pool: &[Header]) -> Option<Learned> {
        let learned = |signature: &Signature| {
            let covered = pool.iter().filter(|header| signature.matches(header)).count();
            let signature = signature.clone();
            Learned {
                signature,
                covered,
                of: pool.len(),
                legitimate: 0,
                legitimate_of: 0,
                usual_share: 0.0,
                is_stream: false,
            }
        };
        let of_victim = self.remembered.iter().filter(|signature| signature.victim == victim);
        of_victim.map(learned).filter(|one| one.covered * 2 > one.of).max_by_key(|one| one.covered)
    }

    /// Signatures for headers of an attack. Where answers are not seen, a host that is used like a client may look
    /// unused, so everyday packets are spared there too.
    pub(super) fn learn(
        &self,
        at: usize,
        pool: &[Header],
        share_min: f64,
        window: &Window,
        is_known: &dyn Fn(Source) -> bool,
    ) -> Vec<Learned> {
        let attack = &self.attacks[at];
        let (victim, reference) = (attack.victim, &self.peace.reference);
        let to_victim = |header: &&Header| victim.contains(header.is_ipv6, header.daddr);
        let foreign = self.foreign(attack, window);
        let is_only_streamed = window.is_two_way && self.is_only_streamed(attack);
        let may_count =
            |header: &&Header| to_victim(header) || !is_only_streamed && !foreign.contains(&class::of(header));
        let streamed = if is_only_streamed { attack.streamed() } else { &[] };
        let all = reference.legitimate().chain(reference.first()).chain(attack.proven()).chain(streamed);
        let legitimate: Vec<&Header> = all.filter(may_count).collect();
        let first: Vec<&Header> = reference.first().filter(to_victim).collect();
        let usual: Vec<&Header> = reference.usual().filter(may_count).collect();
        let is_spared = |header: &Header| {
            let source = (header.is_ipv6, header.saddr);
            is_known(source) || self.protected.contains(source)
        };
        let customers =
            || reference.legitimate().chain(reference.first()).chain(reference.usual()).chain(attack.proven());
        let is_known_net = |net: &Prefix| {
            self.protected.is_in(net) || customers().any(|header| net.contains(header.is_ipv6, header.saddr))
        };
        let to_victim_count = legitimate.iter().filter(|header| to_victim(header)).count();
        let examples = Examples {
            victim,
            attack: pool,
            legitimate: &legitimate,
            first: &first,
            foreign: &foreign,
            usual: &usual,
            streamed: attack.streamed(),
            is_used: to_victim_count >= USED_MIN || !window.is_two_way,
            share_min,
            is_known: &is_spared,
            is_known_net: &is_known_net,
        };
        let mut learned = learn(&examples);
        learned.retain(|one| !attack.is_refused(&one.signature));
        let fine = learned.clone();
        let mut merged = merge(learned, &attack.signatures(), &examples);
        // A coarser signature that has hit customers is not tried again.
        if merged.iter().any(|one| attack.is_refused(&one.signature)) {
            merged = fine;
        }
        merged
    }

    /// Whether the victim's only users before were streams in one direction. Then traffic of other hosts says nothing
    /// about it.
    fn is_only_streamed(&self, attack: &Attack) -> bool {
        let usual = self.peace.baselines.of(&attack.victim);
        let is_used = usual.is_used_since(u64::MAX) || !attack.proven().is_empty();
        !is_used && usual.is_streamed_since(attack.from_ns.saturating_sub(DOUBTFUL_NS))
    }

    /// Classes of answers that the victim does not get, because it asks no questions of the class. Then traffic of
    /// other hosts, and everyday traffic elsewhere, says nothing about it. A server may be asked from the ports of
    /// services too.
    pub(super) fn foreign(&self, attack: &Attack, window: &Window) -> Vec<PacketClass> {
        if !window.is_two_way {
            return Vec::new();
        }
        let (victim, usual) = (attack.victim, self.peace.baselines.of(&attack.victim));
        let to_victim = |header: &&Header| victim.contains(header.is_ipv6, header.daddr);
        let first: Vec<&Header> = self.peace.reference.first().filter(to_victim).collect();
        let is_idle = !usual.is_used_since(u64::MAX) && first.is_empty() && attack.proven().is_empty();
        let asked = window.answered.iter().filter(to_victim);
        let asked: Vec<PacketClass> = first.iter().copied().chain(asked).map(class::of).collect();
        let is_foreign = |class: &PacketClass| {
            let is_known = is_idle && self.peace.seen_ns() >= UNUSED_NS || usual.is_foreign(*class, first.len() as u64);
            is_known && !asked.contains(class)
        };
        ANSWERS.into_iter().filter(is_foreign).collect()
    }
}
