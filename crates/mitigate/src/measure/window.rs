//! The measurements of a window.

use super::counts::Counts;
use super::sampling::{SEEN_MIN, Sampling};
use crate::class;
use crate::header::Header;
use crate::prefix::Prefix;
use weir_abi::PacketClass;

/// A victim that answers this share of a sample of datagrams without proof serves them. The others wait for their
/// answers.
const SERVED: f64 = 0.8;
const SERVED_MIN: f64 = 8.0;

/// A source: family and address.
pub type Source = (bool, u128);

/// The measurements of one window.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its beginning, ns.
    pub from_ns: u64,
    /// Its end, ns.
    pub to_ns: u64,
    /// Packets to protected hosts.
    pub packets: u64,
    /// Packets with a source inside that came from outside: forgeries.
    pub forged: u64,
    /// Whether exact counts take the place of estimates, for the prefixes that are observed.
    pub is_observed: bool,
    /// The counts of prefixes, in the order of levels.
    pub counts: Vec<Counts>,
    /// The proven sources that send most, the heaviest first.
    pub heavy: Vec<HeavySource>,
    /// Headers of packets without proof.
    pub unproven: Vec<Header>,
    /// Headers of packets without proof, with equal room for each group of destinations.
    pub strata: Vec<Header>,
    /// Headers of packets without proof that belong to streams. They are in neither `unproven` nor `strata`.
    pub streamed: Vec<Header>,
    /// Headers of packets without proof that belong to streams, with equal room for each group of destinations.
    pub streamed_strata: Vec<Header>,
    /// Headers of packets of plausible sources.
    pub plausible: Vec<Header>,
    /// Headers of packets that few answers vouch for.
    pub vouched: Vec<Header>,
    /// Headers of packets that answers vouch for again and again.
    pub settled: Vec<Header>,
    /// Headers of packets of real sources.
    pub real: Vec<Header>,
    /// Headers of packets of real sources that came before the proof: the first packets of conversations.
    pub opening: Vec<Header>,
    /// Headers of datagrams without proof that were answered.
    pub answered: Vec<Header>,
    /// Headers of echo requests that were answered.
    pub answered_pings: Vec<Header>,
    /// Headers of real or plausible sources that an action has dropped.
    pub dropped_proven: Vec<Header>,
    /// Whether both directions of traffic are seen.
    pub is_two_way: bool,
    /// Datagrams without proof that are not judged, because only one direction is seen.
    pub unjudged: u64,
    /// Which part of the packets was seen. Counts are estimates of all packets, samples of headers are not.
    pub sampling: Sampling,
}

/// A source that sends much in conversations of TCP that prove it real. A made-up source is never among them, so an
/// attacker cannot choose who is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeavySource {
    /// The source.
    pub source: Source,
    /// Packets that it certainly sent.
    pub packets: u64,
    /// Segments of TCP that protected hosts sent to it and that do not refuse, at most.
    pub answers: u64,
    /// Bytes that they acknowledge or bring, at most. It is of all segments, also where few of them are seen.
    pub exchanged: u64,
}

impl Window {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        (self.to_ns - self.from_ns) as f64 / 1e9
    }

    /// The least rate that can be told from chance, packets a second; 0 if every packet was seen.
    pub fn least_pps(&self) -> f64 {
        let scale = self.sampling.scale();
        if scale > 1.0 { SEEN_MIN * scale / self.seconds() } else { 0.0 }
    }

    /// Makes the counts of seen packets estimates of all packets.
    pub fn estimate(&mut self, sampling: Sampling) {
        let scale = sampling.scale();
        self.sampling = sampling;
        if scale == 1.0 {
            return;
        }
        let estimate = |count: &mut u64| *count = (*count as f64 * scale).round() as u64;
        estimate(&mut self.packets);
        for counts in &mut self.counts {
            let of_class = counts.packets.iter_mut().chain(&mut counts.unproven).chain(&mut counts.streamed);
            of_class.chain(&mut counts.vouched).chain(&mut counts.briefly_vouched).for_each(estimate);
            let Counts { bytes, new_sources, answers, syn_acks, .. } = counts;
            [bytes, new_sources, answers, syn_acks].into_iter().for_each(estimate);
        }
        self.heavy.iter_mut().for_each(|heavy| {
            estimate(&mut heavy.packets);
            estimate(&mut heavy.answers);
        });
    }

    /// Spreads the counts over some windows.
    pub fn spread(&mut self, windows: u64) {
        self.packets /= windows;
        for counts in &mut self.counts {
            let of_class = counts.packets.iter_mut().chain(&mut counts.unproven).chain(&mut counts.streamed);
            of_class.chain(&mut counts.vouched).chain(&mut counts.briefly_vouched).for_each(|count| *count /= windows);
            let Counts { bytes, new_sources, answers, syn_acks, .. } = counts;
            [bytes, new_sources, answers, syn_acks].into_iter().for_each(|count| *count /= windows);
        }
    }

    /// The prefix and the class with the most packets without proof, and their number. Of prefixes that receive the
    /// same packets it is the finest.
    pub fn busiest(&self) -> Option<(Prefix, PacketClass, u64)> {
        let of_classes = self.counts.iter().flat_map(|counts| {
            let without_proof = |class: PacketClass| counts.unproven[class as usize] + counts.streamed[class as usize];
            PacketClass::ALL.map(|class| (counts.prefix, class, without_proof(class)))
        });
        let of_classes = of_classes.filter(|(_, _, packets)| *packets > 0);
        of_classes
            .max_by_key(|(prefix, class, packets)| (*packets, prefix.length(), std::cmp::Reverse((*prefix, *class))))
    }

    /// Whether a victim answers nearly all datagrams without proof that it receives: it serves all clients.
    pub fn is_served(&self, victim: &Prefix) -> bool {
        self.are_answered(victim, &self.answered, class::is_datagram)
    }

    /// Whether nearly all that a victim receives of ICMP are echo requests of sources that get answers.
    pub fn is_pinged(&self, victim: &Prefix) -> bool {
        self.are_answered(victim, &self.answered_pings, |class| class == PacketClass::Icmp)
    }

    /// Whether nearly all packets without proof that a victim receives of some classes are among the answered ones.
    fn are_answered(&self, victim: &Prefix, answered: &[Header], is_wanted: impl Fn(PacketClass) -> bool) -> bool {
        let to_victim = |headers: &[Header]| {
            let is_counted =
                |header: &&Header| is_wanted(class::of(header)) && victim.contains(header.is_ipv6, header.daddr);
            headers.iter().filter(is_counted).count() as f64
        };
        let all = to_victim(&self.unproven);
        self.is_two_way && all >= SERVED_MIN && to_victim(answered) >= all * SERVED
    }

    /// The counts of a prefix.
    pub fn counts_of(&self, prefix: Prefix) -> Option<&Counts> {
        self.counts.iter().find(|counts| counts.prefix == prefix)
    }
}

#[cfg(test)]
mod tests {
    use crate::header::{Header, protocol};
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::prefix::Prefix;

    #[test]
    fn answers_say_that_a_victim_serves_only_where_both_directions_are_seen() {
        let victim = Prefix::of(false, 0xc000_0201, 32);
        let question = Header { protocol: protocol::UDP, has_ports: true, ..Header::between(1, 0xc000_0201) };
        let mut window = Extractor::new(Vec::new(), 1, 0).close(WINDOW_NS);
        (window.unproven, window.answered) = (vec![question; 10], vec![question; 8]);
        let mut is_served = |is_two_way: bool, answers: usize| {
            window.is_two_way = is_two_way;
            window.answered.truncate(answers);
            window.is_served(&victim)
        };
        assert_eq!([is_served(false, 8), is_served(true, 8), is_served(true, 7)], [false, true, false]);
    }
}
