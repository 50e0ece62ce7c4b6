//! From a frame to the headers that detection knows.

use weir_abi::Reason;
use weir_abi::packet::{Fragment, L3, L4};
use weir_mitigate::header::{Header, PAYLOAD_BYTES};
use weir_policy::ir::eval::packet::{self, Frame, Packet};

/// Bytes of a UDP header.
const UDP_BYTES: u16 = 8;
/// Bytes of an ICMP header.
const ICMP_BYTES: u16 = 8;
/// Where the total length of an IPv4 header is.
const TOTAL_LENGTH: std::ops::Range<usize> = 2..4;

/// Why detection does not see a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The packet has no IP header that can be read.
    WithoutHeader,
    /// The capture ends inside its headers, so fields are unknown.
    CutShort,
}

/// The headers of a frame of a recording. A malformed packet has the fields that were read.
///
/// # Errors
/// It has no IP header, or the capture does not contain all of its headers. TCP options may be missing: none is a
/// field.
pub fn of(frame: Frame<'_>) -> Result<Header, Unseen> {
    match read(frame) {
        None => Err(Unseen::WithoutHeader),
        Some((_, true)) => Err(Unseen::CutShort),
        Some((header, false)) => Ok(header),
    }
}

/// The headers of a sample, which has the beginning of a packet. Fields behind its end are 0: an attacker must not be
/// able to hide by headers that are longer than a sample. `None` if it has no IP header.
pub fn of_sample(frame: Frame<'_>) -> Option<Header> {
    read(frame).map(|(header, _)| header)
}

/// The headers of a frame, and whether the capture ends inside them. `None` if there is no IP header.
fn read(frame: Frame<'_>) -> Option<(Header, bool)> {
    let parsed = packet::parse(frame);
    if parsed.0.l3 == L3::Ipv4 && parsed.0.ip_length == 0 {
        let bytes = with_total_length(frame, parsed.0.l3_offset);
        let frame = Frame { bytes: &bytes, ..frame };
        return seen(frame, packet::parse(frame));
    }
    seen(frame, parsed)
}

/// A frame with the total length that it had on the wire. Hosts that leave segmentation to the card capture it as 0.
fn with_total_length(frame: Frame<'_>, l3_offset: usize) -> Vec<u8> {
    let length = u16::try_from((frame.wire_len as usize).saturating_sub(l3_offset)).unwrap_or(u16::MAX);
    let mut bytes = frame.bytes.to_vec();
    bytes[l3_offset..][TOTAL_LENGTH].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn seen(frame: Frame<'_>, (packet, malformed): (Packet, Option<Reason>)) -> Option<(Header, bool)> {
    let is_cut_short = malformed.is_some() && packet::is_cut_short(frame);
    matches!(packet.l3, L3::Ipv4 | L3::Ipv6).then(|| (header(frame, &packet), is_cut_short))
}

fn header(frame: Frame<'_>, packet: &Packet) -> Header {
    let transport = match packet.l4 {
        L4::Tcp => u16::from(packet.doff) * 4,
        L4::Udp => UDP_BYTES,
        L4::Icmp | L4::Icmp6 => ICMP_BYTES,
        L4::None | L4::Ports | L4::Other => 0,
    };
    let payload_at = packet.l4_offset + usize::from(transport);
    let payload_length = packet.l4_length.saturating_sub(transport);
    let payload = frame.bytes.get(payload_at..payload_at + PAYLOAD_BYTES);
    let payload = payload.filter(|_| usize::from(payload_length) >= PAYLOAD_BYTES && packet.l4 == L4::Udp);
    Header {
        arrival: None,
        is_ipv6: packet.l3 == L3::Ipv6,
        saddr: packet.saddr,
        daddr: packet.daddr,
        protocol: packet.proto,
        fragment: packet.fragment,
        has_ports: matches!(packet.l4, L4::Tcp | L4::Udp | L4::Ports) && packet.fragment != Fragment::Later,
        sport: packet.sport,
        dport: packet.dport,
        length: packet.wire_len.saturating_sub(packet.l3_offset as u32),
        ttl: packet.ttl,
        ip_id: packet.ip_id,
        flags: packet.tcp_flags,
        doff: packet.doff,
        window: packet.window,
        seq: packet.seq,
        ack: packet.ack,
        icmp_type: packet.icmp_type,
        icmp_code: packet.icmp_code,
        payload_length,
        payload: payload.and_then(|bytes| bytes.try_into().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Unseen, of, of_sample};
    use weir_abi::Link;
    use weir_mitigate::header::Header;
    use weir_policy::ir::eval::packet::Frame;

    /// The headers of the first bytes of a packet.
    fn cut(notation: &str, bytes: usize) -> Result<Header, Unseen> {
        let packet = weir_test_support::packets(notation).expect("the test's packet reads").remove(0);
        let captured = &packet.bytes[..bytes.min(packet.bytes.len())];
        of(Frame { bytes: captured, wire_len: packet.bytes.len() as u32, link: Link::Ethernet, time_ns: 0 })
    }

    #[test]
    fn headers_that_are_not_captured_are_not_judged() {
        let (tcp, udp, icmp) = ("eth / ip / tcp doff=8", "eth / ip / udp", "eth / ip / icmp");
        for bytes in 0..34 {
            assert_eq!(cut(tcp, bytes), Err(Unseen::WithoutHeader), "{bytes}");
        }
        for (notation, whole) in [(tcp, 54), (udp, 42), (icmp, 42)] {
            let notation = format!("{notation} / payload 100");
            (34..whole)
                .for_each(|bytes| assert_eq!(cut(&notation, bytes), Err(Unseen::CutShort), "{notation} {bytes}"));
            // Behind the header nothing is missed but the payload of UDP.
            let whole =
                (whole..200).map(|bytes| cut(&notation, bytes).map(|header| Header { payload: None, ..header }));
            let headers: Vec<_> = whole.collect::<Result<_, _>>().expect("they are judged");
            assert!(headers.windows(2).all(|two| two[0] == two[1]), "{notation}");
        }
    }

    #[test]
    fn headers_that_are_longer_than_a_sample_hide_nobody() {
        // Destination options of 256 bytes, then UDP.
        let notation = "eth / ip6 / udp dport=53 / payload 100";
        let mut bytes = weir_test_support::packets(notation).expect("the test's packet reads").remove(0).bytes;
        let next = std::mem::replace(&mut bytes[20], 60);
        bytes.splice(54..54, [next, 31, 1, 252].into_iter().chain([0; 252]));
        let length = (bytes.len() - 54) as u16;
        bytes[18..20].copy_from_slice(&length.to_be_bytes());
        let frame = |captured: usize| Frame {
            bytes: &bytes[..captured],
            wire_len: bytes.len() as u32,
            link: Link::Ethernet,
            time_ns: 0,
        };
        let whole = of(frame(bytes.len())).expect("all headers are there");
        assert_eq!((whole.has_ports, whole.dport), (true, 53));
        assert_eq!(of(frame(256)), Err(Unseen::CutShort));
        let sample = of_sample(frame(256)).expect("it has addresses");
        assert_eq!((sample.saddr, sample.daddr, sample.is_ipv6), (whole.saddr, whole.daddr, true));
    }

    #[test]
    fn a_malformed_packet_is_judged() {
        assert_eq!(cut("eth / ip / tcp doff=4", 100).map(|header| header.protocol), Ok(6));
    }

    #[test]
    fn a_total_length_of_0_is_what_was_on_the_wire() {
        let notation = "eth / ip / tcp flags=ack / payload 100";
        let mut packet = weir_test_support::packets(notation).expect("the test's packet reads").remove(0);
        let header = |bytes: &[u8]| of(Frame { bytes, wire_len: 154, link: Link::Ethernet, time_ns: 0 });
        let usual = header(&packet.bytes).expect("it has headers");
        packet.bytes[16..18].fill(0);
        assert_eq!(header(&packet.bytes), Ok(usual));
        assert_eq!((usual.payload_length, usual.has_ports), (100, true));
        assert_eq!(header(&packet.bytes[..60]), Ok(usual));
        assert_eq!(header(&packet.bytes[..50]), Err(Unseen::CutShort));
    }
}
