//! The headers of a packet that a tap tests before the packet is copied, and whether they exclude it
//! ([`weir_abi::tap_where`]). It may miss that a packet is excluded, and never excludes one that matches:
//! datapath/observe/tap_head.h is the same in C.

use weir_abi::Link;
use weir_abi::slot::AddressRange;
use weir_abi::tap::TapHead;
use weir_abi::tap_where::{TAP_HEAD_BYTES, TapWhere};

const LINK_BYTES: usize = 14;
const VLAN_TAGS: usize = 2;

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Whether a header of IPv6 may stand in front of another one.
fn is_extension(proto: u8) -> bool {
    matches!(proto, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
}

/// Reads IPv4 at `l3`. Returns where the next header begins; `None` if that is not known.
fn read_ipv4(bytes: &[u8], l3: usize, head: &mut TapHead) -> Option<usize> {
    let ip: &[u8; 20] = bytes.get(l3..)?.first_chunk()?;
    if ip[0] >> 4 != 4 {
        return None;
    }
    let address = |at: usize| [0, u64::from(u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]))];
    (head.family, head.proto) = (4, ip[9].into());
    (head.saddr, head.daddr) = (address(12), address(16));
    let is_fragment = be16(ip, 6)? & 0x3fff != 0;
    (!is_fragment).then_some(l3 + 4 * usize::from(ip[0] & 15))
}

fn read_ipv6(bytes: &[u8], l3: usize, head: &mut TapHead) -> Option<usize> {
    let ip: &[u8; 40] = bytes.get(l3..)?.first_chunk()?;
    if ip[0] >> 4 != 6 {
        return None;
    }
    head.family = 6;
    (head.saddr, head.daddr) = ([be64(ip, 8)?, be64(ip, 16)?], [be64(ip, 24)?, be64(ip, 32)?]);
    if is_extension(ip[6]) {
        return None;
    }
    head.proto = ip[6].into();
    Some(l3 + 40)
}

/// The headers of a frame.
pub(super) fn read(link: Link, bytes: &[u8]) -> TapHead {
    let mut head = TapHead::NONE;
    if link == Link::Ethernet {
        let _unknown = read_ethernet(&bytes[..bytes.len().min(TAP_HEAD_BYTES)], &mut head);
    }
    head
}

fn read_ethernet(bytes: &[u8], head: &mut TapHead) -> Option<()> {
    let (mut kind, mut l3) = (be16(bytes, 12)?, LINK_BYTES);
    for _ in 0..VLAN_TAGS {
        if !matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        kind = be16(bytes, l3 + 2)?;
        l3 += 4;
    }
    let l4 = match kind {
        0x0800 => read_ipv4(bytes, l3, head)?,
        0x86dd => read_ipv6(bytes, l3, head)?,
        _ => return None,
    };
    if matches!(head.proto, 6 | 17) && bytes.len() >= l4 + 4 {
        (head.sport, head.dport) = (be16(bytes, l4)?, be16(bytes, l4 + 2)?);
    }
    Some(())
}

/// Whether the datapath copies a frame to a tap that wants these headers.
pub fn may_match(wanted: &TapWhere, link: Link, bytes: &[u8]) -> bool {
    !excludes(wanted, &read(link, bytes))
}

/// Whether headers are outside of a range.
pub(super) fn excludes(wanted: &TapWhere, head: &TapHead) -> bool {
    let has_number =
        |[first, last]: [u32; 2], number: u32| number == TapHead::UNKNOWN || (first..=last).contains(&number);
    let has_address = |range: &AddressRange, address: [u64; 2]| range.first <= address && address <= range.last;
    let is_in = (wanted.family == 0 || wanted.family == head.family)
        && has_number(wanted.proto, head.proto)
        && has_number(wanted.sport, head.sport)
        && has_number(wanted.dport, head.dport)
        && has_address(&wanted.saddr, head.saddr)
        && has_address(&wanted.daddr, head.daddr);
    head.family != 0 && !is_in
}
