//! The reference tracker: which flow a packet belongs to, its state, and why it is refused.
//!
//! It keeps what the entries of [`weir_abi::flow`] have room for, and nothing more. `docs/reference/tracking.md` has
//! the rules.

mod holding;
mod proxied;
mod quote;
mod restored;
mod segment;
mod switch;
mod synproxy;
mod table;
mod tcp;
mod tracked;
mod window;

#[cfg(test)]
mod tests;

use super::packet::{Frame, Packet, be16};
use super::rewrite;
use crate::ir::{PacketState, Tracking};
pub(super) use holding::Holding;
use proxied::Subject;
use segment::{Kind, Segment};
use synproxy::SynProxy;
use table::{FlowTable, Slot};
use tcp::Outcome;
use tracked::Opening;
pub(super) use tracked::Tracked;
use weir_abi::Reason;
use weir_abi::flow::{Arrival, Exchanges, Flow, FlowKey, FlowState, Prompt, Side, TICKS, ticks};
use weir_abi::packet::{Fragment, L3, L4};

/// The flows of a program, and their clock.
pub(super) struct Tracker {
    settings: Tracking,
    table: FlowTable,
    /// Time of the latest tracked packet, ns; `None` before the first.
    clock_ns: Option<u64>,
    /// Present if the policy says how SYNs are answered.
    synproxy: Option<SynProxy>,
}

/// The types of ICMP messages (RFC 792, 950) and of ICMPv6 messages (RFC 4443, 4861, 2710, 3810) by what the tracker
/// does with them.
enum IcmpKind {
    /// A request; its type.
    Request(u8),
    /// A reply; the type of its request.
    Reply(u8),
    /// An error, which quotes the packet that caused it.
    Error,
    /// A message between neighbours.
    Neighbour,
    Other,
}

impl IcmpKind {
    fn of(packet: &Packet) -> Self {
        match (packet.l4, packet.icmp_type) {
            (L4::Icmp, kind @ (8 | 13 | 15 | 17)) => IcmpKind::Request(kind),
            (L4::Icmp, 0) => IcmpKind::Reply(8),
            (L4::Icmp, kind @ (14 | 16 | 18)) => IcmpKind::Reply(kind - 1),
            (L4::Icmp, 3 | 4 | 5 | 11 | 12) => IcmpKind::Error,
            (L4::Icmp6, 128) => IcmpKind::Request(128),
            (L4::Icmp6, 129) => IcmpKind::Reply(128),
            (L4::Icmp6, 0..=127) => IcmpKind::Error,
            (L4::Icmp6, 130..=137 | 143) => IcmpKind::Neighbour,
            _ => IcmpKind::Other,
        }
    }
}

impl Tracker {
    pub(super) fn new(settings: &Tracking) -> Self {
        let synproxy = settings.synproxy.as_ref().map(SynProxy::new);
        Tracker { settings: *settings, table: FlowTable::new(settings), clock_ns: None, synproxy }
    }

    /// Sets the clock, which never goes back.
    fn tick(&mut self, time_ns: u64) {
        self.clock_ns = self.clock_ns.max(Some(time_ns));
    }

    fn now(&self) -> u32 {
        ticks(self.clock_ns.expect("the clock is set before a packet is tracked"))
    }

    /// Tracks a well-formed packet that arrived from a side: updates the flow that it belongs to. A packet that may
    /// open a flow changes nothing until it is accepted ([`Tracker::open`]).
    pub(super) fn track(&mut self, packet: &Packet, frame: Frame<'_>, arrival: Arrival) -> Tracked {
        self.tick(frame.time_ns);
        let is_ip = matches!(packet.l3, L3::Ipv4 | L3::Ipv6);
        if !is_ip || packet.fragment == Fragment::Later {
            return Tracked::UNTRACKED;
        }
        match packet.l4 {
            // The end of the segment is not known.
            L4::Tcp if packet.fragment == Fragment::First => Tracked::refused(Reason::OUT_OF_WINDOW),
            L4::Tcp => self.tcp(packet, frame, arrival),
            L4::Icmp | L4::Icmp6 => self.icmp(packet, frame, arrival),
            L4::Udp | L4::Ports | L4::Other | L4::None => {
                self.request_or_reply(self.key(packet, arrival), arrival.side())
            }
        }
    }

    /// Enters the flow that an accepted packet opens, if there is room.
    pub(super) fn open(&mut self, tracked: &Tracked) {
        let Some(Opening { key, flow, proxied }) = tracked.opening else { return };
        let now = self.now();
        // A connection that begins anew takes the place of the old one.
        let slot = match self.table.find(&key, now) {
            Some((slot, _)) => Some(slot),
            None => self.table.insert(&key, &flow, now),
        };
        if let Some(slot) = slot {
            self.table.set(slot, &flow);
            proxied.iter().for_each(|proxied| self.table.set_proxied(slot, *proxied));
        }
    }

    /// Enters a flow at a time, ns. Returns whether it had room.
    pub(super) fn enter(&mut self, key: &FlowKey, flow: &Flow, time_ns: u64) -> bool {
        self.tick(time_ns);
        self.table.insert(key, flow, self.now()).is_some()
    }

    /// Calls `visit` with the key and state of each flow, also of expired ones.
    pub(super) fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.table.each(visit);
    }

    /// Checks the invariants of the table, for tests. Panics if one is violated.
    pub(super) fn verify(&self) {
        self.table.verify();
    }

    fn tcp(&mut self, packet: &Packet, frame: Frame<'_>, arrival: Arrival) -> Tracked {
        let Some(segment) = Segment::read(packet, frame) else { return Tracked::refused(Reason::BAD_FLAGS) };
        let now = self.now();
        let (key, sender) = (self.key(packet, arrival), arrival.side());
        let known = self.table.find(&key, now);
        let is_syn = segment.kind == Kind::Syn;
        if is_syn && self.synproxy.is_some() && proxied::is_stray(packet, frame) {
            return Tracked::refused(Reason::NO_STATE);
        }
        let Some((slot, flow)) = known else {
            let by_cookie = self.opened_by_cookie(packet, frame, &segment, key, sender);
            let tracked = by_cookie.unwrap_or_else(|| self.reopened(key, sender, &segment));
            let tracked = self.if_there_is_room(tracked);
            return if is_syn { tracked.asking(key, sender, true) } else { tracked };
        };
        let is_unproven = proxied::is_unproven(&flow, sender);
        let tracked =
            self.of_connection(Subject { packet, frame, segment: &segment, key, sender, slot, flow }, is_unproven);
        let may_be_answered = is_unproven || tracked.opening.is_some();
        if is_syn { tracked.asking(key, sender, may_be_answered) } else { tracked }
    }

    /// Tracks a segment of a known connection.
    fn of_connection(&mut self, subject: Subject<'_>, is_unproven: bool) -> Tracked {
        let Subject { packet, frame, segment, key, sender, slot, flow } = subject;
        // Where a SYN would open the connection anew, or might as well, a cookie does.
        let is_over = flow.state == FlowState::TimeWait || flow.state == FlowState::Closed && sender == flow.opener;
        if (is_over || is_unproven)
            && !self.has_used_cookie(&subject)
            && let Some(tracked) = self.opened_by_cookie(packet, frame, segment, key, sender)
        {
            return tracked;
        }
        if flow.proxied {
            return self.of_proxied(subject);
        }
        let outcome = tcp::judge(&flow, sender, segment, &self.settings);
        self.after(outcome, key, sender, slot, &flow, segment)
    }

    /// Does to a flow what the outcome of a segment says.
    fn after(
        &mut self,
        outcome: Outcome,
        key: FlowKey,
        sender: usize,
        slot: Slot,
        flow: &Flow,
        segment: &Segment<'_>,
    ) -> Tracked {
        let now = self.now();
        let is_reply = sender != flow.opener;
        let state = if is_reply || flow.replied { PacketState::Established } else { PacketState::New };
        match outcome {
            Outcome::Update(next) => {
                self.table.set(slot, &Flow { time: now, replied: next.replied | is_reply, ..next });
            }
            Outcome::Keep(next) => self.table.set(slot, &Flow { replied: next.replied | is_reply, ..next }),
            Outcome::Remove => self.table.remove(slot),
            Outcome::Refuse(reason) => return Tracked::refused(reason),
            Outcome::Reopen => return self.reopened(key, sender, segment),
        }
        Tracked::of(state)
    }

    fn icmp(&mut self, packet: &Packet, frame: Frame<'_>, arrival: Arrival) -> Tracked {
        let (request, is_reply) = match IcmpKind::of(packet) {
            IcmpKind::Request(request) => (request, false),
            IcmpKind::Reply(request) => (request, true),
            IcmpKind::Error => return self.error(packet, frame, arrival),
            IcmpKind::Neighbour => return Tracked::UNTRACKED,
            IcmpKind::Other => return Tracked::refused(Reason::NO_STATE),
        };
        let identifier = be16(&frame.bytes[packet.l4_offset + 4..]);
        let ends = [packet.saddr, packet.daddr];
        let vlan = self.vlan(packet);
        let prompt = Prompt { identifier, request, is_reply };
        let key = FlowKey::of_icmp(arrival, ends, prompt, packet.proto, vlan, is_ipv6(packet));
        let now = self.now();
        if is_reply && self.table.find(&key, now).is_none() {
            return Tracked::refused(Reason::NO_STATE);
        }
        self.request_or_reply(key, arrival.side())
    }

    /// Tracks a packet of a protocol without connections.
    fn request_or_reply(&mut self, key: FlowKey, sender: usize) -> Tracked {
        let now = self.now();
        let Some((slot, flow)) = self.table.find(&key, now) else {
            let (state, sides) = (FlowState::Unreplied, [Side::default(); 2]);
            let flow = Flow {
                time: now,
                state,
                opener: sender,
                liberal: false,
                replied: false,
                syn: false,
                proxied: false,
                sides,
            };
            return self.if_there_is_room(Tracked::opens(key, flow, None));
        };
        let mut exchanges = Exchanges::of(&flow);
        let state = exchanges.see(flow.state, sender != flow.opener, now);
        let replied = state != FlowState::Unreplied;
        let mut next = Flow { time: now, replied, state, ..flow };
        exchanges.store(&mut next);
        self.table.set(slot, &next);
        Tracked::of(if replied { PacketState::Established } else { PacketState::New })
    }

    /// Tracks an ICMP error. It belongs to the flow of the packet that it quotes, and goes back to the sender of that
    /// packet, so the packet had come from the other side.
    fn error(&mut self, packet: &Packet, frame: Frame<'_>, arrival: Arrival) -> Tracked {
        let (now, of_quoted) = (self.now(), arrival.other());
        let Some(quoted) = quote::read(packet, self.vlan(packet), frame, of_quoted) else {
            return Tracked::refused(Reason::NO_STATE);
        };
        if quoted.source != packet.daddr {
            return Tracked::refused(Reason::NO_STATE);
        }
        let Some((slot, flow)) = self.table.find(&quoted.key, now) else { return Tracked::refused(Reason::NO_STATE) };
        let Some(seq) = quoted.seq else { return Tracked::of(PacketState::Related) };
        // What the server has sent was translated.
        let proxied = (flow.proxied && of_quoted.side() != flow.opener).then(|| self.table.proxied(slot));
        let seq = seq.wrapping_sub(proxied.map_or(0, |proxied| proxied.delta));
        if !window::has_sent(&flow, of_quoted.side(), seq) {
            return Tracked::refused(Reason::OUT_OF_WINDOW);
        }
        let related = Tracked::of(PacketState::Related);
        match proxied {
            Some(proxied) => related.leaving(rewrite::quote_from_client(packet, frame, quoted.seq_at, &proxied)),
            None => related,
        }
    }

    /// The key of a packet with ports, or with none.
    fn key(&self, packet: &Packet, arrival: Arrival) -> FlowKey {
        let (source, destination) = ((packet.saddr, packet.sport), (packet.daddr, packet.dport));
        FlowKey::of(arrival, source, destination, packet.proto, self.vlan(packet), is_ipv6(packet))
    }

    /// The ids of the outer and the inner tag, unless the policy ignores them. A priority tag has the id 0, as a packet
    /// without tag.
    fn vlan(&self, packet: &Packet) -> [u16; 2] {
        match self.settings.vlan_ignore {
            true => [0; 2],
            false => [0, 1].map(|tag| packet.vlan.get(tag).copied().unwrap_or(0)),
        }
    }

    /// A packet that opens a flow, if the table has room.
    fn if_there_is_room(&mut self, tracked: Tracked) -> Tracked {
        match &tracked.opening {
            Some(Opening { key, flow, .. }) if !self.table.has_room(key, flow.time) => {
                debug_assert!(flow.time < TICKS);
                Tracked::refused(Reason::STATE_FULL)
            }
            _ => tracked,
        }
    }
}

fn is_ipv6(packet: &Packet) -> bool {
    packet.l3 == L3::Ipv6
}
