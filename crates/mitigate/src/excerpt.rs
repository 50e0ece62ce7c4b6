//! Packets around an attack, bounded in number and size: what an export of the attack shows.
//!
//! The victim of an attack is unknown beforehand. So a sample of all recent packets is kept, with equal room for each
//! group of hosts, and the victim's packets are taken from it when an attack is detected. From then on the victim's
//! packets are sampled for some seconds. Packets of proven sources and answers have samples of their own, so that a
//! flood does not displace the packets that must not be dropped.

use crate::action::AttackId;
use crate::header::Header;
use crate::measure::sample::Reservoir;
use crate::measure::{Source, hash};
use crate::prefix::Prefix;
use std::collections::VecDeque;
use weir_abi::Link;

/// Bytes of a packet that are kept: all headers, and the beginning of the payload.
pub const BYTES_MAX: usize = 256;
/// Packets of an excerpt.
pub const PACKETS_MAX: usize = 4096;
/// Time before the detection from which packets are shown, and time after it.
const BEFORE_NS: u64 = 5_000_000_000;
const AFTER_NS: u64 = 10_000_000_000;
/// Number of packets of a window that are kept of all hosts together: from any source, and from proven sources.
const ANY: usize = 192;
const PROVEN: usize = 64;
/// Groups of hosts, and packets of a window that are kept of each.
const STRATA: usize = 32;
const STRATUM: usize = 8;
/// Number of packets of a window that are kept of a victim: from any source, and from proven sources.
const VICTIM_ANY: usize = 64;
const VICTIM_PROVEN: usize = 32;
/// Attacks whose packets are collected at once. Further ones have no excerpt.
const OPEN_MAX: usize = 8;

/// A packet as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Its length on the wire.
    pub wire_len: u32,
    /// What its bytes begin with.
    pub link: Link,
}

/// A packet of an excerpt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it was seen, ns.
    pub time_ns: u64,
    /// Its beginning, at most [`BYTES_MAX`] bytes.
    pub bytes: Box<[u8]>,
    /// Its length on the wire.
    pub wire_len: u32,
    /// What its bytes begin with.
    pub link: Link,
    /// Its place among all packets that were seen.
    number: u64,
    /// The protected host that received or sent it.
    host: Source,
}

/// Packets to and from the victim of an attack, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The attack.
    pub attack: AttackId,
    /// The packets.
    pub packets: Vec<Packet>,
    /// Packets that the victim received or sent from the detection on; the excerpt has a part of them.
    pub seen: u64,
}

/// Samples of one window: of all packets, and of the packets of proven sources.
#[derive(Clone, Debug)]
struct Sample {
    any: Reservoir<Packet>,
    proven: Reservoir<Packet>,
}

impl Sample {
    fn new(any: usize, proven: usize, seed: u64) -> Self {
        Sample { any: Reservoir::new(any, seed), proven: Reservoir::new(proven, seed ^ 1) }
    }

    fn offer(&mut self, is_proven: bool, make: impl FnOnce() -> Packet) {
        let reservoir = if is_proven { &mut self.proven } else { &mut self.any };
        reservoir.offer_with(make);
    }

    fn take(&mut self) -> Vec<Packet> {
        let mut packets = self.any.take();
        packets.append(&mut self.proven.take());
        packets
    }
}

/// An attack whose packets are collected.
#[derive(Clone, Debug)]
struct Open {
    attack: AttackId,
    victim: Prefix,
    until_ns: u64,
    seen: u64,
    sample: Sample,
    packets: Vec<Packet>,
}

/// The samples of recent windows and of attacks.
#[derive(Clone, Debug)]
pub struct Excerpts {
    seed: u64,
    number: u64,
    sample: Sample,
    strata: Vec<Reservoir<Packet>>,
    /// The packets of recent windows, each with its end.
    recent: VecDeque<(u64, Vec<Packet>)>,
    open: Vec<Open>,
    done: Vec<Excerpt>,
    left_out: u64,
}

impl Excerpts {
    /// Nothing was seen. The seed is a secret.
    pub fn new(seed: u64) -> Self {
        Excerpts {
            seed,
            number: 0,
            sample: Sample::new(ANY, PROVEN, seed),
            strata: (0..STRATA as u64).map(|number| Reservoir::new(STRATUM, hash(seed, &[number]))).collect(),
            recent: VecDeque::new(),
            open: Vec::new(),
            done: Vec::new(),
            left_out: 0,
        }
    }

    /// Takes a packet to a protected host, or from it (`is_outgoing`).
    pub fn see(&mut self, header: &Header, frame: Frame<'_>, time_ns: u64, is_outgoing: bool, is_proven: bool) {
        let host = (header.is_ipv6, if is_outgoing { header.saddr } else { header.daddr });
        self.number += 1;
        let number = self.number;
        let make = || Packet {
            time_ns,
            bytes: frame.bytes[..frame.bytes.len().min(BYTES_MAX)].into(),
            wire_len: frame.wire_len,
            link: frame.link,
            number,
            host,
        };
        let is_proven = is_proven || is_outgoing;
        self.sample.offer(is_proven, make);
        let stratum = hash(self.seed, &[host.1 as u64, (host.1 >> 64) as u64]) as usize % STRATA;
        self.strata[stratum].offer_with(make);
        for open in self.open.iter_mut().filter(|open| open.victim.contains(host.0, host.1)) {
            open.seen += 1;
            open.sample.offer(is_proven, make);
        }
    }

    /// Begins the excerpt of an attack that was detected in the window that has just ended.
    pub fn begin(&mut self, attack: AttackId, victim: Prefix, now_ns: u64) {
        if self.open.len() >= OPEN_MAX {
            self.left_out += 1;
            return;
        }
        let mut packets = Vec::new();
        for (_, of_window) in &self.recent {
            let mut of_victim: Vec<&Packet> =
                of_window.iter().filter(|packet| victim.contains(packet.host.0, packet.host.1)).collect();
            // A packet may be in several samples.
            of_victim.sort_unstable_by_key(|packet| packet.number);
            of_victim.dedup_by_key(|packet| packet.number);
            packets.extend(spread(&of_victim, VICTIM_ANY + VICTIM_PROVEN));
        }
        let sample = Sample::new(VICTIM_ANY, VICTIM_PROVEN, hash(self.seed, &[attack.into()]));
        self.open.push(Open { attack, victim, until_ns: now_ns + AFTER_NS, seen: 0, sample, packets });
    }

    /// The attack is over: its excerpt ends with the next window.
    pub fn end(&mut self, attack: AttackId) {
        self.open.iter_mut().filter(|open| open.attack == attack).for_each(|open| open.until_ns = 0);
    }

    /// Ends a window.
    pub fn end_window(&mut self, now_ns: u64) {
        let mut packets = self.sample.take();
        self.strata.iter_mut().for_each(|stratum| packets.append(&mut stratum.take()));
        self.recent.push_back((now_ns, packets));
        while self.recent.pop_front_if(|(end_ns, _)| now_ns.saturating_sub(*end_ns) > BEFORE_NS).is_some() {}
        for open in &mut self.open {
            let mut packets = open.sample.take();
            packets.sort_unstable_by_key(|packet| packet.number);
            open.packets.append(&mut packets);
        }
        let is_done = |open: &mut Open| now_ns >= open.until_ns || open.packets.len() >= PACKETS_MAX;
        let done = self.open.extract_if(.., is_done).map(|mut open| {
            open.packets.truncate(PACKETS_MAX);
            Excerpt { attack: open.attack, packets: open.packets, seen: open.seen }
        });
        self.done.extend(done);
    }

    /// Ends all excerpts, because nothing follows.
    pub fn finish(&mut self, now_ns: u64) {
        self.open.iter_mut().for_each(|open| open.until_ns = 0);
        self.end_window(now_ns);
    }

    /// The excerpts that are complete.
    pub fn take(&mut self) -> Vec<Excerpt> {
        std::mem::take(&mut self.done)
    }

    /// Attacks that have no excerpt, because too many were collected at once.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// At most `most` of the packets, evenly spread.
fn spread(packets: &[&Packet], most: usize) -> Vec<Packet> {
    let kept = packets.len().min(most);
    (0..kept).map(|at| packets[at * packets.len() / kept].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Excerpts, Frame, PACKETS_MAX};
    use crate::header::Header;
    use crate::measure::WINDOW_NS;
    use crate::prefix::Prefix;
    use weir_abi::Link;

    const VICTIM: u32 = 0xc000_0201;

    fn see(excerpts: &mut Excerpts, saddr: u32, daddr: u32, time_ns: u64, is_proven: bool) {
        let bytes = [saddr as u8; 1500];
        let frame = Frame { bytes: &bytes, wire_len: 1500, link: Link::Ethernet };
        excerpts.see(&Header::between(saddr, daddr), frame, time_ns, false, is_proven);
    }

    /// Windows of a flood, in which a customer sends two packets, beside another host with ten times as many.
    fn flooded(windows: u64, begin_at: u64) -> Excerpts {
        let mut excerpts = Excerpts::new(7);
        for window in 0..windows {
            let time_ns = window * WINDOW_NS;
            (0..2).for_each(|at| see(&mut excerpts, 1, VICTIM, time_ns + at, true));
            (0..500).for_each(|at| see(&mut excerpts, 2, VICTIM, time_ns + 10 + at, false));
            (0..5000).for_each(|at| see(&mut excerpts, 3, VICTIM + 1, time_ns + 1000 + at, false));
            excerpts.end_window(time_ns + WINDOW_NS);
            if window == begin_at {
                excerpts.begin(1, Prefix::of(false, VICTIM.into(), 32), time_ns + WINDOW_NS);
            }
        }
        excerpts
    }

    #[test]
    fn it_shows_the_victim_before_and_after_and_all_of_its_customers() {
        let mut excerpts = flooded(120, 30);
        let done = excerpts.take();
        assert_eq!((done.len(), excerpts.left_out(), excerpts.take().len()), (1, 0, 0));
        let excerpt = &done[0];
        assert!(excerpt.packets.len() <= PACKETS_MAX && excerpt.seen == 40 * 502, "{}", excerpt.seen);
        assert!(excerpt.packets.is_sorted_by_key(|packet| packet.time_ns));
        assert!(excerpt.packets.iter().all(|packet| packet.bytes.len() == BYTES_MAX && packet.bytes[0] != 3));
        let (before, after): (Vec<_>, Vec<_>) =
            excerpt.packets.iter().partition(|packet| packet.time_ns < 31 * WINDOW_NS);
        assert!(before.len() > 100 && before[0].time_ns < 12 * WINDOW_NS, "{}", before.len());
        let customers = after.iter().filter(|packet| packet.bytes[0] == 1).count();
        assert_eq!((customers, after.len()), (2 * 40, (2 + 64) * 40));
    }

    #[test]
    fn it_ends_with_the_attack_and_their_number_is_bounded() {
        let mut excerpts = flooded(40, 30);
        assert_eq!(excerpts.take(), []);
        for attack in 2..20 {
            excerpts.begin(attack, Prefix::of(false, (VICTIM + 1).into(), 32), 40 * WINDOW_NS);
        }
        assert_eq!(excerpts.left_out(), 18 - 7);
        excerpts.end(1);
        excerpts.end_window(41 * WINDOW_NS);
        assert_eq!(excerpts.take().iter().map(|excerpt| excerpt.attack).collect::<Vec<_>>(), [1]);
        excerpts.finish(41 * WINDOW_NS);
        assert_eq!(excerpts.take().len(), 7);
    }
}
