//! Link headers: Ethernet, VLAN tags, Linux cooked captures, and ARP.

use crate::args::Args;
use crate::layer::{ETHER_TYPE_EXPERIMENTAL, Inner};
use std::net::Ipv4Addr;

const MAC_FROM: &str = "02:00:00:00:00:01";
const MAC_TO: &str = "02:00:00:00:00:02";

fn ether_type(args: &mut Args<'_>, inner: &Inner) -> Result<[u8; 2], String> {
    let announced = inner.ether_type.unwrap_or(ETHER_TYPE_EXPERIMENTAL);
    Ok(args.number("type")?.unwrap_or(announced).to_be_bytes())
}

fn mac(args: &mut Args<'_>, key: &str, otherwise: &str) -> Result<[u8; 6], String> {
    let layer = args.layer();
    let text = args.value(key)?.unwrap_or(otherwise);
    let bytes = crate::args::hex(text).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("{layer}: {key}={text} is no MAC address"))
}

/// `eth [dst=MAC] [src=MAC] [type=N]`
pub fn eth(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let (dst, src) = (mac(args, "dst", MAC_TO)?, mac(args, "src", MAC_FROM)?);
    Ok([&dst[..], &src, &ether_type(args, inner)?].concat())
}

/// `vlan [id=N] [pcp=N] [dei] [type=N] [tpid=N]`. Returns the tag and its own EtherType, which the preceding header
/// holds.
pub fn vlan(args: &mut Args<'_>, inner: &Inner) -> Result<(Vec<u8>, u16), String> {
    let id = args.below("id", 1 << 12)?.unwrap_or(0) as u16;
    let pcp = args.below("pcp", 1 << 3)?.unwrap_or(0) as u16;
    let tci = pcp << 13 | u16::from(args.flag("dei")) << 12 | id;
    let tpid = args.number("tpid")?.unwrap_or(0x8100);
    Ok(([tci.to_be_bytes(), ether_type(args, inner)?].concat(), tpid))
}

/// `sll [type=N]`: LINKTYPE_LINUX_SLL, a packet to us from an Ethernet card.
pub fn sll(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0, 0, 0, 1, 0, 6];
    bytes.extend(mac(args, "src", MAC_FROM)?);
    bytes.extend([0, 0]);
    bytes.extend(ether_type(args, inner)?);
    Ok(bytes)
}

/// `sll2 [type=N]`: LINKTYPE_LINUX_SLL2.
pub fn sll2(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let mut bytes = ether_type(args, inner)?.to_vec();
    bytes.extend([0, 0, 0, 0, 0, 1, 0, 1, 0, 6]);
    bytes.extend(mac(args, "src", MAC_FROM)?);
    bytes.extend([0, 0]);
    Ok(bytes)
}

/// `arp [op=N] [saddr=A] [daddr=A]` (RFC 826, IPv4 over Ethernet).
pub fn arp(args: &mut Args<'_>) -> Result<Vec<u8>, String> {
    let op: u16 = args.number("op")?.unwrap_or(1);
    let saddr = args.parsed("saddr", Ipv4Addr::new(192, 0, 2, 1))?.octets();
    let daddr = args.parsed("daddr", Ipv4Addr::new(192, 0, 2, 2))?.octets();
    let (sender, target) = (mac(args, "src", MAC_FROM)?, [0; 6]);
    Ok([&[0, 1, 8, 0, 6, 4], &op.to_be_bytes()[..], &sender, &saddr, &target, &daddr].concat())
}
