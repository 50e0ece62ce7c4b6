//! Whether a segment fits to what both sides have sent and acknowledged: the four bounds of van Rooij, "Real Stateful
//! TCP Packet Filtering in IP Filter", with the variables of RFC 5961, section 5.2.
//!
//! ```text
//!                 una         next        una + window of the receiver
//! ----------------+-----------+-----------+---------------> sequence numbers of a side
//!    acknowledged |   sent    | may be sent
//! ```

use super::segment::{Segment, after};
use weir_abi::Reason;
use weir_abi::flow::{Flow, FlowState, Side, Window};

/// An acknowledgement may be this much older than the newest data, even if the window is smaller.
const ACK_WINDOW_MIN: u32 = 66_000;
/// No window is larger (RFC 7323, section 2.3).
const WINDOW_MAX: u32 = 1 << 30;

/// Whether a segment that passes fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The segment is inside all bounds.
    Inside,
    /// The segment is outside of the windows of a liberal flow.
    Outside,
}

/// Whether a segment of a side in `syn-recv` or `syn-recv2` acknowledges what the other side has opened with: only its
/// receiver knows that number. In other states, and for the side that has opened with it, there is nothing to show.
pub(super) fn acknowledges_opening(flow: &Flow, sender: usize, segment: &Segment<'_>) -> bool {
    let Some(ack) = segment.ack else { return true };
    let other = &flow.sides[1 - sender];
    match flow.state {
        FlowState::SynReceived if sender == flow.opener => after(ack, other.una) && !after(ack, other.next),
        FlowState::SynReceived2 => !after(other.una, ack) && !after(ack, other.next),
        _ => true,
    }
}

/// Checks a segment that is not a reset, and updates both sides. A liberal flow is only updated by segments that fit.
pub(super) fn pass(flow: &mut Flow, sender: usize, segment: &Segment<'_>) -> Result<Fit, Reason> {
    let receiver = 1 - sender;
    let highest = segment.ack.map(|ack| match flow.sides[receiver].sack {
        true => segment.highest_ack(ack),
        false => ack,
    });
    if flow.sides[sender].window == Window::NONE {
        pick_up(flow, sender, segment, highest);
    }
    if flow.liberal {
        stretch(flow, sender, segment, highest);
    }
    if let Err(reason) = check(&flow.sides[sender], &flow.sides[receiver], segment, highest) {
        return if flow.liberal { Ok(Fit::Outside) } else { Err(reason) };
    }
    update(flow, sender, segment, highest);
    Ok(Fit::Inside)
}

/// The first segment of a side. A SYN was recorded before.
fn pick_up(flow: &mut Flow, sender: usize, segment: &Segment<'_>, highest: Option<u32>) {
    let other = &mut flow.sides[1 - sender];
    // An answer to a keepalive acknowledges a byte that was not seen.
    if highest == Some(other.next.wrapping_add(1)) {
        other.next = other.next.wrapping_add(1);
    }
    let side = &mut flow.sides[sender];
    // What the other side has acknowledged before is known.
    let is_known = side.una != 0 || side.next != 0;
    side.una = if is_known { side.una } else { segment.seq };
    (side.next, side.window) = (segment.end, Window::of(segment.window.max(1)));
}

/// The windows of a liberal flow are unknown, and segments may have passed unseen. If one number of a segment fits and
/// the other one lies above its bound, the bound follows.
fn stretch(flow: &mut Flow, sender: usize, segment: &Segment<'_>, highest: Option<u32>) {
    let other = &mut flow.sides[1 - sender];
    if other.window == Window::NONE && (other.una, other.next) == (0, 0) {
        // The first acknowledgement of a side that passes unseen.
        (other.una, other.next) = (segment.ack.unwrap_or(0), highest.unwrap_or(0));
    }
    let [side, other] = [flow.sides[sender], flow.sides[1 - sender]];
    let unsent = highest.filter(|&ack| after(ack, other.next));
    match (begins_beyond(&side, &other, segment), unsent) {
        (true, None) if !acks_old(&side, &other, highest) => begin_later(flow, sender, segment.seq),
        // What it acknowledges was sent unseen.
        (false, Some(ack)) if !ends_early(&side, &other, segment) => {
            let una = trail(other.una, ack);
            flow.sides[1 - sender] = Side { una, next: ack, ..other };
        }
        _ => {}
    }
}

/// Raises the bound of a side so that it may begin a segment at `seq`.
fn begin_later(flow: &mut Flow, sender: usize, seq: u32) {
    let side = &mut flow.sides[sender];
    side.una = trail(side.una, seq);
    let offered = Window::of(seq.wrapping_sub(side.una));
    if flow.sides[1 - sender].window == Window::NONE {
        flow.sides[sender].next = seq;
    } else {
        let other = &mut flow.sides[1 - sender];
        other.window = other.window.max(offered);
    }
}

/// What is not acknowledged before a number: from `una` on, but no more than the largest window.
fn trail(una: u32, number: u32) -> u32 {
    if number.wrapping_sub(una) > WINDOW_MAX { number.wrapping_sub(WINDOW_MAX) } else { una }
}

fn check(sender: &Side, receiver: &Side, segment: &Segment<'_>, highest: Option<u32>) -> Result<(), Reason> {
    if begins_beyond(sender, receiver, segment) {
        return Err(Reason::OUT_OF_WINDOW);
    }
    if highest.is_some_and(|ack| after(ack, receiver.next)) {
        return Err(Reason::BAD_ACK);
    }
    if ends_early(sender, receiver, segment) {
        return Err(Reason::OUT_OF_WINDOW);
    }
    if acks_old(sender, receiver, highest) {
        return Err(Reason::BAD_ACK);
    }
    Ok(())
}

/// Before the receiver has offered a window, only what was sent may be sent again.
fn begins_beyond(sender: &Side, receiver: &Side, segment: &Segment<'_>) -> bool {
    let window = receiver.window.bytes();
    let upper = if receiver.window == Window::NONE { sender.next } else { sender.una.wrapping_add(window) };
    after(segment.seq, upper)
}

fn ends_early(sender: &Side, receiver: &Side, segment: &Segment<'_>) -> bool {
    let lower = oldest(sender, receiver.window.bytes());
    let is_old = !after(segment.end, sender.next);
    receiver.window != Window::NONE && is_old && after(lower, segment.end)
}

fn acks_old(sender: &Side, receiver: &Side, highest: Option<u32>) -> bool {
    let lower = oldest(receiver, sender.window.bytes().max(ACK_WINDOW_MIN));
    highest.is_some_and(|ack| after(lower, ack))
}

/// The oldest number of a side that is still of use: a window before its newest. A segment that begins inside the
/// window may end behind it, so what is not acknowledged may be older.
fn oldest(side: &Side, window: u32) -> u32 {
    let window_below = side.next.wrapping_sub(window);
    if after(window_below, side.una) { side.una } else { window_below }
}

fn update(flow: &mut Flow, sender: usize, segment: &Segment<'_>, highest: Option<u32>) {
    let side = &mut flow.sides[sender];
    // The window of a SYN is never scaled (RFC 7323, section 2.2).
    let scale = if segment.has_syn() { 0 } else { side.scale };
    let beyond = segment.ack.zip(highest).map_or(0, |(ack, highest)| highest.wrapping_sub(ack));
    side.window = side.window.max(Window::of((segment.window << scale).saturating_add(beyond)));
    if after(segment.end, side.next) {
        side.next = segment.end;
    }
    let other = &mut flow.sides[1 - sender];
    if let Some(ack) = segment.ack.filter(|&ack| after(ack, other.una)) {
        other.una = ack;
    }
}

/// Records the SYN of a side, also one with another number. Which of two the other side answers, and so which windows
/// and options hold, is not known then.
pub(super) fn record_syn(flow: &mut Flow, sender: usize, segment: &Segment<'_>) {
    let side = &mut flow.sides[sender];
    let is_first = side.window == Window::NONE;
    flow.liberal |= !is_first && segment.end != side.next;
    let una = if is_first || after(side.una, segment.seq) { segment.seq } else { side.una };
    let window = Window::of(segment.window.max(1));
    if is_first || after(segment.end, side.next) {
        *side = Side { una, next: segment.end, window, scale: segment.scale(), sack: segment.permits_sack() };
    } else {
        (side.una, side.window) = (una, side.window.max(window));
    }
    // Windows are scaled only if both SYNs have the option (RFC 7323, section 2.2).
    let offered = flow.sides.iter().all(|side| side.scale != Side::NO_SCALE);
    if sender != flow.opener && !offered {
        flow.sides.iter_mut().for_each(|side| side.scale = 0);
    }
}

/// Checks a SYN-ACK that answers a SYN, and records it (RFC 9293, section 3.10.7.3).
pub(super) fn pass_syn_ack(flow: &mut Flow, sender: usize, segment: &Segment<'_>) -> Result<(), Reason> {
    let other = flow.sides[1 - sender];
    let acks_syn = segment.ack.is_some_and(|ack| after(ack, other.una) && !after(ack, other.next));
    if !acks_syn {
        return Err(Reason::BAD_ACK);
    }
    // In a simultaneous open it repeats the number of the SYN.
    let side = flow.sides[sender];
    let repeats = !after(side.una, segment.seq) && after(side.next, segment.seq);
    if side.window != Window::NONE && !repeats && !flow.liberal {
        return Err(Reason::OUT_OF_WINDOW);
    }
    record_syn(flow, sender, segment);
    update(flow, sender, segment, segment.ack);
    Ok(())
}

/// Whether a side may have sent a segment with this sequence number (RFC 5927, section 4.1). A liberal flow may have
/// sent any.
pub(super) fn has_sent(flow: &Flow, sender: usize, seq: u32) -> bool {
    let (side, window) = (&flow.sides[sender], flow.sides[1 - sender].window.bytes());
    flow.liberal || !after(side.una.wrapping_sub(window), seq) && !after(seq, side.next)
}
