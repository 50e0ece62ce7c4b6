//! A restored connection: established when it was saved, and not seen since. How far both sides are now is unknown.
//!
//! Whatever one side sends may be forged, but what both sides say of each other is not. So the connection becomes exact
//! again once each side has acknowledged what the other one sent last. Until then `una` of a side is what the other
//! side has acknowledged, and `next` is the end of its latest segment, forged or not. A window says that the latest
//! segment of a side fits to the other one's `next`. Shifts of windows were saved and hold.

use super::segment::{Kind, Segment, after};
use super::window::Fit;
use weir_abi::flow::{Flow, FlowState, Window};

/// What a side acknowledges may be this much older than what the other side has sent.
const NEAR: u32 = 1 << 20;

/// Takes a segment that is not a reset. It passes.
pub(super) fn pass(flow: &mut Flow, sender: usize, segment: &Segment<'_>) -> Fit {
    let receiver = 1 - sender;
    let fits = segment.ack.filter(|&ack| is_near(ack, flow.sides[receiver].next));
    let before = flow.sides[sender].next;
    let continues = is_near(segment.end, before) || is_near(before, segment.end);
    if !continues {
        // What the other side has acknowledged is another number.
        flow.sides[receiver].window = Window::NONE;
    }
    if !continues || after(segment.end, before) {
        flow.sides[sender].next = segment.end;
    }
    let side = &mut flow.sides[sender];
    side.window = fits.map_or(Window::NONE, |_| Window::of((segment.window << side.scale).max(1)));
    if let Some(ack) = fits {
        flow.sides[receiver].una = ack;
    }
    if flow.sides.iter().any(|side| side.window == Window::NONE) {
        return if fits.is_some() && continues { Fit::Inside } else { Fit::Outside };
    }
    flow.liberal = false;
    if segment.kind == Kind::Ack {
        flow.state = FlowState::Established;
    }
    Fit::Inside
}

/// Whether a number is at most [`NEAR`] before another one.
fn is_near(number: u32, end: u32) -> bool {
    end.wrapping_sub(number) <= NEAR
}
