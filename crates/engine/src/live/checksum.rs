//! Completes checksums that a sender left to the card (`CHECKSUM_PARTIAL`).
//!
//! A virtual link has no card, and the kernel's mark of such a packet is lost on the way to an engine. The receiver
//! would drop the packet. The sender has stored the sum of the pseudo header in the checksum field (RFC 9293, section
//! 3.1). A packet with that sum in the field gets its correct checksum. If the sum happens to equal the checksum, once
//! in 65535, nothing changes. This covers TCP and UDP over IPv4 and IPv6, but not inside tunnels.
//!
//! The code for the kernel is `datapath/kernel/checksum.h`.

use weir_abi::Rewrite;

const ETHERNET: usize = 14;
const VLAN: usize = 4;
const TAGS_MAX: usize = 2;
/// Maximum number of extension headers between the IPv6 header and the transport header.
const HEADERS_MAX: usize = 8;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DESTINATION: u8 = 60;

/// The text about checksums in the description of an interface.
pub(super) const FINISHED: &str = "; checksums that senders leave to a card are completed";

/// A packet with an incomplete checksum: offsets from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    /// Start of the transport header, and end of the payload.
    start: usize,
    end: usize,
    /// Offset of the checksum field.
    pub field: usize,
    protocol: u8,
}

impl Unfinished {
    /// Recognises a packet with an incomplete checksum, by the `first` bytes of a frame of `length` bytes.
    pub fn find(first: &[u8], length: usize) -> Option<Self> {
        let (network, at) = network(first)?;
        let (addresses, protocol, start, end) = match network {
            IPV4 => ipv4(first, at)?,
            IPV6 => ipv6(first, at)?,
            _ => return None,
        };
        let (header, offset) = match protocol {
            TCP => (20, 16),
            UDP => (8, 6),
            _ => return None,
        };
        if end > length || end < start + header {
            return None;
        }
        let field = start + offset;
        let pseudo = u64::from(sum(addresses)) + u64::from(protocol) + (end - start) as u64;
        (be16(first, field)? == fold(pseudo)).then_some(Unfinished { start, end, field, protocol })
    }

    /// The correct checksum, from all bytes of the frame.
    pub fn checksum<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> [u8; 2] {
        let (mut at, mut total) = (0, 0);
        for piece in pieces {
            let (from, to) = (self.start.clamp(at, at + piece.len()), self.end.clamp(at, at + piece.len()));
            let part = sum(&piece[from - at..to - at]);
            // The words of a part that begins at an odd offset are byte-swapped.
            let part = if from.abs_diff(self.start) % 2 == 1 { part.swap_bytes() } else { part };
            total += u64::from(part);
            at += piece.len();
        }
        match !fold(total) {
            // 0 would mean that there is no checksum (RFC 768).
            0 if self.protocol == UDP => [0xff; 2],
            checksum => checksum.to_be_bytes(),
        }
    }
}

/// The checksum of the packet that leaves in place of a received one. It is needed if the received checksum was
/// completed after the chain had updated it. `received` are the first bytes of the packet, with the completed checksum.
pub(super) fn updated(rewrite: &Rewrite, received: &[u8]) -> Option<[u8; 2]> {
    let at = rewrite.checksum_at as usize;
    let (old, new) = (be16(&rewrite.checksum, 0)?, be16(rewrite.head(), at)?);
    let completed = be16(received, at)?;
    if at == 0 || completed == old {
        return None;
    }
    // RFC 1624: the changed words add the same to every checksum.
    Some(fold(u64::from(completed) + u64::from(!old) + u64::from(new)).to_be_bytes())
}

/// The EtherType after all tags, and the offset of the network header.
fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = ETHERNET;
    for _ in 0..TAGS_MAX {
        if !VLAN_TYPES.contains(&be16(frame, at - 2)?) {
            break;
        }
        at += VLAN;
    }
    Some((be16(frame, at - 2)?, at))
}

/// Addresses, protocol, start and end of the transport segment. Fragments are excluded, because their checksums are
/// never left to the card.
fn ipv4(frame: &[u8], at: usize) -> Option<(&[u8], u8, usize, usize)> {
    let header = frame.get(at..at + 20)?;
    let fragment = be16(header, 6)? & 0x3fff;
    let start = at + usize::from(header[0] & 0xf) * 4;
    let end = at + usize::from(be16(header, 2)?);
    (header[0] >> 4 == 4 && fragment == 0 && start >= at + 20).then_some((&header[12..20], header[9], start, end))
}

/// Like [`ipv4`]. With a routing header, the destination is the last address of the route.
fn ipv6(frame: &[u8], at: usize) -> Option<(&[u8], u8, usize, usize)> {
    let header = frame.get(at..at + 40)?;
    let (mut protocol, mut start) = (header[6], at + 40);
    let end = start + usize::from(be16(header, 4)?);
    for _ in 0..HEADERS_MAX {
        if protocol != HOP_BY_HOP && protocol != DESTINATION {
            break;
        }
        protocol = *frame.get(start)?;
        start += (usize::from(*frame.get(start + 1)?) + 1) * 8;
    }
    (header[0] >> 4 == 6).then_some((&header[8..40], protocol, start, end))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// The sum of all words with carries added (RFC 1071). An odd last byte is the first half of a word.
fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<4>();
    let total: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    fold(total + u64::from(u32::from_be_bytes(last)))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A frame with the pseudo header's sum in the checksum field, as Linux sends it: 10.9.0.1 to 10.9.0.2, TCP or UDP,
    /// and `payload` bytes.
    pub(in crate::live) fn unfinished(protocol: u8, tags: usize, payload: usize) -> Vec<u8> {
        let (header, offset) = if protocol == TCP { (20, 16) } else { (8, 6) };
        let length = header + payload;
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(((20 + length) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
        let start = frame.len();
        frame.extend((0..length).map(|byte| (byte * 7 + 1) as u8));
        let pseudo = 0x0a09 + 1 + 0x0a09 + 2 + u64::from(protocol) + length as u64;
        frame[start + offset..start + offset + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
        frame
    }

    /// The sum of pseudo header and transport segment, which is all ones if the checksum is correct.
    fn verified(frame: &[u8], found: &Unfinished) -> u16 {
        let pseudo = 0x0a09 + 1 + 0x0a09 + 2 + u64::from(found.protocol) + (found.end - found.start) as u64;
        fold(pseudo + u64::from(sum(&frame[found.start..found.end])))
    }

    #[test]
    fn what_was_left_is_finished_wherever_the_pieces_end() {
        for (protocol, tags, payload) in [(TCP, 0, 0), (TCP, 1, 1), (TCP, 2, 1400), (UDP, 0, 3), (UDP, 2, 1401)] {
            let frame = unfinished(protocol, tags, payload);
            let found = Unfinished::find(&frame, frame.len()).expect("it has the sum of its pseudo header");
            let whole = found.checksum([&frame[..]].into_iter());
            for cut in [found.field + 2, frame.len() - 1, frame.len()] {
                let (first, second) = frame.split_at(cut);
                assert_eq!(Unfinished::find(first, frame.len()), Some(found));
                assert_eq!(found.checksum([first, second].into_iter()), whole, "{cut}");
            }
            let mut finished = frame;
            finished[found.field..found.field + 2].copy_from_slice(&whole);
            assert_eq!(verified(&finished, &found), 0xffff);
            assert_eq!(Unfinished::find(&finished, finished.len()), None);
        }
    }

    #[test]
    fn a_checksum_that_is_right_is_not_changed() {
        // A payload for which the sum of the pseudo header is the correct checksum.
        let mut frame = unfinished(UDP, 0, 2);
        let found = Unfinished::find(&frame, frame.len()).expect("it has the sum of its pseudo header");
        let field = be16(&frame, found.field).expect("it is there");
        frame[42..44].fill(0);
        let rest = fold(u64::from(verified(&frame, &found)));
        frame[42..44].copy_from_slice(&(!rest).to_be_bytes());
        assert_eq!(verified(&frame, &found), 0xffff);
        assert_eq!(found.checksum([&frame[..]].into_iter()), field.to_be_bytes());
    }

    #[test]
    fn a_translated_checksum_is_completed_like_one_that_was_translated_afterwards() {
        for payload in [0, 1, 7, 1400] {
            let mut frame = unfinished(TCP, 1, payload);
            let found = Unfinished::find(&frame, frame.len()).expect("it has the sum of its pseudo header");
            let mut rewrite = Rewrite::default();
            (rewrite.len, rewrite.head) = (frame.len() as u32, 58);
            rewrite.bytes[..58].copy_from_slice(&frame[..58]);
            // Another sequence number, and the field of the checksum as the chain updates it.
            let (at, old, new) = (found.start + 4, be16(&frame, found.start + 4).expect("it is there"), 0xbeef_u16);
            rewrite.bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            rewrite.checksum_at = found.field as u32;
            rewrite.checksum.copy_from_slice(&frame[found.field..found.field + 2]);
            let updated_by_chain =
                !fold(u64::from(!be16(&rewrite.checksum, 0).expect("two")) + u64::from(!old) + u64::from(new));
            rewrite.bytes[found.field..found.field + 2].copy_from_slice(&updated_by_chain.to_be_bytes());
            assert_eq!(updated(&rewrite, &frame), None, "nobody has completed it");

            let completed = found.checksum([&frame[..]].into_iter());
            frame[found.field..found.field + 2].copy_from_slice(&completed);
            let checksum = updated(&rewrite, &frame).expect("it was completed");
            let mut leaves = rewrite.packet(&frame);
            leaves[found.field..found.field + 2].copy_from_slice(&checksum);
            assert_eq!(verified(&leaves, &found), 0xffff, "{payload}");

            rewrite.checksum_at = 0;
            assert_eq!(updated(&rewrite, &frame), None, "a new segment has its checksum");
        }
    }

    #[test]
    fn what_ends_too_early_or_is_something_else_is_left_alone() {
        let frame = unfinished(TCP, 1, 100);
        (0..52).for_each(|cut| assert_eq!(Unfinished::find(&frame[..cut], frame.len()), None, "{cut}"));
        assert_eq!(Unfinished::find(&frame, frame.len() - 1), None);
        let mut fragment = unfinished(UDP, 0, 8);
        fragment[20] = 0x20;
        assert_eq!(Unfinished::find(&fragment, fragment.len()), None);
        let mut icmp = unfinished(UDP, 0, 8);
        icmp[23] = 1;
        assert_eq!(Unfinished::find(&icmp, icmp.len()), None);
    }
}
