//! Link headers that the datapath does not parse: the reader takes them off.
//!
//! A frame then begins with its IP header, or with its Ethernet header, and the verdict on it is the verdict that Weir
//! would give on such a link. Writers put the header back. The headers are described at tcpdump.org/linktypes.html.

use std::ops::Range;

use weir_abi::Link;

use super::link_type::link_of;
use super::link_type::taken_off::*;

/// The largest number of headers around each other: PKTAP has a link type of its own inside.
const NESTED_MAX: usize = 2;

/// The part of a captured packet that the datapath sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inner {
    /// Its link layer.
    pub(super) link: Link,
    /// Its captured bytes.
    pub(super) at: Range<usize>,
}

/// The part of a packet that the datapath sees. A packet without IP behind a header that is taken off has no link that
/// the datapath knows: it is raw IP of an unknown version, or an empty frame. `None` if the link type is not read.
pub(super) fn inner(link_type: u16, bytes: &[u8]) -> Option<Inner> {
    if let Some(link) = link_of(link_type) {
        return Some(Inner { link, at: 0..bytes.len() });
    }
    is_read(link_type).then(|| behind(link_type, bytes, 0, 0).unwrap_or_else(|| without_ip(bytes)))
}

/// Whether packets of a link type are read.
pub(super) fn is_read(link_type: u16) -> bool {
    link_of(link_type).is_some() || ALL.contains(&link_type)
}

/// Finds the frame behind the header at `from`.
fn behind(link_type: u16, bytes: &[u8], from: usize, depth: usize) -> Option<Inner> {
    let header = bytes.get(from..)?;
    let ip_at = |at: usize| raw_ip(bytes, from + at..bytes.len());
    match link_type {
        NULL => is_ip_family(family(header)?).then(|| ip_at(4))?,
        LOOP => is_ip_family(u32::from_be_bytes(*header.first_chunk()?)).then(|| ip_at(4))?,
        // Address family, security parameters and flags (enc(4)).
        ENC => is_ip_family(family(header)?).then(|| ip_at(12))?,
        // The length without padding, then the address family (pflog(4)).
        PFLOG => is_ip_family((*header.get(1)?).into()).then(|| ip_at(usize::from(header[0]).next_multiple_of(4)))?,
        PPP | PPP_HDLC => ppp(header).and_then(ip_at),
        PPP_WITH_DIR => ppp(header.get(1..)?).and_then(|at| ip_at(1 + at)),
        // The direction stands in place of the address.
        PPP_PPPD => ppp(header.get(2..)?).and_then(|at| ip_at(2 + at)),
        // A direction, and fifteen bytes of a compressed header.
        SLIP => ip_at(16),
        // LLC and SNAP of an EtherType (RFC 2684).
        ATM_RFC1483 => matches!(header, [0xaa, 0xaa, 3, 0, 0, 0, 8, 0, ..] | [0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd, ..])
            .then(|| ip_at(8))?,
        // Address, then control and a network protocol (RFC 2427), or Cisco's EtherType.
        FRELAY => {
            let is_ip = matches!(header, [_, _, 3, 0xcc | 0x8e, ..] | [_, _, 8, 0, ..] | [_, _, 0x86, 0xdd, ..]);
            is_ip.then(|| ip_at(4))?
        }
        // Version and type, code, session and length (RFC 2516), then PPP without its framing.
        PPP_ETHER => ppp(header.get(6..)?).and_then(|at| ip_at(6 + at)),
        C_HDLC => cisco(header).and_then(ip_at),
        C_HDLC_WITH_DIR => cisco(header.get(1..)?).and_then(|at| ip_at(1 + at)),
        // Version 1, address family of Solaris, and 22 bytes of zones and interfaces.
        IPNET => matches!(header.get(..2)?, [1, 2 | 26]).then(|| ip_at(24))?,
        NFLOG => nflog(header).and_then(|at| raw_ip(bytes, from + at.start..from + at.end)),
        // Four bytes of the analyzer's own.
        NETANALYZER => (header.len() > 4).then_some(Inner { link: Link::Ethernet, at: from + 4..bytes.len() }),
        PKTAP if depth < NESTED_MAX => pktap(bytes, from, depth),
        _ => None,
    }
}

/// IP of either version at a range of the packet.
fn raw_ip(bytes: &[u8], at: Range<usize>) -> Option<Inner> {
    let version = bytes.get(at.clone())?.first()? >> 4;
    matches!(version, 4 | 6).then_some(Inner { link: Link::RawIp, at })
}

/// A packet that is not IP. No header may make the datapath read it as IP, so the frame begins with its first byte that
/// is no version of IP.
fn without_ip(bytes: &[u8]) -> Inner {
    let start = bytes.iter().position(|byte| !matches!(byte >> 4, 4 | 6)).unwrap_or(bytes.len());
    Inner { link: Link::RawIp, at: start..bytes.len() }
}

/// An address family in the byte order of the host that captured, which the file need not share.
fn family(header: &[u8]) -> Option<u32> {
    let field = *header.first_chunk()?;
    Some(u32::from_le_bytes(field).min(u32::from_be_bytes(field)))
}

/// `AF_INET`, or `AF_INET6` of one of the systems: Linux, Windows, NetBSD and OpenBSD, FreeBSD, macOS.
fn is_ip_family(family: u32) -> bool {
    matches!(family, 2 | 10 | 23 | 24 | 28 | 30)
}

/// Where IP begins behind a PPP header: address and control (ff 03, or Cisco's 0f 00), which may be missing, and a
/// protocol of two bytes or, compressed, one (RFC 1661, RFC 1662).
fn ppp(header: &[u8]) -> Option<usize> {
    let framing = match header {
        [0xff, 0x03, ..] => 2,
        [0x0f | 0x8f, 0x00, ..] => return cisco(header),
        _ => 0,
    };
    match header.get(framing..)? {
        [0x00, 0x21 | 0x57, ..] => Some(framing + 2),
        [0x21 | 0x57, ..] => Some(framing + 1),
        _ => None,
    }
}

/// Where IP begins behind a header of Cisco's HDLC: address, control, and an EtherType.
fn cisco(header: &[u8]) -> Option<usize> {
    matches!(header, [0x0f | 0x8f, _, 0x08, 0x00, ..] | [0x0f | 0x8f, _, 0x86, 0xdd, ..]).then_some(4)
}

/// The payload of a log message of netfilter: family, version and resource, then fields of length, type and value,
/// padded to four bytes. Length and type have the byte order of the host, and nearly all hosts are little-endian.
fn nflog(header: &[u8]) -> Option<Range<usize>> {
    const PAYLOAD: u16 = 9;
    let mut at = 4;
    loop {
        let field = header.get(at..)?;
        let word = |from: usize| Some([*field.get(from)?, *field.get(from + 1)?]);
        let [length, kind] = [u16::from_le_bytes(word(0)?), u16::from_le_bytes(word(2)?)];
        let length = usize::from(length);
        if length < 4 {
            return None;
        }
        if kind == PAYLOAD {
            // A snaplen may have cut it.
            return Some(at + 4..header.len().min(at + length));
        }
        at += length.next_multiple_of(4);
    }
}

/// Apple's header: its length and the link type of the packet behind it, both little-endian.
fn pktap(bytes: &[u8], from: usize, depth: usize) -> Option<Inner> {
    let header = bytes.get(from..)?;
    let field = |at: usize| header.get(at..at + 4).and_then(|field| field.try_into().ok()).map(u32::from_le_bytes);
    let (length, link_type) = (field(0)? as usize, u16::try_from(field(8)?).ok()?);
    let start = from.checked_add(length).filter(|&start| length >= 12 && start < bytes.len())?;
    match link_of(link_type) {
        Some(link) => Some(Inner { link, at: start..bytes.len() }),
        None => behind(link_type, bytes, start, depth + 1),
    }
}
