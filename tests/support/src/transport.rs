//! Transport headers.

use crate::args::{self, Args};
use crate::checksum;
use crate::layer::{Addresses, Inner, length_arg};

const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
const PROTO_TCP: u8 = 6;
const PROTO_UDP: u8 = 17;
const PROTO_ICMP6: u8 = 58;

fn ports(args: &mut Args<'_>) -> Result<Vec<u8>, String> {
    let (sport, dport): (u16, u16) = (args.number("sport")?.unwrap_or(40000), args.number("dport")?.unwrap_or(80));
    Ok([sport.to_be_bytes(), dport.to_be_bytes()].concat())
}

/// The checksum over pseudo-header, header and payload. Outside IP there is no pseudo-header.
fn sum_of(header: &[u8], payload: &[u8], pseudo: Option<(Addresses, u8)>) -> u16 {
    let length = header.len() + payload.len();
    let pseudo = pseudo.map(|(addresses, proto)| addresses.pseudo_header(proto, length)).unwrap_or_default();
    checksum::internet(&[&pseudo, header, payload])
}

fn flags(args: &mut Args<'_>) -> Result<u8, String> {
    let Some(text) = args.value("flags")? else { return Ok(0x02) };
    if let Some(number) = args::number(text) {
        return Ok(number);
    }
    let mut flags = 0;
    for name in text.split([',', '|']).filter(|name| *name != "none") {
        let bit = FLAGS.iter().position(|flag| *flag == name);
        flags |= 1 << bit.ok_or_else(|| format!("tcp: {name} is no flag of {}", FLAGS.join(", ")))?;
    }
    Ok(flags)
}

/// `tcp [sport= dport= flags=syn,ack seq= ack= window= urg= options=HEX doff= sum=]` (RFC 9293); a SYN by default.
pub fn tcp(args: &mut Args<'_>, inner: &Inner, addresses: Option<Addresses>) -> Result<Vec<u8>, String> {
    let mut options = args.hex("options")?.unwrap_or_default();
    options.resize(options.len().next_multiple_of(4), 0);
    let doff = args.below("doff", 16)?.unwrap_or(((20 + options.len() as u64) / 4) & 15) as u8;

    let mut header = ports(args)?;
    header.extend(args.number("seq")?.unwrap_or(0u32).to_be_bytes());
    header.extend(args.number("ack")?.unwrap_or(0u32).to_be_bytes());
    header.extend([doff << 4, flags(args)?]);
    header.extend(args.number("window")?.unwrap_or(65535u16).to_be_bytes());
    header.extend([0, 0]);
    header.extend(args.number("urg")?.unwrap_or(0u16).to_be_bytes());
    header.extend(options);
    let computed = sum_of(&header, &inner.bytes, addresses.map(|a| (a, PROTO_TCP)));
    header[16..18].copy_from_slice(&args.number("sum")?.unwrap_or(computed).to_be_bytes());
    Ok(header)
}

/// `udp [sport= dport= len= sum=]` (RFC 768)
pub fn udp(args: &mut Args<'_>, inner: &Inner, addresses: Option<Addresses>) -> Result<Vec<u8>, String> {
    let mut header = ports(args)?;
    header.extend(length_arg(args, 8 + inner.bytes.len())?.to_be_bytes());
    header.extend([0, 0]);
    // A computed 0 is sent as 0xffff, because 0 means that there is no checksum.
    let computed = match sum_of(&header, &inner.bytes, addresses.map(|a| (a, PROTO_UDP))) {
        0 => 0xffff,
        sum => sum,
    };
    header[6..8].copy_from_slice(&args.number("sum")?.unwrap_or(computed).to_be_bytes());
    Ok(header)
}

/// `icmp|icmp6 [type= code= id= seq= sum=]`: an echo request by default (RFC 792, RFC 4443).
pub fn icmp(
    args: &mut Args<'_>,
    inner: &Inner,
    addresses: Option<Addresses>,
    echo_request: u8,
) -> Result<Vec<u8>, String> {
    let mut header = vec![args.number("type")?.unwrap_or(echo_request), args.number("code")?.unwrap_or(0), 0, 0];
    header.extend(args.number("id")?.unwrap_or(0u16).to_be_bytes());
    header.extend(args.number("seq")?.unwrap_or(0u16).to_be_bytes());
    // Only ICMPv6 includes the pseudo-header in its checksum.
    let pseudo = addresses.filter(|_| args.layer() == "icmp6").map(|a| (a, PROTO_ICMP6));
    let computed = sum_of(&header, &inner.bytes, pseudo);
    header[2..4].copy_from_slice(&args.number("sum")?.unwrap_or(computed).to_be_bytes());
    Ok(header)
}

/// `sctp|dccp|udplite [sport= dport=]`: ports, and zeros in the rest of the fixed header.
pub fn other_ports(args: &mut Args<'_>) -> Result<Vec<u8>, String> {
    let mut header = ports(args)?;
    let bytes = if args.layer() == "udplite" { 8 } else { 12 };
    header.resize(bytes, 0);
    Ok(header)
}

/// `esp [spi= seq=]` (RFC 4303)
pub fn esp(args: &mut Args<'_>) -> Result<Vec<u8>, String> {
    let (spi, seq): (u32, u32) = (args.number("spi")?.unwrap_or(1), args.number("seq")?.unwrap_or(1));
    Ok([spi.to_be_bytes(), seq.to_be_bytes()].concat())
}
