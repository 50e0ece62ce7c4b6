//! Sequence numbers of TCP: what they prove, and how many bytes they show.

use super::conversation::{Conversation, Party, STEPS};
use crate::header::{Header, protocol, tcp};

/// A segment may acknowledge data at most this long ago. A blind attacker meets it once in 2^32 / 2^18 packets.
const ACKED_MAX: u32 = 1 << 18;
/// Bytes that count for one segment that acknowledges them, at most: what receive offloads merge. Numbers that jump
/// because a connection begins anew unseen gain no more.
const ACKNOWLEDGED_MAX: u32 = 1 << 16;
/// An acknowledgement that is further behind than this is of another connection. Others were overtaken.
const OVERTAKEN_MAX: u32 = 1 << 20;

/// Whether a packet shows that its sender has received what the other side sent: it acknowledges its numbers.
pub fn proves(header: &Header, entry: &Conversation, side: usize) -> bool {
    let other = &entry.sides[1 - side];
    let sent = other.next.wrapping_sub(other.first).min(ACKED_MAX);
    let is_ack = header.protocol == protocol::TCP && header.flags & tcp::ACK != 0 && other.has_begun;
    is_ack && other.next.wrapping_sub(header.ack) <= sent
}

/// Bytes that a segment is the first to acknowledge, and bytes that it brings. `scale` is the number of segments that
/// each one stands for. What is acknowledged shows in the numbers, so it includes what is acknowledged by segments that
/// are not seen.
///
/// It is at most what the other side was seen to send, so jumps of its numbers gain nothing. Only the sender of an
/// acknowledgement changes what it has acknowledged: forged segments of the other side do not.
pub fn exchange(header: &Header, entry: &mut Conversation, side: usize, scale: f64) -> u32 {
    if header.flags & tcp::RST != 0 {
        return 0;
    }
    let scaled = |bytes: u32| (f64::from(bytes) * scale) as u32;
    let brought = scaled(header.payload_length.into());
    let (own, other) = match &mut entry.sides {
        [own, other] if side == 0 => (own, other),
        [other, own] => (own, other),
    };
    own.unacknowledged = own.unacknowledged.saturating_add(brought);
    let first = if other.has_begun { other.first } else { header.ack };
    let is_ack = header.flags & tcp::ACK != 0;
    let acknowledged = if is_ack { advance(header, own, first, scaled(OVERTAKEN_MAX)) } else { 0 };
    let acknowledged = acknowledged.min(scaled(ACKNOWLEDGED_MAX)).min(other.unacknowledged);
    other.unacknowledged -= acknowledged;
    acknowledged.saturating_add(brought)
}

/// By how much a side raises its acknowledgement. `first` is the first number that it can acknowledge. A connection
/// begins anew with a SYN. If that was not seen, its numbers are more than `overtaken` behind.
fn advance(header: &Header, own: &mut Party, first: u32, overtaken: u32) -> u32 {
    let before = if header.flags & tcp::SYN != 0 { header.ack } else { own.covered.unwrap_or(first) };
    let difference = header.ack.wrapping_sub(before) as i32;
    let is_behind = difference < 0 && difference.unsigned_abs() <= overtaken;
    own.covered = Some(if is_behind { before } else { header.ack });
    u32::try_from(difference).unwrap_or(0)
}

/// Whether the numbers of a segment continue the numbers of its sender, and new ones follow. A repeated segment does
/// not.
fn continues(header: &Header, own: &Party) -> bool {
    let is_next = own.has_begun && header.seq == own.next && header.flags & (tcp::SYN | tcp::RST) == 0;
    is_next && (header.payload_length > 0 || header.ack != own.acked)
}

/// Remembers a packet of a side.
pub fn note(header: &Header, own: &mut Party) {
    own.packets = own.packets.saturating_add(1);
    if header.protocol != protocol::TCP {
        return;
    }
    own.has_ended = header.flags & (tcp::FIN | tcp::RST) != 0 || own.has_ended && header.flags & tcp::SYN == 0;
    if header.flags & tcp::RST != 0 {
        return;
    }
    let is_handshake = own.packets == 2 && own.steps == 0 && own.acked == 0;
    if continues(header, own) {
        // The segment behind a SYN of the same side continues a handshake.
        let steps = if is_handshake && header.payload_length == 0 { STEPS } else { 1 };
        own.steps = own.steps.saturating_add(steps);
    }
    let phantom = u32::from(header.flags & tcp::SYN != 0) + u32::from(header.flags & tcp::FIN != 0);
    let next = header.seq.wrapping_add(u32::from(header.payload_length)).wrapping_add(phantom);
    if !own.has_begun || header.flags & tcp::SYN != 0 {
        own.first = header.seq;
    }
    let is_old = own.has_begun && (next.wrapping_sub(own.next) as i32) < 0 && header.flags & tcp::SYN == 0;
    if !is_old {
        own.next = next;
    }
    own.has_begun = true;
    if header.flags & tcp::ACK != 0 {
        own.acked = header.ack;
    }
}
