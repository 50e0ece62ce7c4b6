//! The differences between Weir and the kernel's conntrack. Each has a row in docs/reference/tracking.md, with the
//! section of an RFC, and a condition that holds for no other packet.

use crate::weir::Judged;
use weir_abi::flow::{Flow, FlowState, Window};
use weir_abi::{FlowState as State, Reason};
use weir_policy::ir::eval::packet::Packet;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A packet that Weir and the kernel judge differently.
pub struct Difference<'d> {
    /// The packet.
    pub packet: &'d Packet,
    /// Weir's judgement.
    pub ours: &'d Judged,
    /// The kernel's.
    pub theirs: &'d str,
    /// The flow before the packet.
    pub flow: Option<Flow>,
    /// The packets of the flow before it, each with the state of the flow before.
    pub earlier: &'d [(Packet, Option<Flow>)],
}

/// What both do afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Neither Weir nor the kernel has changed its state.
    Same,
    /// The states of both differ, so the rest of the flow is not compared.
    Diverged,
}

/// `a` comes after `b`.
fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

impl Difference<'_> {
    /// The name, if this packet is itself judged by another rule.
    fn own(&self) -> Option<(&'static str, Then)> {
        let flags = self.packet.tcp_flags;
        let valid = self.theirs != "invalid";
        if self.had_reset_with_old_ack() {
            return Some(("reset-with-old-ack", Then::Diverged));
        }
        if self.had_reset_while_opening() {
            return Some(("reset-while-opening", Then::Diverged));
        }
        if self.had_reset_in_window() {
            return Some(("reset-in-window", Then::Diverged));
        }
        match (self.ours.reason, flags & RST != 0) {
            (Some(_), false) if valid && self.is_syn_ack_of_opener() => Some(("syn-ack-of-opener", Then::Diverged)),
            (Some(Reason::OUT_OF_WINDOW), false) if valid => self.refused_segment(),
            (Some(Reason::BAD_ACK), false) if valid && self.answers_syn() => Some(("other-syn-ack", Then::Diverged)),
            (Some(Reason::BAD_ACK), false) if valid && !self.acknowledges_unsent() => Some(("old-ack", Then::Same)),
            (Some(Reason::BAD_ACK | Reason::RST_OUT_OF_WINDOW), true) if valid => self.refused_reset(),
            (None, true) if !valid => self.passed_reset(),
            _ => None,
        }
    }

    /// The name of the difference in docs/reference/tracking.md; `None` if it is not known.
    pub fn class(&self) -> Option<(&'static str, Then)> {
        self.own().or_else(|| Some((self.consequence()?, Then::Diverged)))
    }

    /// The sides of the flow: the side of the sender, then the other one.
    fn sides(&self) -> Option<[weir_abi::flow::Side; 2]> {
        let flow = self.flow?;
        let sender = self.ours.sender;
        Some([flow.sides[sender], flow.sides[1 - sender]])
    }

    fn state(&self) -> Option<State> {
        self.flow.map(|flow| flow.state)
    }

    fn is_of_opener(&self) -> bool {
        self.flow.is_some_and(|flow| flow.opener == self.ours.sender)
    }

    fn acknowledges_unsent(&self) -> bool {
        self.sides().is_some_and(|[_, other]| after(self.packet.ack, other.next))
    }

    fn is_syn_ack_of_opener(&self) -> bool {
        let opening = matches!(self.state(), Some(State::SynReceived | State::SynReceived2));
        self.packet.tcp_flags & (SYN | ACK) == SYN | ACK && self.is_of_opener() && opening
    }

    /// Whether a reset with an old acknowledgement closed the flow. The kernel ignores such a reset.
    fn had_reset_with_old_ack(&self) -> bool {
        let flows = self.earlier.iter().map(|(_, flow)| *flow).skip(1).chain([self.flow]);
        self.earlier.iter().zip(flows).any(|((packet, before), next)| {
            let sender = usize::from((packet.saddr, packet.sport) > (packet.daddr, packet.dport));
            let oldest = before.map(|flow| flow.sides[1 - sender].next.wrapping_sub(66_000));
            let is_old = oldest.is_some_and(|oldest| after(oldest, packet.ack));
            let closed = next.is_none_or(|flow| flow.state == State::Closed);
            packet.tcp_flags & (RST | ACK) == RST | ACK && is_old && closed
        })
    }

    fn answers_syn(&self) -> bool {
        self.packet.tcp_flags & (SYN | ACK) == SYN | ACK && self.state() == Some(State::SynSent)
    }

    /// The kernel lets old segments pass, and such as begin behind the window if they end within another window.
    fn refused_segment(&self) -> Option<(&'static str, Then)> {
        let [side, other] = self.sides()?;
        let upper = side.una.wrapping_add(other.window.bytes());
        let is_beyond = after(self.packet.seq, upper) && after(self.packet.seq, side.una);
        Some(if is_beyond { (self.overshoot()?, Then::Diverged) } else { ("old-segment", Then::Same) })
    }

    /// The kernel passes segments that end behind the window by less than another window. It counts what ended behind
    /// it as part of the window.
    fn overshoot(&self) -> Option<&'static str> {
        let [side, other] = self.sides()?;
        let unacknowledged = u64::from(side.next.wrapping_sub(side.una));
        let most = 2 * u64::from(other.window.bytes()) + unacknowledged;
        let beyond = u64::from(self.packet.seq.wrapping_sub(side.next));
        (!after(self.packet.seq, side.next) || beyond <= most).then_some("overshoot")
    }

    /// Whether there was a reset that the receiver may ignore. The kernel takes its numbers for the numbers of the
    /// connection.
    fn had_reset_in_window(&self) -> bool {
        let flows = self.earlier.iter().map(|(_, flow)| *flow).chain([self.flow]);
        flows.flatten().any(|flow| flow.state == State::Resetting)
    }

    /// Whether a reset came during the handshake that closed nothing in Weir.
    fn had_reset_while_opening(&self) -> bool {
        use FlowState::{SynReceived, SynReceived2, SynSent2};
        let opening = |flow: Option<Flow>| {
            flow.filter(|flow| matches!(flow.state, SynSent2 | SynReceived | SynReceived2)).map(|flow| flow.state)
        };
        let flows = self.earlier.iter().map(|(_, flow)| *flow).skip(1).chain([self.flow]);
        let mut changes = self.earlier.iter().zip(flows);
        changes.any(|((packet, before), next)| {
            packet.tcp_flags & RST != 0 && opening(*before).is_some() && opening(*before) == opening(next)
        })
    }

    /// Whether there was a reset or FIN with numbers that a liberal flow does not know. It changes nothing in Weir.
    fn had_unknown_end(&self) -> bool {
        let flows = self.earlier.iter().map(|(_, flow)| *flow).skip(1).chain([self.flow]);
        let mut changes = self.earlier.iter().zip(flows);
        changes.any(|((packet, before), next)| {
            let stays = before
                .filter(|flow| flow.liberal)
                .is_some_and(|before| next.is_some_and(|next| before.state == next.state));
            packet.tcp_flags & (RST | FIN) != 0 && stays
        })
    }

    /// Whether an old FIN came, which closes nothing in Weir.
    fn had_old_fin(&self) -> bool {
        let flows = self.earlier.iter().map(|(_, flow)| *flow).skip(1).chain([self.flow]);
        let open = [State::SynReceived, State::SynReceived2, State::Established];
        let is_open = |flow: Option<Flow>| flow.is_some_and(|flow| open.contains(&flow.state));
        let mut changes = self.earlier.iter().zip(flows);
        changes.any(|((packet, before), next)| packet.tcp_flags & FIN != 0 && is_open(*before) && is_open(next))
    }

    /// The kernel checks resets less strictly while a connection opens or closes.
    fn refused_reset(&self) -> Option<(&'static str, Then)> {
        use FlowState::{
            CloseWait, Closed, Established, FinWait, LastAck, SynReceived, SynReceived2, SynSent, SynSent2, TimeWait,
        };
        let class = match self.state()? {
            SynSent if self.is_of_opener() => "reset-of-opener",
            SynSent => "refusal",
            FinWait | CloseWait | LastAck | TimeWait | Closed => "reset-while-closing",
            _ if self.flow?.liberal => "reset-of-pickup",
            Established if self.had_old_fin() => "old-fin",
            SynSent2 | SynReceived | SynReceived2 => "reset-while-opening",
            _ if self.flow?.syn => "reset-after-syn",
            _ => self.overshoot()?,
        };
        Some((class, Then::Diverged))
    }

    fn passed_reset(&self) -> Option<(&'static str, Then)> {
        let [side, _] = self.sides()?;
        match after(self.packet.seq, side.una) {
            true => Some(("largest-window", Then::Diverged)),
            false => None,
        }
    }

    /// A packet that shows an earlier difference of states.
    fn consequence(&self) -> Option<&'static str> {
        use FlowState::{CloseWait, Closed, FinWait, LastAck, SynSent, TimeWait};
        let is_syn = self.packet.tcp_flags & (SYN | ACK | RST) == SYN;
        let shown = self.ours.shown.as_str();
        let had = |state: State, flags: u8| {
            let is = |(packet, flow): &(Packet, Option<Flow>)| {
                packet.tcp_flags & flags == flags && flow.is_some_and(|flow| flow.state == state)
            };
            self.earlier.iter().any(is)
        };
        let syns = self.earlier.iter().filter(|(packet, flow)| {
            let unanswered = [SynSent, State::SynSent2, TimeWait, Closed];
            let before_answer = flow.is_none_or(|flow| unanswered.contains(&flow.state));
            packet.tcp_flags & (SYN | ACK | RST) == SYN && before_answer
        });
        let numbers: std::collections::BTreeSet<u32> = syns.map(|(packet, _)| packet.seq).collect();
        match (self.state(), shown, self.theirs) {
            (Some(Closed), "new", "established") if is_syn => Some("reopened-after-reset"),
            (Some(FinWait | CloseWait | LastAck), _, "new") if is_syn => Some("last-ack"),
            (None, "invalid", "established" | "related") if had(SynSent, RST) => Some("reset-of-opener"),
            (Some(FinWait | CloseWait | LastAck), "invalid", "established") if self.flow?.syn => Some("challenge-ack"),
            _ if numbers.len() > 1 => Some("several-syns"),
            (Some(_), "established", "invalid") if self.is_in_largest_window() => Some("largest-window"),
            (Some(TimeWait), "new", "established" | "invalid") if is_syn && had(LastAck, SYN) => Some("challenge-ack"),
            (Some(Closed), ..) => Some("after-reset"),
            (Some(_), "established", "invalid") if self.had_other_ack() => Some("reset-of-pickup"),
            (Some(_), ..) if self.had_unknown_end() => Some("unknown-end"),
            (Some(_), ..) if self.had_refused_answer() => Some("refused-answer"),
            (Some(_), ..) if self.had_overshoot() => Some("overshoot"),
            (Some(_), "established", "invalid") if self.begun_anew() => Some("begun-anew"),
            (Some(_), ..) if self.had_old_handshake() => Some("old-handshake"),
            (Some(_), _, "new") if is_syn && self.had_old_fin() => Some("old-fin"),
            (Some(_), ..) if self.had_rounded_window() => Some("rounded-window"),
            _ => None,
        }
    }

    /// Whether this is a reset of a connection that was picked up, and one side had acknowledged different numbers
    /// before there was an answer, or before the other side had sent a window. The kernel keeps the highest.
    fn had_other_ack(&self) -> bool {
        let other = |(packet, flow): &(Packet, Option<Flow>)| {
            let sender = usize::from((packet.saddr, packet.sport) > (packet.daddr, packet.dport));
            let is_first = |flow: Flow| !flow.replied || flow.sides[1 - sender].window == Window::NONE;
            flow.is_some_and(|flow| flow.liberal && is_first(flow) && flow.sides[1 - sender].una != packet.ack)
        };
        self.packet.tcp_flags & RST != 0 && self.earlier.iter().any(other)
    }

    /// Whether a SYN-ACK or reset that answers a SYN was refused. The kernel keeps its numbers.
    fn had_refused_answer(&self) -> bool {
        let flows = self.earlier.iter().map(|(_, flow)| *flow).skip(1).chain([self.flow]);
        let sent = |flow: Option<Flow>| flow.is_some_and(|flow| flow.state == State::SynSent);
        let mut changes = self.earlier.iter().zip(flows);
        changes.any(|((packet, before), next)| {
            let sender = usize::from((packet.saddr, packet.sport) > (packet.daddr, packet.dport));
            let is_syn_ack = packet.tcp_flags & (SYN | ACK | RST) == SYN | ACK;
            let is_refusal = packet.tcp_flags & RST != 0 && before.is_some_and(|flow| flow.opener != sender);
            (is_syn_ack || is_refusal) && sent(*before) && sent(next)
        })
    }

    /// Whether a segment began behind the window that the receiver had offered last. The kernel takes its end for the
    /// end of what was sent, also if that was more.
    fn had_overshoot(&self) -> bool {
        let mut edges: [Option<u32>; 2] = [None; 2];
        for (packet, flow) in self.earlier {
            let Some(flow) = flow else { continue };
            let sender = usize::from((packet.saddr, packet.sport) > (packet.daddr, packet.dport));
            if edges[sender].is_some_and(|edge| after(packet.seq, edge)) {
                return true;
            }
            let has_syn = packet.tcp_flags & SYN != 0;
            if has_syn {
                edges[sender] = Some(packet.seq.wrapping_add(1));
            }
            if packet.tcp_flags & ACK == 0 {
                continue;
            }
            // Weir and the kernel both refuse it.
            if after(packet.ack, flow.sides[1 - sender].next) {
                continue;
            }
            let scale = if has_syn { 0 } else { flow.sides[sender].scale };
            let edge = packet.ack.wrapping_add(u32::from(packet.window).max(1) << scale);
            let known = &mut edges[1 - sender];
            *known = Some(known.map_or(edge, |known| if after(edge, known) { edge } else { known }));
        }
        false
    }

    /// Whether a segment was just so old that it fits because Weir rounds windows up. The kernel changes nothing then.
    fn had_rounded_window(&self) -> bool {
        let fits_rounded = |(packet, flow): &(Packet, Option<Flow>)| {
            let Some(flow) = flow.filter(|_| packet.tcp_flags & RST == 0) else { return false };
            let sender = usize::from((packet.saddr, packet.sport) > (packet.daddr, packet.dport));
            let [side, other] = [flow.sides[sender], flow.sides[1 - sender]];
            // Before the window that is stored, and not before the next smaller one.
            let is_between = |number: u32, next: u32, window: Window, least: u32| {
                let [smaller, stored] = [Window(window.0.saturating_sub(1)), window]
                    .map(|window| next.wrapping_sub(window.bytes().max(least)));
                after(smaller, number) && !after(stored, number)
            };
            let controls = u32::from(packet.tcp_flags & SYN != 0) + u32::from(packet.tcp_flags & FIN != 0);
            let payload = u32::from(packet.l4_length) - u32::from(packet.doff) * 4;
            let end = packet.seq.wrapping_add(payload).wrapping_add(controls);
            is_between(packet.ack, other.next, side.window, 66_000) || is_between(end, side.next, other.window, 0)
        };
        self.earlier.iter().any(fits_rounded)
    }

    /// Whether the flow has begun anew, so that its windows are not known.
    fn begun_anew(&self) -> bool {
        let answered = |(packet, flow): &(Packet, Option<Flow>)| {
            packet.tcp_flags & (SYN | ACK) == SYN | ACK && flow.is_some_and(|flow| flow.syn)
        };
        self.flow.is_some_and(|flow| flow.liberal) && self.earlier.iter().any(answered)
    }

    /// Whether a SYN and its SYN-ACK came again after the handshake. The kernel takes their numbers for the numbers of
    /// the connection.
    fn had_old_handshake(&self) -> bool {
        let again = |(packet, flow): &(Packet, Option<Flow>)| {
            let sender = usize::from((packet.saddr, packet.sport) > (packet.daddr, packet.dport));
            let is_old = |flow: Flow| flow.syn && packet.ack == flow.sides[1 - sender].next;
            packet.tcp_flags & (SYN | ACK | RST) == SYN | ACK && flow.is_some_and(is_old)
        };
        self.earlier.iter().any(again)
    }

    /// Whether the segment begins inside the largest window, and not at its beginning.
    fn is_in_largest_window(&self) -> bool {
        let Some([side, other]) = self.sides() else { return false };
        let upper = side.una.wrapping_add(other.window.bytes());
        other.window != Window::NONE && after(self.packet.seq, side.una) && !after(self.packet.seq, upper)
    }
}
