//! The differences at packets of other protocols than TCP. Each has a row in docs/reference/tracking.md.

use crate::differences::Then;
use crate::messages::{OPTIONS, UDP_LITE};
use crate::weir::{Judged, parsed};
use weir_abi::Reason;
use weir_abi::packet::{L3, L4};
use weir_policy::ir::eval::packet::Packet;

/// The types of node information queries and replies (RFC 4620).
const NODE_INFORMATION: [u8; 2] = [139, 140];

/// The name of the difference at a packet, after the packets `before` of its flow; `None` if it is not known. `newest`
/// is the last segment whose numbers the flow has.
pub fn class(
    bytes: &[u8],
    before: &[&Vec<u8>],
    newest: Option<&[u8]>,
    ours: &Judged,
    theirs: &str,
) -> Option<(&'static str, Then)> {
    let packet = parsed(bytes);
    let known = match is_error(&packet) {
        true => error(bytes, &packet, newest, ours, theirs),
        false => message(&packet, ours),
    };
    known.or_else(|| {
        let mut earlier = before.iter().map(|bytes| &bytes[..]).chain([bytes]);
        let has_code = earlier.any(|bytes| icmp(bytes).is_some_and(|[_, code]| code != 0));
        has_code.then_some(("icmp-code", Then::Diverged))
    })
}

/// The type and code of an ICMP message that is no error, or of that which an error quotes.
fn icmp(bytes: &[u8]) -> Option<[u8; 2]> {
    let packet = parsed(bytes);
    if is_error(&packet) {
        let (quote, header) = quote(bytes, &packet)?;
        let is_icmp = matches!((quote[0] >> 4, quote[9], quote[6]), (4, 1, _) | (6, _, 58));
        return quote.get(header..header + 2).filter(|_| is_icmp)?.try_into().ok();
    }
    matches!(packet.l4, L4::Icmp | L4::Icmp6).then_some([packet.icmp_type, packet.icmp_code])
}

/// What an error quotes, if it has a whole IP header, and the length of this.
fn quote<'b>(bytes: &'b [u8], packet: &Packet) -> Option<(&'b [u8], usize)> {
    let header = if packet.l3 == L3::Ipv6 { 40 } else { 20 };
    let quote = bytes.get(packet.l4_offset + 8..)?;
    (quote.len() >= header).then_some((quote, header))
}

fn is_error(packet: &Packet) -> bool {
    match packet.l4 {
        L4::Icmp => matches!(packet.icmp_type, 3 | 4 | 5 | 11 | 12),
        L4::Icmp6 => packet.icmp_type < 128,
        _ => false,
    }
}

fn error(
    bytes: &[u8],
    packet: &Packet,
    newest: Option<&[u8]>,
    ours: &Judged,
    theirs: &str,
) -> Option<(&'static str, Then)> {
    let (quote, header) = quote(bytes, packet)?;
    let is_ipv6 = packet.l3 == L3::Ipv6;
    let class = match ours.reason.filter(|_| theirs == "related")? {
        // A router may quote the newest segment.
        Reason::OUT_OF_WINDOW if !newest.is_some_and(|newest| newest.starts_with(&quote[..header + 8])) => {
            "quoted-number"
        }
        Reason::NO_STATE if is_ipv6 && quote[6] == OPTIONS => "quoted-options",
        Reason::NO_STATE if quote.len() < header + 8 => "short-quote",
        Reason::NO_STATE if is_ipv6 && icmp(bytes).is_some_and(|[kind, _]| NODE_INFORMATION.contains(&kind)) => {
            "node-information"
        }
        _ => return None,
    };
    Some((class, Then::Same))
}

fn message(packet: &Packet, ours: &Judged) -> Option<(&'static str, Then)> {
    let node_information = packet.l4 == L4::Icmp6 && NODE_INFORMATION.contains(&packet.icmp_type);
    match ours.reason {
        None if packet.proto == UDP_LITE => Some(("no-checksum", Then::Diverged)),
        Some(Reason::NO_STATE) if node_information => Some(("node-information", Then::Same)),
        _ => None,
    }
}
