//! Packets of proxied flows. The flow has the server's numbers: a packet of the client is translated before it is
//! judged, one of the server afterwards.
//!
//! One idea with `mod.rs`: the tracker, whose part for proxied flows this is.

use super::segment::{Kind, Segment};
use super::synproxy::{keep_alive, syn};
use super::table::Slot;
use super::tcp;
use super::{Tracked, Tracker};
use crate::ir::PacketState;
use crate::ir::eval::packet::{self, Frame, Packet, tcp_flag};
use crate::ir::eval::rewrite::{self, Built, Leaving, Way};
use crate::ir::eval::tcp_options;
use weir_abi::flow::{Flow, FlowKey, FlowState, Proxied};
use weir_abi::packet::L3;
use weir_abi::{Link, Reason};

/// A packet of a proxied flow.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) packet: &'a Packet,
    pub(super) frame: Frame<'a>,
    pub(super) segment: &'a Segment<'a>,
    pub(super) key: FlowKey,
    pub(super) sender: usize,
    pub(super) slot: Slot,
    pub(super) flow: Flow,
}

impl Subject<'_> {
    /// The packet that leaves in its place.
    fn becomes(&self, built: &Built) -> Leaving {
        rewrite::build(self.packet, self.frame, built)
    }
}

/// Whether the sender opened its connection without a cookie, and has not finished the handshake. Its address may be
/// forged. So its SYN is answered like a SYN without a flow, and a cookie opens the connection anew.
pub(super) fn is_unproven(flow: &Flow, sender: usize) -> bool {
    use FlowState::{SynReceived, SynReceived2, SynSent, SynSent2};
    let is_handshake = matches!(flow.state, SynSent | SynSent2 | SynReceived | SynReceived2);
    !flow.proxied && sender == flow.opener && (is_handshake || !flow.replied)
}

/// Whether one end of a packet cannot be a host, or both ends are equal (RFC 9293, MUST-57 and MUST-63; RFC 1122,
/// section 3.2.1.3).
pub(super) fn is_stray(packet: &Packet, frame: Frame<'_>) -> bool {
    // The bit of group addresses (IEEE 802, section 8.2.2).
    let has_group = frame.link == Link::Ethernet && (frame.bytes[0] | frame.bytes[6]) & 1 != 0;
    let is_no_host = |address: u128| match packet.l3 {
        L3::Ipv6 => address == 0 || address >> 120 == 0xff,
        _ => address == 0 || address == u32::MAX.into() || address >> 28 == 0xe,
    };
    has_group || packet.saddr == packet.daddr || is_no_host(packet.saddr) || is_no_host(packet.daddr)
}

impl Tracker {
    /// Whether a packet acknowledges the cookie that opened its flow, and the server has answered.
    pub(super) fn has_used_cookie(&self, subject: &Subject<'_>) -> bool {
        let Subject { segment, slot, flow, .. } = subject;
        if !flow.proxied || !flow.replied {
            return false;
        }
        let proxied = self.table.proxied(*slot);
        segment.ack.is_some_and(|ack| ack.wrapping_sub(1) == proxied.delta.wrapping_add(proxied.isn))
    }

    /// Tracks a packet of a proxied flow.
    pub(super) fn of_proxied(&mut self, subject: Subject<'_>) -> Tracked {
        match (subject.flow.state, subject.sender == subject.flow.opener) {
            (FlowState::SynSent, true) => self.client_waits(subject),
            (FlowState::SynSent, false) => self.server_answers(subject),
            (_, true) => self.client_goes_on(subject),
            (_, false) => self.server_goes_on(subject),
        }
    }

    /// A packet of the client before the server has answered. The SYN may have been lost, so each acknowledgement of
    /// the cookie becomes the SYN again.
    fn client_waits(&mut self, subject: Subject<'_>) -> Tracked {
        let Subject { segment, key, sender, slot, flow, .. } = subject;
        let proxied = self.table.proxied(slot);
        let isn = flow.sides[sender].una;
        match segment.kind {
            Kind::Syn if segment.seq == isn => self.syn_again(subject, isn, &proxied),
            Kind::Syn => self.reopened(key, sender, segment),
            Kind::Ack if segment.ack == Some(proxied.delta.wrapping_add(1)) => {
                // The client's window is 0: it sends the next number, or probes the window.
                match segment.seq.wrapping_sub(isn) <= 1 {
                    true => self.syn_again(subject, isn, &proxied),
                    false => Tracked::refused(Reason::OUT_OF_WINDOW),
                }
            }
            Kind::Ack => self
                .opened_by_cookie(subject.packet, subject.frame, segment, key, sender)
                .unwrap_or(Tracked::refused(Reason::BAD_ACK)),
            Kind::SynAck | Kind::Fin => Tracked::refused(Reason::BAD_FLAGS),
            Kind::Reset => {
                let tracked = self.judged(subject, segment);
                // The server does not know the acknowledged number.
                let (way, options, payload) = (Way::On, vec![], vec![]);
                let reset = Built { way, seq: segment.seq, ack: 0, flags: tcp_flag::RST, window: 0, options, payload };
                tracked.unless_refused(|| subject.becomes(&reset))
            }
        }
    }

    fn syn_again(&mut self, subject: Subject<'_>, isn: u32, proxied: &Proxied) -> Tracked {
        match syn(isn, subject.segment, proxied) {
            Some(syn) => Tracked::of(PacketState::New).leaving(subject.becomes(&syn)),
            None => Tracked::refused(Reason::OUT_OF_WINDOW),
        }
    }

    /// The server's answer to the SYN.
    fn server_answers(&mut self, subject: Subject<'_>) -> Tracked {
        let Subject { packet, frame, segment, slot, .. } = subject;
        let proxied = self.table.proxied(slot);
        match segment.kind {
            Kind::SynAck => {
                let tracked = self.judged(subject, segment);
                if tracked.refused.is_some() {
                    return tracked;
                }
                let timestamp = tcp_options::timestamps(segment.options).map(|[value, _]| value);
                let proxied = proxied.answered(segment.seq, timestamp);
                self.table.set_proxied(slot, proxied);
                tracked.leaving(subject.becomes(&keep_alive(packet, segment, &proxied)))
            }
            Kind::Reset => {
                let tracked = self.judged(subject, segment);
                // The client expects the number behind the cookie.
                let mut proxied = proxied;
                proxied.delta = proxied.delta.wrapping_add(1).wrapping_sub(segment.seq);
                tracked.unless_refused(|| rewrite::from_server(packet, frame, &proxied, 0))
            }
            Kind::Syn | Kind::Fin => Tracked::refused(Reason::BAD_FLAGS),
            // An old connection. The client does not know its numbers.
            Kind::Ack => Tracked::refused(Reason::BAD_ACK),
        }
    }

    fn client_goes_on(&mut self, subject: Subject<'_>) -> Tracked {
        let Subject { packet, frame, sender, slot, flow, .. } = subject;
        let scale = flow.sides[sender].scale;
        let translated = rewrite::from_client(packet, frame, &self.table.proxied(slot), scale);
        let tracked = {
            let frame = Frame { bytes: &translated.bytes, ..frame };
            let (packet, malformed) = packet::parse(frame);
            debug_assert_eq!(malformed, None, "a translation keeps lengths and flags");
            let segment = Segment::read(&packet, frame).expect("a translation keeps flags");
            self.judged(subject, &segment)
        };
        if tracked.opening.is_some() { tracked } else { tracked.leaving(translated) }
    }

    fn server_goes_on(&mut self, subject: Subject<'_>) -> Tracked {
        let Subject { packet, frame, segment, sender, slot, flow, .. } = subject;
        let proxied = self.table.proxied(slot);
        let tracked = self.judged(subject, segment);
        let has_begun_anew = self.table.at(slot).is_some_and(|flow| !flow.proxied);
        if has_begun_anew || tracked.opening.is_some() {
            return tracked;
        }
        // The octet of the keep-alive is old to the client only at the number of the cookie.
        if segment.kind == Kind::SynAck && segment.seq == proxied.isn {
            return tracked.leaving(subject.becomes(&keep_alive(packet, segment, &proxied)));
        }
        let scale = flow.sides[sender].scale;
        tracked.leaving(rewrite::from_server(packet, frame, &proxied, scale))
    }

    /// Judges a segment by its flow, as without a proxy.
    fn judged(&mut self, subject: Subject<'_>, segment: &Segment<'_>) -> Tracked {
        let Subject { key, sender, slot, flow, .. } = subject;
        let outcome = tcp::judge(&flow, sender, segment, &self.settings);
        self.after(outcome, key, sender, slot, &flow, segment)
    }

    /// A segment that begins the connection of a known flow anew.
    pub(super) fn reopened(&mut self, key: FlowKey, sender: usize, segment: &Segment<'_>) -> Tracked {
        match tcp::open(sender, segment, &self.settings, self.now()) {
            Ok(flow) => Tracked::opens(key, flow, None),
            Err(reason) => Tracked::refused(reason),
        }
    }

    /// The flow that an ACK opens, if it returns a valid cookie.
    pub(super) fn opened_by_cookie(
        &mut self,
        packet: &Packet,
        frame: Frame<'_>,
        segment: &Segment<'_>,
        key: FlowKey,
        sender: usize,
    ) -> Option<Tracked> {
        let clock_ns = self.clock_ns?;
        let opened =
            self.synproxy.as_ref().filter(|_| segment.kind == Kind::Ack)?.opened(&key, sender, segment, clock_ns)?;
        let flow = Flow { time: self.now(), ..opened.flow };
        let syn = rewrite::build(packet, frame, &opened.syn);
        Some(Tracked::opens(key, flow, Some(opened.proxied)).leaving(syn))
    }

    /// Counts a SYN, and answers it if the proxy is on and it opens a connection, or might as well. The packet must
    /// have been tracked.
    pub(in crate::ir::eval) fn answer(
        &mut self,
        tracked: &Tracked,
        packet: &Packet,
        frame: Frame<'_>,
    ) -> Option<Leaving> {
        let asking = tracked.asking?;
        let segment = Segment::read(packet, frame)?;
        let clock_ns = self.clock_ns?;
        let synproxy = self.synproxy.as_mut()?;
        if !synproxy.counts(clock_ns) || !asking.may_be_answered {
            return None;
        }
        let built = synproxy.answer(&asking.key, asking.client, &segment, clock_ns);
        Some(rewrite::build(packet, frame, &built))
    }
}
