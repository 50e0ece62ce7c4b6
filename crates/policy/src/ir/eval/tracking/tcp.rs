//! The state machine of TCP connections. RFC 9293, section 3.3.2, seen from the middle; what the kernel's conntrack
//! passes is the base. `docs/reference/tracking.md` has the table.

use super::restored;
use super::segment::{Kind, Segment, after};
use super::window::{self, Fit};
use crate::ir::Tracking;
use weir_abi::Reason;
use weir_abi::flow::{Flow, FlowState, Side, Window};

/// What a segment does to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The segment passes and changes the flow, whose timeout begins again.
    Update(Flow),
    /// The segment passes. The timeout does not begin again.
    Keep(Flow),
    /// The segment passes and ends the flow, which had no answer.
    Remove,
    /// The segment opens the connection anew.
    Reopen,
    /// The segment is invalid.
    Refuse(Reason),
}

/// A step of the state machine.
enum Step {
    To(FlowState),
    /// The other side may know a connection that the tracker does not: it decides.
    Ignore,
    Reopen,
    Invalid,
}

/// Judges a segment of an existing flow.
pub(super) fn judge(flow: &Flow, sender: usize, segment: &Segment<'_>, settings: &Tracking) -> Outcome {
    if segment.kind == Kind::Reset {
        return reset(flow, sender, segment);
    }
    let mut next = *flow;
    let state = match step(flow, sender, segment, settings) {
        Step::To(state) => state,
        Step::Ignore => return ignore(flow, sender, segment),
        Step::Reopen => return Outcome::Reopen,
        Step::Invalid => return Outcome::Refuse(Reason::BAD_FLAGS),
    };
    next.state = state;
    let opening = matches!(flow.state, FlowState::SynSent | FlowState::SynSent2);
    let acknowledges_opening = match segment.kind {
        Kind::Ack | Kind::Fin => window::acknowledges_opening(flow, sender, segment),
        Kind::Syn | Kind::SynAck | Kind::Reset => true,
    };
    if !acknowledges_opening {
        return Outcome::Refuse(Reason::BAD_ACK);
    }
    let passed = match segment.kind {
        Kind::Syn => {
            window::record_syn(&mut next, sender, segment);
            Ok(Fit::Inside)
        }
        Kind::SynAck if opening => window::pass_syn_ack(&mut next, sender, segment).map(|()| Fit::Inside),
        // One-way: the first ACK must continue the SYN.
        Kind::Ack if opening && segment.seq != flow.sides[sender].next => Err(Reason::OUT_OF_WINDOW),
        _ if flow.state == FlowState::Restored => Ok(restored::pass(&mut next, sender, segment)),
        Kind::SynAck | Kind::Fin | Kind::Ack | Kind::Reset => window::pass(&mut next, sender, segment),
    };
    match passed {
        Err(reason) => return Outcome::Refuse(reason),
        // The sender of a forged FIN does not know the numbers, so the connection goes on.
        Ok(Fit::Outside) if segment.kind == Kind::Fin => next.state = flow.state,
        Ok(Fit::Inside | Fit::Outside) => {}
    }
    next.syn = false;
    next.replied |= opening && segment.kind == Kind::Ack;
    let is_acknowledged = flow.liberal || next.sides.iter().all(|side| side.una == side.next);
    if next.state == FlowState::LastAck && segment.kind == Kind::Ack && is_acknowledged {
        next.state = FlowState::TimeWait;
    }
    // A SYN that is sent again must not keep a flow without an answer.
    if segment.kind == Kind::Syn && !flow.replied && sender == flow.opener {
        Outcome::Keep(next)
    } else {
        Outcome::Update(next)
    }
}

fn step(flow: &Flow, sender: usize, segment: &Segment<'_>, settings: &Tracking) -> Step {
    use FlowState::{
        Assured, CloseWait, Closed, Established, FinWait, LastAck, Replied, Resetting, Restored, SynReceived,
        SynReceived2, SynSent, SynSent2, TimeWait, Unreplied,
    };
    let from_opener = sender == flow.opener;
    // A FIN that is sent again has no new end. One whose end was acknowledged is old, because nothing follows a FIN.
    let is_new = after(segment.end, flow.sides[sender].next) || flow.liberal;
    let is_open = after(segment.end, flow.sides[sender].una) || flow.liberal;
    match (segment.kind, flow.state) {
        (Kind::Reset, _) | (_, Unreplied | Replied | Assured) => {
            unreachable!("compiler bug: not a state of this segment")
        }

        (Kind::Syn, SynSent | SynSent2) if from_opener => Step::To(flow.state),
        (Kind::Syn, Closed) if from_opener => Step::Reopen,
        (Kind::Syn, TimeWait) => Step::Reopen,
        (Kind::Syn, _) if from_opener => Step::Ignore,
        (Kind::Syn, SynSent | SynSent2) => Step::To(SynSent2),
        (Kind::Syn, _) => Step::Invalid,

        (Kind::SynAck, SynSent) if from_opener => Step::Invalid,
        (Kind::SynAck, SynSent) => Step::To(SynReceived),
        (Kind::SynAck, SynSent2) => Step::To(SynReceived2),
        (Kind::SynAck, SynReceived | SynReceived2) if from_opener => Step::To(flow.state),
        (Kind::SynAck, _) if from_opener => Step::Invalid,
        (Kind::SynAck, _) => Step::Ignore,

        (Kind::Fin, SynSent | SynSent2) => Step::Invalid,
        (Kind::Fin, SynReceived | SynReceived2 | Established | Resetting | Restored) if is_open => Step::To(FinWait),
        (Kind::Fin, SynReceived | SynReceived2 | Established | Resetting | Restored) => Step::To(flow.state),
        (Kind::Fin, FinWait | CloseWait) if is_new => Step::To(LastAck),
        (Kind::Fin, FinWait | CloseWait | LastAck | TimeWait | Closed) => Step::To(flow.state),

        (Kind::Ack, SynSent) if from_opener && settings.one_way => Step::To(Established),
        (Kind::Ack, SynSent | SynSent2) if from_opener => Step::Invalid,
        (Kind::Ack, SynSent | SynSent2) => Step::Ignore,
        (Kind::Ack, SynReceived) if !from_opener => Step::To(SynReceived),
        (Kind::Ack, SynReceived | SynReceived2 | Established | Resetting) => Step::To(Established),
        (Kind::Ack, Restored) => Step::To(Restored),
        (Kind::Ack, FinWait | CloseWait) => Step::To(CloseWait),
        (Kind::Ack, LastAck | TimeWait | Closed) => Step::To(flow.state),
    }
}

/// A segment that the receiver may answer by a reset or by a challenge ACK (RFC 5961, sections 4 and 5). It passes and
/// leaves no more than a note.
fn ignore(flow: &Flow, sender: usize, segment: &Segment<'_>) -> Outcome {
    let mut next = *flow;
    let from_opener = sender == flow.opener;
    match segment.kind {
        Kind::Syn => next.syn = true,
        Kind::SynAck if flow.syn && !from_opener && segment.ack != Some(flow.sides[1 - sender].next) => {
            return Outcome::Update(begun_anew(flow, sender, segment));
        }
        // The opener answers the ACK of an old connection by a reset with this number.
        Kind::Ack if flow.state == FlowState::SynSent => {
            let ack = segment.ack.unwrap_or_default();
            (next.sides[sender].una, next.sides[sender].next) = (ack, ack);
        }
        _ => {}
    }
    Outcome::Keep(next)
}

/// The answer to a SYN that was ignored: both sides know a connection that the tracker does not. The SYN's window and
/// options are not known, so the flow is liberal.
fn begun_anew(flow: &Flow, sender: usize, segment: &Segment<'_>) -> Flow {
    let mut next = *flow;
    let ack = segment.ack.unwrap_or_default();
    let window = |bytes: u32| Window::of(bytes.max(1));
    next.sides[1 - sender] = Side { una: ack, next: ack, window: window(65535), scale: 0, sack: true };
    next.sides[sender] =
        Side { una: segment.seq, next: segment.end, window: window(segment.window), scale: 0, sack: true };
    (next.state, next.liberal, next.syn, next.proxied) = (FlowState::SynReceived, true, false, false);
    next
}

/// A reset (RFC 9293, section 3.10.7, and RFC 5961, section 3).
fn reset(flow: &Flow, sender: usize, segment: &Segment<'_>) -> Outcome {
    use FlowState::{Established, Resetting, Restored, SynReceived, SynReceived2, SynSent, SynSent2};
    let (side, other) = (&flow.sides[sender], &flow.sides[1 - sender]);
    let seq = segment.seq;
    if flow.state == SynSent {
        let is_valid = match sender == flow.opener {
            // A refusal acknowledges the SYN.
            false => segment.ack.is_some_and(|ack| after(ack, other.una) && !after(ack, other.next)),
            // The SYN is taken back, or answers the ACK of an old connection.
            true => seq == side.next || other.una == seq && other.una != 0,
        };
        return if is_valid { closed(flow) } else { Outcome::Refuse(Reason::RST_OUT_OF_WINDOW) };
    }
    let acks_unsent = segment.ack.is_some_and(|ack| ack != 0 && after(ack, other.next));
    if acks_unsent && !flow.liberal {
        return Outcome::Refuse(Reason::BAD_ACK);
    }
    let window = other.window.bytes();
    let is_beyond = after(seq, side.una.wrapping_add(window));
    let is_old = after(side.una, seq);
    // Before a restored connection goes on, the other side has confirmed `una` only.
    let is_exact = seq == side.una || seq == side.next && !is_old && flow.state != Restored;
    match flow.state {
        _ if is_exact => closed(flow),
        SynSent2 | SynReceived | SynReceived2 | Established | Resetting if is_old || is_beyond && !flow.liberal => {
            Outcome::Refuse(Reason::RST_OUT_OF_WINDOW)
        }
        // Its numbers are unknown here. The receiver does, and ignores or challenges a wrong reset.
        _ if flow.liberal => Outcome::Keep(*flow),
        // The receiver answers by a challenge ACK, so the connection may go on.
        Established | Resetting if flow.replied => Outcome::Update(Flow { state: Resetting, ..*flow }),
        Established | Resetting => closed(flow),
        SynSent2 | SynReceived | SynReceived2 => Outcome::Keep(*flow),
        // A closed socket answers late segments by resets with the acknowledgement of these.
        _ if is_beyond || after(side.una.wrapping_sub(window), seq) => Outcome::Refuse(Reason::RST_OUT_OF_WINDOW),
        _ => closed(flow),
    }
}

/// A reset connection. If there was no answer yet, nothing is left of it.
fn closed(flow: &Flow) -> Outcome {
    match flow.replied {
        true => Outcome::Update(Flow { state: FlowState::Closed, syn: false, ..*flow }),
        false => Outcome::Remove,
    }
}

/// The flow that a segment without a flow opens, or the reason why it cannot.
pub(super) fn open(sender: usize, segment: &Segment<'_>, settings: &Tracking, time: u32) -> Result<Flow, Reason> {
    let mut flow = Flow {
        time,
        state: FlowState::SynSent,
        opener: sender,
        liberal: settings.one_way,
        replied: false,
        syn: false,
        proxied: false,
        sides: [Side::default(); 2],
    };
    match segment.kind {
        Kind::Syn => window::record_syn(&mut flow, sender, segment),
        Kind::Ack if settings.pickup => pick_up(&mut flow, sender, segment),
        // The SYN went another way.
        Kind::SynAck if settings.one_way => pick_up(&mut flow, sender, segment),
        _ => return Err(Reason::NO_STATE),
    }
    Ok(flow)
}

/// A connection in its midst: neither windows nor options are known.
fn pick_up(flow: &mut Flow, sender: usize, segment: &Segment<'_>) {
    let ack = segment.ack.unwrap_or_default();
    (flow.state, flow.liberal) = (FlowState::Established, true);
    let window = Window::of(segment.window.max(1));
    flow.sides[sender] = Side { una: segment.seq, next: segment.end, window, scale: 0, sack: true };
    flow.sides[1 - sender] = Side { una: ack, next: ack, window: Window::NONE, scale: 0, sack: true };
}
