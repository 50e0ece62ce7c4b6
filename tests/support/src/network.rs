//! IPv4, IPv6 and its extension headers.

use crate::args::Args;
use crate::checksum;
use crate::layer::{Addresses, Inner, PROTO_EXPERIMENTAL, PROTO_NONE, length_arg, proto_arg};
use std::net::{Ipv4Addr, Ipv6Addr};

const SADDR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DADDR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SADDR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DADDR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// The addresses of an `ip` layer.
pub fn addresses4(args: &mut Args<'_>) -> Result<Addresses, String> {
    Ok(Addresses::V4(args.parsed("saddr", SADDR)?, args.parsed("daddr", DADDR)?))
}

/// The addresses of an `ip6` layer.
pub fn addresses6(args: &mut Args<'_>) -> Result<Addresses, String> {
    Ok(Addresses::V6(args.parsed("saddr", SADDR6)?, args.parsed("daddr", DADDR6)?))
}

/// `tos=` or `tc=` for the whole byte, or `dscp=` and `ecn=`.
fn traffic_class(args: &mut Args<'_>, whole: &str) -> Result<u8, String> {
    let dscp = args.below("dscp", 64)?.unwrap_or(0) as u8;
    let ecn = args.below("ecn", 4)?.unwrap_or(0) as u8;
    Ok(args.number(whole)?.unwrap_or(dscp << 2 | ecn))
}

/// A fragment's offset: bytes in the notation, units of 8 on the wire.
fn fragment_units(args: &mut Args<'_>) -> Result<u16, String> {
    let off = args.below("off", 1 << 16)?.unwrap_or(0) as u16;
    if off.is_multiple_of(8) { Ok(off / 8) } else { Err(format!("{}: off={off} is not a multiple of 8", args.layer())) }
}

/// `ip [saddr= daddr= ttl= tos=|dscp= ecn= id= off= mf df rf proto= options=HEX len= version= ihl= sum=]` (RFC 791)
pub fn ip(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let mut options = args.hex("options")?.unwrap_or_default();
    options.resize(options.len().next_multiple_of(4), 0);
    let header_bytes = 20 + options.len();
    let version = args.below("version", 16)?.unwrap_or(4) as u8;
    let ihl = args.below("ihl", 16)?.unwrap_or((header_bytes as u64 / 4) & 15) as u8;
    let flags = u16::from(args.flag("rf")) << 15 | u16::from(args.flag("df")) << 14 | u16::from(args.flag("mf")) << 13;
    let Addresses::V4(saddr, daddr) = addresses4(args)? else { unreachable!("IPv4 addresses were asked for") };

    let mut header = vec![version << 4 | ihl, traffic_class(args, "tos")?];
    header.extend(length_arg(args, header_bytes + inner.bytes.len())?.to_be_bytes());
    header.extend(args.number("id")?.unwrap_or(0u16).to_be_bytes());
    header.extend((flags | fragment_units(args)?).to_be_bytes());
    header.push(args.number("ttl")?.unwrap_or(64));
    header.push(proto_arg(args, "proto")?.unwrap_or(inner.proto_or(PROTO_EXPERIMENTAL)));
    header.extend([0, 0]);
    header.extend(saddr.octets());
    header.extend(daddr.octets());
    header.extend(options);
    let sum = args.number("sum")?.unwrap_or_else(|| checksum::internet(&[&header]));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok(header)
}

/// `ip6 [saddr= daddr= hlim= tc=|dscp= ecn= flow= nh= len= version=]` (RFC 8200 section 3)
pub fn ip6(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let version = args.below("version", 16)?.unwrap_or(6) as u32;
    let class = u32::from(traffic_class(args, "tc")?);
    let flow = args.below("flow", 1 << 20)?.unwrap_or(0) as u32;
    let Addresses::V6(saddr, daddr) = addresses6(args)? else { unreachable!("IPv6 addresses were asked for") };

    let mut header = (version << 28 | class << 20 | flow).to_be_bytes().to_vec();
    header.extend(length_arg(args, inner.bytes.len())?.to_be_bytes());
    header.push(proto_arg(args, "nh")?.unwrap_or(inner.proto_or(PROTO_NONE)));
    header.push(args.number("hlim")?.unwrap_or(64));
    header.extend(saddr.octets());
    header.extend(daddr.octets());
    Ok(header)
}

/// `hbh|dst|mh [options=HEX nh= len=]`: options after two bytes, padded to 8. `len` is in the field's own unit, 8 bytes
/// after the first 8.
pub fn options(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    // PadN fills the six bytes that every such header has.
    let mut body = args.hex("options")?.unwrap_or(vec![1, 4, 0, 0, 0, 0]);
    body.resize((body.len() + 2).next_multiple_of(8) - 2, 0);
    let nh = proto_arg(args, "nh")?.unwrap_or(inner.proto_or(PROTO_NONE));
    let len = args.number("len")?.unwrap_or((body.len() / 8) as u8);
    Ok([&[nh, len], &body[..]].concat())
}

/// `rt [type= segs= data=HEX nh= len=]` (RFC 8200 section 4.4)
pub fn routing(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let mut body = vec![args.number("type")?.unwrap_or(2), args.number("segs")?.unwrap_or(0)];
    body.extend(args.hex("data")?.unwrap_or(vec![0; 4]));
    body.resize((body.len() + 2).next_multiple_of(8) - 2, 0);
    let nh = proto_arg(args, "nh")?.unwrap_or(inner.proto_or(PROTO_NONE));
    let len = args.number("len")?.unwrap_or((body.len() / 8) as u8);
    Ok([&[nh, len], &body[..]].concat())
}

/// `frag [off= mf id= nh=]` (RFC 8200 section 4.5)
pub fn fragment(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let nh = proto_arg(args, "nh")?.unwrap_or(inner.proto_or(PROTO_NONE));
    let place = fragment_units(args)? << 3 | u16::from(args.flag("mf"));
    let id: u32 = args.number("id")?.unwrap_or(0);
    Ok([&[nh, 0], &place.to_be_bytes()[..], &id.to_be_bytes()].concat())
}

/// `ah [spi= seq= icv=HEX nh= len=]` (RFC 4302): `len` is in units of 4 bytes, minus 2.
pub fn authentication(args: &mut Args<'_>, inner: &Inner) -> Result<Vec<u8>, String> {
    let mut icv = args.hex("icv")?.unwrap_or(vec![0; 12]);
    icv.resize(icv.len().next_multiple_of(4), 0);
    let nh = proto_arg(args, "nh")?.unwrap_or(inner.proto_or(PROTO_NONE));
    let len = args.number("len")?.unwrap_or((icv.len() / 4 + 1) as u8);
    let (spi, seq): (u32, u32) = (args.number("spi")?.unwrap_or(1), args.number("seq")?.unwrap_or(1));
    Ok([&[nh, len, 0, 0], &spi.to_be_bytes()[..], &seq.to_be_bytes(), &icv].concat())
}
