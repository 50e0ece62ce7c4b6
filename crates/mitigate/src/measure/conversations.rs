//! Which packets belong to a conversation whose other side has proven that it is real.
//!
//! A source is real if it knows what only a receiver of the protected host's answers can know: the sequence numbers of
//! TCP. Made-up sources and reflected answers never prove that. So the rate of packets *without* proof shows an attack
//! that hides in much legitimate traffic, and a crowd of real clients does not show in it.
//!
//! Other protocols have nothing that only a receiver knows. There answers vouch for a bounded number of packets
//! ([`turns`]), and what that permits is bounded too (the table in docs/guide/mitigation.md).
//!
//! Packets with a source inside that arrive from outside are forged, and must not come here.
//!
//! Where only one direction is seen, the other side's numbers are unknown. There a source counts as plausible when its
//! own numbers continue, which is weaker: an attacker can send a made-up handshake and continue it. What that is worth
//! is for the caller to say.

mod conversation;
mod fragments;
mod numbers;
mod protocols;
mod standing;
mod turns;

use super::slots::{Slots, address_hash, hash};
use crate::class;
use crate::header::{Header, protocol, tcp};
use conversation::{Conversation, IDLE_NS, Party, STEPS};
use fragments::Fragments;
use numbers::{exchange, note, proves};
pub use protocols::is_ping;
use protocols::{can_prove, may_be_stream, pay};
use serde::{Deserialize, Serialize};
pub use standing::{Proof, Standing, Stream, Voucher};
use weir_abi::PacketClass;
use weir_abi::packet::Fragment;

/// Conversations that are remembered.
const CAPACITY: usize = 1 << 17;
/// Echo requests for each reply of a host that answers: it limits its replies, and some are on their way.
const ECHOES_PER_ANSWER: u32 = 4;
/// Datagrams from one port to one port, and the time between the first and the last, after which their source counts as
/// real there.
const DATAGRAMS_MIN: u32 = 16;
const DATAGRAMS_MS: u32 = 3000;
/// SYNs of a connection that wait for its handshake: clients repeat them a few times. More are an attack.
const WAITING_MAX: u32 = 8;

/// The conversations of a recording or a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conversations {
    slots: Slots<Conversation>,
    fragments: Fragments,
    seed: u64,
    window: u64,
    last_ns: u64,
    /// For how long an answer pays, and how many packets each one stands for that is seen.
    paid_ns: u64,
    scale: f64,
}

impl Conversations {
    /// No conversation yet. The seed is a secret.
    pub fn new(seed: u64) -> Self {
        let (slots, fragments) = (Slots::new(CAPACITY), Fragments::new(seed));
        Conversations { slots, fragments, seed, window: 1, last_ns: 0, paid_ns: turns::PAID_NS, scale: 1.0 }
    }

    /// Begins a window.
    pub fn begin_window(&mut self) {
        self.window += 1;
    }

    /// Sets how many packets each one stands for that is seen. The fewer are seen, the longer an answer pays.
    pub fn scale(&mut self, packets: f64) {
        self.scale = packets;
        self.paid_ns = (turns::PAID_NS as f64 * packets).clamp(turns::PAID_NS as f64, IDLE_NS as f64) as u64;
    }

    /// The key of the packet's conversation, and the side that sent it: 0 for the lower endpoint.
    fn key(&self, header: &Header) -> (u64, usize) {
        let ends = [(header.saddr, header.sport), (header.daddr, header.dport)];
        let side = usize::from(ends[0] > ends[1]);
        let hashes = ends.map(|(address, port)| hash(address_hash(self.seed, header.is_ipv6, address), &[port.into()]));
        let (first, second) = (hashes[side], hashes[1 - side]);
        (hash(self.seed, &[first, second, header.protocol.into()]), side)
    }

    /// What is known of the sender of a packet, without counting the packet again.
    pub fn proof(&self, header: &Header) -> Proof {
        if header.fragment == Fragment::Later {
            return self.fragments.proof(header, self.last_ns);
        }
        if !can_prove(header) {
            return Proof::None;
        }
        let (key, side) = self.key(header);
        let Some(entry) = self.slots.get(key, |entry| entry.key == key) else { return Proof::None };
        let own = &entry.sides[side];
        // If an answer pays for only a part of what a side sent in this window, it is unknown which part.
        let is_paid = own.turns.is_vouched() && (entry.window != self.window || own.pending == 0);
        if !own.is_real && is_paid { Proof::Vouched(entry.voucher(side, self.last_ns)) } else { entry.numbers(side) }
    }

    /// What is known of the sender of a packet that an action drops, and whether the packet is the first behind an
    /// answer. The packet can be the proof itself: the only answer to a question, or the SYN-ACK to a client. It
    /// reaches no receiver, so it can only begin or continue a stream.
    pub fn see_dropped(&mut self, header: &Header, now_ns: u64) -> (Proof, bool) {
        self.last_ns = now_ns;
        if header.fragment == Fragment::Later {
            return (self.fragments.take(header, now_ns), false);
        }
        if !can_prove(header) {
            return (Proof::None, false);
        }
        let (key, side) = self.key(header);
        if may_be_stream(header) && self.slots.get(key, |entry| entry.key == key).is_none() {
            // It displaces nothing that is alive.
            self.slots.add(key, Conversation::new(key, self.window, side, now_ns), 0, |entry| entry.value(now_ns));
        }
        let Some(entry) = self.slots.find(key, |entry| entry.key == key) else { return (Proof::None, false) };
        let is_real = proves(header, entry, side);
        let is_paid = is_entitled(header, entry, side) && entry.sides[side].turns.spend(now_ns);
        let (voucher, numbers) = (entry.voucher(side, now_ns), entry.numbers(side));
        let own = &mut entry.sides[side];
        own.dropped = own.dropped.saturating_add(1);
        let (proof, is_fresh) = match (is_real, is_paid) {
            (true, _) => (Proof::Real, true),
            (false, true) => (Proof::Vouched(voucher), own.turns.take_fresh()),
            (false, false) => (numbers, false),
        };
        if header.fragment == Fragment::First {
            self.fragments.vouch(header, now_ns, proof);
        }
        (proof, is_fresh)
    }

    /// Whether a packet belongs to a stream.
    pub fn is_stream(&self, header: &Header) -> bool {
        if !may_be_stream(header) || !can_prove(header) {
            return false;
        }
        let (key, side) = self.key(header);
        self.slots.get(key, |entry| entry.key == key).is_some_and(|entry| entry.sides[side].is_stream())
    }

    /// Whether the other side has answered the sender of a datagram or of an echo request, as often as it asks.
    pub fn is_answered(&self, header: &Header) -> bool {
        if !(header.protocol == protocol::UDP && can_prove(header) || is_ping(header)) {
            return false;
        }
        let (key, side) = self.key(header);
        let is_answered = |entry: &Conversation| {
            let (own, other) = (&entry.sides[side], &entry.sides[1 - side]);
            match header.protocol {
                protocol::UDP => own.turns.has_credit(self.last_ns),
                _ => other.packets.saturating_mul(ECHOES_PER_ANSWER) >= own.packets && other.packets > 0,
            }
        };
        let entry = self.slots.get(key, |entry| entry.key == key);
        entry.is_some_and(|entry| entry.asker == side && is_answered(entry))
    }

    /// Counts a packet and says what it shows.
    pub fn see(&mut self, header: &Header, now_ns: u64) -> Standing {
        self.last_ns = now_ns;
        if header.fragment == Fragment::Later {
            return Standing { proof: self.fragments.take(header, now_ns), ..Standing::UNKNOWN };
        }
        let standing = self.see_whole(header, now_ns);
        if header.fragment == Fragment::First {
            self.fragments.vouch(header, now_ns, standing.proof);
        }
        standing
    }

    /// Whether the sender of a packet that was seen shows that it has received an answer. Where the other side's
    /// packets are not seen, that its own numbers continue is enough.
    pub fn has_shown(&self, header: &Header, proof: Proof) -> bool {
        let is_other_seen = || {
            let (key, side) = self.key(header);
            self.slots.get(key, |entry| entry.key == key).is_some_and(|entry| entry.sides[1 - side].has_begun)
        };
        match proof {
            Proof::None | Proof::Vouched(_) => false,
            Proof::Plausible(_) => !is_other_seen(),
            Proof::Real => true,
        }
    }

    /// A SYN proxy stops a packet that was seen. It is not counted, so it is not taken back when its sender proves
    /// itself. A SYN waits until then. Returns the key of the conversation if it does.
    pub fn stop(&mut self, header: &Header, proof: Proof) -> Option<u64> {
        let (key, side) = self.key(header);
        let entry = self.slots.find(key, |entry| entry.key == key)?;
        let own = &mut entry.sides[side];
        own.pending = own.pending.saturating_sub(u32::from(proof == Proof::None));
        let waits = class::of(header) == PacketClass::Syn && own.waiting < WAITING_MAX;
        own.waiting += u32::from(waits);
        waits.then_some(key)
    }

    /// The key of the conversation, and the SYNs of the sender that wait. They wait no longer.
    pub fn take_waiting(&mut self, header: &Header) -> (u64, u32) {
        let (key, side) = self.key(header);
        let entry = self.slots.find(key, |entry| entry.key == key);
        (key, entry.map_or(0, |entry| std::mem::take(&mut entry.sides[side].waiting)))
    }

    /// As [`Conversations::see`], for packets with a transport header.
    fn see_whole(&mut self, header: &Header, now_ns: u64) -> Standing {
        if !can_prove(header) {
            return Standing::UNKNOWN;
        }
        let (key, side) = self.key(header);
        let window = self.window;
        if self.slots.find(key, |entry| entry.key == key).is_none() {
            let entry = Conversation::new(key, window, side, now_ns);
            self.slots.add(key, entry, u64::MAX - 1, |entry| entry.value(now_ns));
        }
        let Some(entry) = self.slots.find(key, |entry| entry.key == key) else { return Standing::UNKNOWN };
        if entry.window != window {
            entry.window = window;
            entry.sides.iter_mut().for_each(|side| side.pending = 0);
        }
        entry.last_ns = now_ns;
        if header.protocol == protocol::TCP && header.flags & tcp::RST != 0 {
            entry.sides.iter_mut().for_each(|side| side.has_ended = true);
        }
        if entry.sides.iter().all(|side| side.packets == 0) {
            (entry.asker, entry.is_asker_known) = (side, header.arrival.is_some());
        }
        if header.protocol != protocol::TCP {
            return see_datagram(header, entry, side, (now_ns, self.paid_ns));
        }
        let before = entry.numbers(side);
        let is_real = proves(header, entry, side);
        let exchanged = exchange(header, entry, side, self.scale);
        let own = &mut entry.sides[side];
        own.is_real |= is_real;
        note(header, own);
        if own.steps >= STEPS {
            own.plausible_ns.get_or_insert(now_ns);
        }
        let proof = entry.numbers(side);
        let own = &mut entry.sides[side];
        let is_news = proof != before;
        // Clients repeat their SYN a few times. More were not theirs, or are an attack.
        let redeemed = if is_news { std::mem::take(&mut own.pending).min(WAITING_MAX) } else { 0 };
        own.pending = own.pending.saturating_add(u32::from(proof == Proof::None));
        Standing { proof, is_news, redeemed, stream: Stream::None, exchanged }
    }
}

/// As [`Conversations::see`], for a packet of a protocol without numbers.
fn see_datagram(header: &Header, entry: &mut Conversation, side: usize, (now_ns, paid_ns): (u64, u64)) -> Standing {
    let before = entry.numbers(side);
    let was_vouched = entry.sides[side].turns.is_vouched();
    let is_paid = is_entitled(header, entry, side) && entry.sides[side].turns.spend(now_ns);
    let _was_first = entry.sides[side].turns.take_fresh();
    let voucher = entry.voucher(side, now_ns);
    if let Some(pay) = pay(header) {
        entry.sides[1 - side].turns.earn(pay, now_ns, paid_ns);
    }
    let window = entry.window;
    let own = &mut entry.sides[side];
    note(header, own);
    if class::of(header) == PacketClass::Udp {
        note_datagram(own, now_ns);
    }
    if own.steps >= STEPS {
        own.plausible_ns.get_or_insert(now_ns);
    }
    let proof = if is_paid { Proof::Vouched(voucher) } else { entry.numbers(side) };
    let own = &mut entry.sides[side];
    let is_news = if is_paid { !was_vouched } else { proof != before };
    let redeemed = match proof {
        Proof::Vouched(_) => own.turns.redeem(own.pending),
        _ if is_news => own.pending,
        _ => 0,
    };
    own.pending -= redeemed;
    let stream = if is_paid { Stream::None } else { stream(header, own, window) };
    if proof == Proof::None {
        own.pending = own.pending.saturating_add(1);
    }
    Standing { proof, is_news, redeemed, stream, exchanged: 0 }
}

/// Notes a packet of a stream. TCP and ICMP have no streams: their legitimate senders have answers, and so have proof.
fn stream(header: &Header, own: &mut Party, window: u64) -> Stream {
    if !may_be_stream(header) || !own.is_stream() {
        return Stream::None;
    }
    if own.stream_window == window {
        return Stream::Further;
    }
    own.stream_window = window;
    Stream::First(own.pending)
}

/// Remembers a datagram of a client. Made-up sources do not send many over some seconds.
fn note_datagram(own: &mut Party, now_ns: u64) {
    let now_ms = (now_ns / 1_000_000) as u32;
    if own.packets == 1 {
        own.first = now_ms;
    }
    if own.packets >= DATAGRAMS_MIN && now_ms.wrapping_sub(own.first) >= DATAGRAMS_MS {
        own.steps = STEPS;
    }
}

/// Whether answers may vouch for a packet: it answers, or is not the first question.
fn is_entitled(header: &Header, entry: &Conversation, side: usize) -> bool {
    let (own, other) = (&entry.sides[side], &entry.sides[1 - side]);
    let was_asked = other.packets > 0 && entry.asker != side;
    match header.protocol {
        protocol::TCP => false,
        protocol::ICMP | protocol::ICMP6 => was_asked && matches!(header.icmp_type, 0 | 129),
        _ => was_asked || other.packets > 0 && own.packets > 0,
    }
}

#[cfg(test)]
mod tests;
