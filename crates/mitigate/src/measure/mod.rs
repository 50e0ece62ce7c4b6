//! Feature extraction: packets in, the measurements of a window out.
//!
//! This is the reference of what generated code extracts. All memory is fixed when the extractor is made.

pub mod conversations;
pub mod counts;
pub mod entropy;
pub mod heavy;
pub mod observed;
mod proxied;
pub mod sample;
pub mod sampling;
mod seen_sources;
mod slots;
mod visibility;
mod window;

use crate::class;
use crate::header::{Arrival, Header, protocol};
use crate::prefix::{Level, Prefix};
use conversations::{Conversations, Proof, Standing, Stream, Voucher, is_ping};
use counts::Counts;
use heavy::SpaceSaving;
pub use proxied::{Handshake, Pickup, Proxied};
use sample::{Reservoir, Samples, Trust};
use sampling::Sampling;
use seen_sources::SeenSources;
use serde::{Deserialize, Serialize};
pub(crate) use slots::hash;
use slots::{Slots, address_hash};
pub use visibility::Directions;
use visibility::Visibility;
use weir_abi::PacketClass;
pub use window::{HeavySource, Source, Window};

/// Length of a window. Two of them and a decision pass in less than a second, and at 100 packets a second, the lowest
/// rate that counts as an attack, a window still has 25 packets.
pub const WINDOW_NS: u64 = 250_000_000;

/// Prefixes that are counted at each level: hosts, nets, wide prefixes.
const PREFIXES: [usize; 3] = [4096, 1024, 256];
/// Heaviest sources that are counted.
const SOURCES: usize = 1024;
/// A source that became plausible within this time before an attack was detected may belong to it: attacks begin
/// slowly, and detection takes a second.
pub const DOUBTFUL_NS: u64 = 5_000_000_000;
/// Headers of dropped packets of proven sources.
const DROPPED_HEADERS: usize = 256;
/// Sources that are known to be real, and for how long after their last proof.
const KNOWN: usize = 1 << 16;
const KNOWN_NS: u64 = 24 * 3600 * 1_000_000_000;

/// A prefix under attack, where plausible sources are not trusted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Distrusted {
    /// The prefix.
    pub prefix: Prefix,
    /// When the attack was detected, ns.
    pub detected_ns: u64,
    /// Whether the prefix had no users before. Then no plausible source is trusted. Otherwise plausible TCP sources are
    /// trusted, because a forged conversation needs their sequence numbers.
    pub is_unused: bool,
}

/// The way of a packet between the protected prefixes and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To a protected host.
    In,
    /// From one.
    Out,
    /// To a protected host and from one, if every destination is protected.
    Both,
    /// Its source is inside, but it came from outside. It is no answer and no proof.
    Forged,
    /// Neither to nor from a protected host.
    Elsewhere,
}

/// What a dropped packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// Nothing that is known.
    Nowhere,
    /// A stream without proof, not from a port of a service.
    Stream,
    /// A conversation that answers vouch for. Its source may be made up.
    Vouched,
    /// A conversation of a proven source.
    Conversation,
}

/// A source that has proven that it is real.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    source: Source,
    last_ns: u64,
}

/// Counts packets for windows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Extractor {
    inside: Vec<Prefix>,
    seed: u64,
    conversations: Conversations,
    seen: SeenSources,
    known: Slots<Known>,
    levels: [Slots<Counts>; 3],
    heavy: SpaceSaving<Source>,
    answered: SpaceSaving<Source>,
    acknowledged: SpaceSaving<Source>,
    dropped_proven: Reservoir<Header>,
    samples: Samples,
    visibility: Visibility,
    /// Prefixes under attack.
    distrusted: Vec<Distrusted>,
    packets: u64,
    /// Packets with a source inside that came from outside.
    forged: u64,
    from_ns: u64,
    last_ns: u64,
}

impl Extractor {
    /// Counts packets to the prefixes `inside`, or to all destinations if there are none. The seed is a secret.
    pub fn new(inside: Vec<Prefix>, seed: u64, from_ns: u64) -> Self {
        Extractor {
            inside,
            seed,
            conversations: Conversations::new(seed),
            seen: SeenSources::new(seed),
            known: Slots::new(KNOWN),
            levels: PREFIXES.map(Slots::new),
            heavy: SpaceSaving::new(SOURCES),
            answered: SpaceSaving::new(SOURCES),
            acknowledged: SpaceSaving::new(SOURCES),
            dropped_proven: Reservoir::new(DROPPED_HEADERS, seed),
            samples: Samples::new(seed),
            visibility: Visibility::default(),
            distrusted: Vec::new(),
            packets: 0,
            forged: 0,
            from_ns,
            last_ns: from_ns,
        }
    }

    /// Sets the prefixes to which packets are counted.
    pub fn protect_inside(&mut self, inside: Vec<Prefix>) {
        self.inside = inside;
    }

    /// How many sources are known to be real.
    pub fn known_sources(&self) -> usize {
        let is_known = |known: &&Known| self.last_ns.saturating_sub(known.last_ns) <= KNOWN_NS;
        self.known.iter().filter(is_known).count()
    }

    /// Forgets the sources that are known to be real. Returns how many there were.
    pub fn forget_sources(&mut self) -> usize {
        let count = self.known_sources();
        self.known.clear();
        count
    }

    /// Which directions of traffic are seen.
    pub fn directions(&self) -> Directions {
        self.visibility.directions()
    }

    /// Whether both directions of traffic are seen.
    pub fn is_two_way(&self) -> bool {
        self.visibility.is_two_way()
    }

    /// Whether a source has proven that it is real, in a conversation of the last day.
    pub fn is_known(&self, source: Source) -> bool {
        let hash = address_hash(self.seed, source.0, source.1);
        let known = self.known.get(hash, |known| known.source == source);
        known.is_some_and(|known| self.last_ns.saturating_sub(known.last_ns) <= KNOWN_NS)
    }

    fn is_inside(&self, is_ipv6: bool, address: u128) -> bool {
        self.inside.is_empty() || self.inside.iter().any(|prefix| prefix.contains(is_ipv6, address))
    }

    /// Sets how many packets each one stands for that is seen.
    pub fn scale(&mut self, packets: f64) {
        self.conversations.scale(packets);
    }

    /// Sets the time of the first packet, or of the first after a gap.
    pub fn begin(&mut self, now_ns: u64) {
        self.from_ns = now_ns;
    }

    /// The way of a packet. From where it came decides, if that is known, and its addresses otherwise.
    pub fn way(&self, header: &Header) -> Way {
        let is_inside = |address| self.is_inside(header.is_ipv6, address);
        if self.inside.is_empty() {
            return Way::Both;
        }
        match (header.arrival, is_inside(header.saddr), is_inside(header.daddr)) {
            (Some(Arrival::Outside), true, _) => Way::Forged,
            (Some(Arrival::Inside) | None, true, _) => Way::Out,
            (Some(Arrival::Outside) | None, false, true) => Way::In,
            (Some(Arrival::Inside), false, _) | (_, false, false) => Way::Elsewhere,
        }
    }

    /// Counts a packet. Returns whether it belongs to a conversation of a proven source.
    pub fn see(&mut self, header: &Header, now_ns: u64) -> bool {
        self.last_ns = now_ns;
        let way = self.way(header);
        let standing = match way {
            Way::Forged | Way::Elsewhere => Standing::UNKNOWN,
            Way::In | Way::Out | Way::Both => self.conversations.see(header, now_ns),
        };
        self.count(header, way, &standing, now_ns)
    }

    /// Looks at a packet of TCP that comes to a SYN proxy, and counts it if it passes. A recording has the handshake of
    /// the client with the host itself, which shows what one with the proxy would have shown.
    pub fn see_proxied(&mut self, header: &Header, now_ns: u64, pickup: Pickup) -> Proxied {
        if self.way(header) == Way::Forged {
            self.forged += 1;
            return Proxied::Refused;
        }
        let standing = self.conversations.see(header, now_ns);
        let proof = standing.proof;
        let has_shown = self.conversations.has_shown(header, proof);
        if class::of(header) == PacketClass::Syn || !has_shown && pickup == Pickup::Off {
            self.count_as_answer(header);
            let key = self.conversations.stop(header, proof);
            return key.map_or(Proxied::Refused, |key| Proxied::Waits(Handshake::of_key(key)));
        }
        let is_proven = self.count(header, self.way(header), &standing, now_ns);
        if !has_shown {
            return Proxied::Passes { is_proven };
        }
        match self.conversations.take_waiting(header) {
            (_, 0) => Proxied::Passes { is_proven },
            (key, syns) => Proxied::Completes { handshake: Handshake::of_key(key), syns, is_proven },
        }
    }

    fn count(&mut self, header: &Header, way: Way, standing: &Standing, now_ns: u64) -> bool {
        if matches!(way, Way::Out | Way::Both) {
            self.count_answer(header, standing);
        }
        self.forged += u64::from(way == Way::Forged);
        if matches!(way, Way::Out | Way::Elsewhere) || !self.is_inside(header.is_ipv6, header.daddr) {
            return standing.proof != Proof::None;
        }
        self.packets += 1;
        let source = (header.is_ipv6, header.saddr);
        let source_hash = address_hash(self.seed, header.is_ipv6, header.saddr);
        let trust = self.trust(header, standing.proof);
        self.visibility.count(header, standing);
        // Answers vouch for packets, and not for their source.
        if standing.is_news && matches!(standing.proof, Proof::Real | Proof::Plausible(_)) && trust != Trust::None {
            self.remember(source, source_hash, now_ns);
        }
        let redeemed = if trust == Trust::None { 0 } else { standing.redeemed };
        let is_new = self.seen.is_new(source_hash);
        let class = class::of(header);
        for level in Level::ALL {
            let Some(counts) = self.counts(level, header.is_ipv6, header.daddr) else { continue };
            counts.packets[class as usize] += 1;
            counts.bytes += u64::from(header.length);
            counts.new_sources += u64::from(is_new);
            if trust == Trust::None {
                count_unproven(counts, class, standing);
            }
            let redeemed = redeem(counts, class, redeemed.into());
            // A sender of datagrams that only continue can be made up as well. TCP needs numbers for it.
            if trust == Trust::Plausible && header.protocol == protocol::UDP {
                counts.vouched[class as usize] += redeemed + 1;
            }
            if let Proof::Vouched(voucher) = standing.proof {
                counts.vouched[class as usize] += redeemed + 1;
                counts.briefly_vouched[class as usize] += if voucher == Voucher::Few { redeemed + 1 } else { 0 };
            }
        }
        // Only sequence numbers prove the source of packets. Without them, a sender can get answers for another
        // address.
        if standing.proof == Proof::Real {
            self.heavy.add(source, 1);
        }
        let host_hash = address_hash(self.seed, header.is_ipv6, header.daddr);
        self.samples.offer(header, trust, host_hash);
        trust != Trust::None
    }

    fn remember(&mut self, source: Source, hash: u64, now_ns: u64) {
        match self.known.find(hash, |known| known.source == source) {
            Some(known) => known.last_ns = now_ns,
            None => {
                self.known.add(hash, Known { source, last_ns: now_ns }, u64::MAX, |known| known.last_ns);
            }
        }
    }

    /// The counts of the prefix of an address. The prefix with the fewest packets makes room for a new one.
    fn counts(&mut self, level: Level, is_ipv6: bool, address: u128) -> Option<&mut Counts> {
        let prefix = Prefix::at(level, is_ipv6, address);
        let hash = address_hash(self.seed, is_ipv6, prefix.address());
        let slots = &mut self.levels[level as usize];
        if slots.find(hash, |counts| counts.prefix == prefix).is_none() {
            slots.add(hash, Counts::new(prefix), u64::MAX, Counts::total);
        }
        slots.find(hash, |counts| counts.prefix == prefix)
    }

    /// Sets the prefixes under attack. Sources that became plausible shortly before or later may belong to the attack.
    pub fn distrust(&mut self, attacked: impl Iterator<Item = Distrusted>) {
        self.distrusted = attacked.collect();
    }

    /// What the sender of a packet is taken for. Where answers are seen, only they count.
    fn trust(&self, header: &Header, proof: Proof) -> Trust {
        let since_ns = match proof {
            Proof::None => return Trust::None,
            Proof::Real | Proof::Vouched(Voucher::Asked) => return Trust::Real,
            Proof::Vouched(Voucher::Few) => return Trust::Vouched,
            Proof::Vouched(Voucher::InTurn | Voucher::Settled) => return Trust::Settled,
            Proof::Plausible(since_ns) => since_ns,
        };
        let is_doubtful = |attacked: &Distrusted| {
            let is_of_kind = attacked.is_unused || header.protocol == protocol::UDP;
            let is_late = since_ns >= attacked.detected_ns.saturating_sub(DOUBTFUL_NS);
            is_of_kind && is_late && attacked.prefix.contains(header.is_ipv6, header.daddr)
        };
        let is_doubtful = self.visibility.is_two_way() || self.distrusted.iter().any(is_doubtful);
        if is_doubtful { Trust::None } else { Trust::Plausible }
    }

    /// Looks at a packet that an action drops, and returns what it belongs to. It is not counted, because measurements
    /// see what passes.
    pub fn see_dropped(&mut self, header: &Header, now_ns: u64) -> Belongs {
        self.last_ns = now_ns;
        if self.way(header) == Way::Forged {
            self.forged += 1;
            return Belongs::Nowhere;
        }
        let (proof, is_fresh) = self.conversations.see_dropped(header, now_ns);
        match self.trust(header, proof) {
            Trust::None | Trust::Vouched => {}
            Trust::Real if matches!(proof, Proof::Vouched(_)) && !is_fresh => return Belongs::Vouched,
            Trust::Settled if proof == Proof::Vouched(Voucher::InTurn) => {}
            Trust::Settled => return Belongs::Vouched,
            Trust::Real | Trust::Plausible => {
                self.dropped_proven.offer(*header);
                return Belongs::Conversation;
            }
        }
        let is_answer = class::of(header) == PacketClass::UdpService;
        let is_stream = !is_answer && self.conversations.is_stream(header);
        if is_stream { Belongs::Stream } else { Belongs::Nowhere }
    }

    /// A recording has the answers to SYNs that wait. Without these SYNs, the senders of the answers would seem to get
    /// no answers.
    fn count_as_answer(&mut self, header: &Header) {
        if self.is_inside(header.is_ipv6, header.saddr) {
            self.answered.add((header.is_ipv6, header.daddr), 1);
        }
    }

    /// Counts a packet from a protected host. For the source that receives it, it is an answer if it is a segment of
    /// TCP that does not refuse.
    fn count_answer(&mut self, header: &Header, standing: &Standing) {
        let receiver = (header.is_ipv6, header.daddr);
        if class::is_tcp(class::of(header)) && class::of(header) != PacketClass::Rst {
            self.answered.add(receiver, 1);
        }
        if standing.exchanged > 0 {
            self.acknowledged.add(receiver, standing.exchanged.into());
        }
        let is_syn_ack = class::of(header) == PacketClass::SynAck;
        for level in Level::ALL {
            if let Some(counts) = self.counts(level, header.is_ipv6, header.saddr) {
                counts.answers += 1;
                counts.syn_acks += u64::from(is_syn_ack);
            }
        }
    }

    fn heavy_sources(&self) -> Vec<HeavySource> {
        let heavy = self.heavy.heaviest().map(|heavy| HeavySource {
            source: heavy.key,
            packets: heavy.packets - heavy.error,
            answers: self.answered.count(heavy.key),
            exchanged: self.acknowledged.count(heavy.key),
        });
        heavy.collect()
    }

    /// Ends the window and begins the next.
    pub fn close(&mut self, now_ns: u64) -> Window {
        // A packet that was taken into the sample before its source proved itself counts as proven now.
        let trust = |header: &Header| self.trust(header, self.conversations.proof(header));
        let with = |wanted: Trust| {
            let redeemed = self.samples.unproven().iter().filter(move |header| trust(header) == wanted);
            redeemed.copied()
        };
        let is_streamed = |header: &Header| self.conversations.is_stream(header);
        let strata = self.samples.strata().filter(|header| trust(header) == Trust::None).copied();
        let (streamed_strata, strata) = strata.partition(is_streamed);
        let (streamed, unproven): (Vec<Header>, Vec<Header>) = with(Trust::None).partition(is_streamed);
        let answered = unproven.iter().filter(|header| self.conversations.is_answered(header)).copied();
        let (answered_pings, answered) = answered.partition(is_ping);
        let opening: Vec<Header> = with(Trust::Real).collect();
        let vouched = self.samples.vouched().iter().copied().chain(with(Trust::Vouched)).collect();
        let settled = self.samples.settled().iter().copied().chain(with(Trust::Settled)).collect();
        let plausible = self.samples.plausible().iter().copied().chain(with(Trust::Plausible)).collect();
        let real = self.samples.real().iter().chain(&opening).copied().collect();
        let window = Window {
            from_ns: self.from_ns,
            to_ns: now_ns,
            packets: self.packets,
            forged: std::mem::take(&mut self.forged),
            counts: self.levels.iter().flat_map(Slots::iter).copied().collect(),
            heavy: self.heavy_sources(),
            dropped_proven: self.dropped_proven.kept().to_vec(),
            unproven,
            strata,
            streamed,
            streamed_strata,
            plausible,
            vouched,
            settled,
            real,
            opening,
            answered,
            answered_pings,
            is_two_way: self.visibility.is_two_way(),
            unjudged: 0,
            sampling: Sampling::ALL,
        };
        self.visibility.end_window(self.distrusted.is_empty());
        self.conversations.begin_window();
        self.levels.iter_mut().for_each(Slots::clear);
        self.heavy.clear();
        self.answered.clear();
        self.acknowledged.clear();
        self.dropped_proven.clear();
        self.samples.clear();
        self.packets = 0;
        (self.from_ns, self.last_ns) = (now_ns, now_ns);
        window
    }
}

/// Takes back packets that were counted as unproven before their source proved itself. Unproven packets of TCP were
/// SYNs as a rule. Returns how many there were.
fn redeem(counts: &mut Counts, class: PacketClass, mut packets: u64) -> u64 {
    let all = packets;
    let mut take = |from: &mut u64| {
        let taken = packets.min(*from);
        *from -= taken;
        packets -= taken;
    };
    if class == PacketClass::Tcp {
        take(&mut counts.unproven[PacketClass::Syn as usize]);
    }
    take(&mut counts.streamed[class as usize]);
    take(&mut counts.unproven[class as usize]);
    all - packets
}

/// Counts a packet without proof. What turns out to be a stream is no longer unproven, and its first packets neither.
fn count_unproven(counts: &mut Counts, class: PacketClass, standing: &Standing) {
    let class = class as usize;
    match standing.stream {
        Stream::None => counts.unproven[class] += 1,
        Stream::First(earlier) => {
            let earlier = u64::from(earlier).min(counts.unproven[class]);
            counts.unproven[class] -= earlier;
            counts.streamed[class] += earlier + 1;
            counts.streams += 1;
        }
        Stream::Further => counts.streamed[class] += 1,
    }
}

#[cfg(test)]
mod tests;
