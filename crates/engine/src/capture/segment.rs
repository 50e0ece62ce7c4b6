//! Segments of TCP that the sending host captured before its card cut them up.
//!
//! The card writes the IP length of each piece, so hosts leave it 0 in the segment (segmentation offload; "BIG TCP" if
//! the segment is longer than the field can say). On a wire such a packet is malformed, and the datapath drops it. In a
//! capture it has the length of its frame.

use weir_abi::Link;

/// IP's number of TCP.
const TCP: u8 = 6;
/// Shortest TCP header.
const TCP_BYTES: usize = 20;
/// Ethernet's shortest frame, without the check sequence. Shorter packets may be padded, so their frame says nothing.
const PADDED_BYTES: usize = 60;
/// SYN and RST. No such segment is left to a card.
const FLAGS_WITHOUT_DATA: u8 = 2 | 4;

/// A segment whose length the reader wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completed {
    /// Where the length is in the packet: two bytes, 0 in the capture.
    pub(super) at: usize,
    /// Whether the segment is longer than the field can say. The field then has its largest value.
    pub(super) is_longer: bool,
}

/// Whether a packet may be such a segment. The common case is answered at once: a short packet, or IPv4 on Ethernet
/// with a length.
#[inline]
pub(super) fn may_lack_length(bytes: &[u8], link: Link, wire_len: u32) -> bool {
    let has_length = || {
        let header = bytes.first_chunk::<18>();
        link == Link::Ethernet && header.is_some_and(|header| header[12..14] == [8, 0] && header[16..18] != [0; 2])
    };
    wire_len as usize > PADDED_BYTES && !has_length()
}

/// Writes the length of a segment that has none.
pub(super) fn complete(bytes: &mut [u8], link: Link, wire_len: u32) -> Option<Completed> {
    let start = network(bytes, link)?;
    let header = bytes.get(start..)?;
    let (at, fixed, transport) = match header.first()? >> 4 {
        4 => (start + 2, 0, ipv4_without_length(header)?),
        6 => (start + 4, 40, ipv6_without_length(header)?),
        _ => return None,
    };
    let tcp = header.get(transport..transport + TCP_BYTES)?;
    let data = transport + usize::from(tcp[12] >> 4) * 4;
    let wire_len = wire_len as usize;
    let length = wire_len.checked_sub(start)?;
    if wire_len <= PADDED_BYTES || length <= data || tcp[13] & FLAGS_WITHOUT_DATA != 0 {
        return None;
    }
    let written = u16::try_from(length - fixed).unwrap_or(u16::MAX);
    bytes[at..at + 2].copy_from_slice(&written.to_be_bytes());
    Some(Completed { at, is_longer: length - fixed > usize::from(u16::MAX) })
}

/// Where the header of an IPv4 packet of TCP ends, whose total length is 0 and which is no fragment (RFC 791).
fn ipv4_without_length(header: &[u8]) -> Option<usize> {
    let fixed = header.first_chunk::<20>()?;
    let is_whole = fixed[6] & 0x3f == 0 && fixed[7] == 0;
    let bytes = usize::from(fixed[0] & 0xf) * 4;
    (fixed[2..4] == [0; 2] && fixed[9] == TCP && is_whole && bytes >= 20).then_some(bytes)
}

/// Where the header of an IPv6 packet of TCP ends, whose payload length is 0 (RFC 8200). It may have the option of a
/// jumbo payload (RFC 2675), as older kernels write it.
fn ipv6_without_length(header: &[u8]) -> Option<usize> {
    const JUMBO_PAYLOAD: [u8; 4] = [TCP, 0, 0xc2, 4];
    let fixed = header.first_chunk::<40>()?;
    if fixed[4..6] != [0; 2] {
        return None;
    }
    match fixed[6] {
        TCP => Some(40),
        0 if header.get(40..44)? == JUMBO_PAYLOAD => Some(48),
        _ => None,
    }
}

/// Where the IP header begins.
fn network(bytes: &[u8], link: Link) -> Option<usize> {
    let (mut at, ether_type_at) = match link {
        Link::RawIp => return Some(0),
        Link::Ethernet => (14, 12),
        Link::Cooked => (16, 14),
        Link::Cooked2 => (20, 0),
    };
    let word = |at: usize| bytes.get(at..at + 2).map(|word| [word[0], word[1]]);
    let mut ether_type = word(ether_type_at)?;
    for _ in 0..2 {
        if matches!(ether_type, [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]) {
            ether_type = word(at + 2)?;
            at += 4;
        }
    }
    matches!(ether_type, [0x08, 0x00] | [0x86, 0xdd]).then_some(at)
}
