//! Segments that take the place of received ones: the answer to a SYN, and the handshake with the server.
//!
//! Ends, VLAN tags and, if the packet goes on, the IP header with its options are taken from the received packet. The
//! TCP header is new, and so is its checksum. What the packet carried is left out.

use super::Leaving;
use super::checksum::{folded, sum, updated};
use crate::ir::eval::packet::{Frame, Packet, be16};
use weir_abi::Link;
use weir_abi::packet::L3;

/// Where a built packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On, in place of the received one.
    On,
    /// Back to the sender of the received one.
    Back,
}

/// A new segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// Where it goes.
    pub way: Way,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement, 0 without the flag.
    pub ack: u32,
    /// The flags.
    pub flags: u8,
    /// The window as written.
    pub window: u16,
    /// The options, in whole words.
    pub options: Vec<u8>,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// The hop limit of replies.
const HOPS: u8 = 64;
const TCP: u8 = 6;

/// Builds a segment in place of a received one.
pub fn build(packet: &Packet, frame: Frame<'_>, built: &Built) -> Leaving {
    let mut bytes = frame.bytes[..packet.l3_offset].to_vec();
    if built.way == Way::Back && frame.link == Link::Ethernet {
        bytes[..12].rotate_left(6);
    }
    let header = 20 + built.options.len();
    let length = header + built.payload.len();
    let ip = match (packet.l3, built.way) {
        (L3::Ipv6, Way::Back) => reply6(packet, length),
        (L3::Ipv6, Way::On) => onward6(packet, frame, length),
        (_, Way::Back) => reply4(packet, length),
        (_, Way::On) => onward4(packet, frame, length),
    };
    bytes.extend(ip);
    let [sport, dport] = match built.way {
        Way::On => [packet.sport, packet.dport],
        Way::Back => [packet.dport, packet.sport],
    };
    let mut tcp = Vec::with_capacity(length);
    tcp.extend([sport, dport].iter().flat_map(|port| port.to_be_bytes()));
    tcp.extend([built.seq, built.ack].iter().flat_map(|number| number.to_be_bytes()));
    tcp.extend([(header as u8 / 4) << 4, built.flags]);
    tcp.extend(built.window.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend(&built.options);
    tcp.extend(&built.payload);
    let checksum = !folded(sum(pseudo_header(packet, length), &tcp));
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(tcp);
    let wire_len = bytes.len() as u32;
    Leaving { bytes, wire_len }
}

/// The sum of the pseudo header, which is the same in both directions (RFC 9293, section 3.1; RFC 8200, section 8.1).
fn pseudo_header(packet: &Packet, length: usize) -> u32 {
    let ends = [packet.saddr, packet.daddr].map(u128::to_be_bytes);
    let ends = sum(sum(0, &ends[0]), &ends[1]);
    ends + u32::from(TCP) + length as u32
}

fn reply4(packet: &Packet, length: usize) -> Vec<u8> {
    let total = (20 + length) as u16;
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    // Never fragmented, so it needs no identification (RFC 6864).
    header.extend([0, 0, 0x40, 0, HOPS, TCP, 0, 0]);
    header.extend((packet.daddr as u32).to_be_bytes());
    header.extend((packet.saddr as u32).to_be_bytes());
    let checksum = !folded(sum(0, &header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn reply6(packet: &Packet, length: usize) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((length as u16).to_be_bytes());
    header.extend([TCP, HOPS]);
    header.extend(packet.daddr.to_be_bytes());
    header.extend(packet.saddr.to_be_bytes());
    header
}

/// The received header with its options and another length.
fn onward4(packet: &Packet, frame: Frame<'_>, length: usize) -> Vec<u8> {
    let mut header = frame.bytes[packet.l3_offset..packet.l4_offset].to_vec();
    let total = ((header.len() + length) as u16).to_be_bytes();
    let checksum = be16(&header[10..]);
    if header[2..4] != total {
        let checksum = updated(checksum, &header[2..4], &total);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    header[2..4].copy_from_slice(&total);
    header
}

/// The received header with its extension headers and another length.
fn onward6(packet: &Packet, frame: Frame<'_>, length: usize) -> Vec<u8> {
    let mut header = frame.bytes[packet.l3_offset..packet.l4_offset].to_vec();
    let payload = ((header.len() - 40 + length) as u16).to_be_bytes();
    header[4..6].copy_from_slice(&payload);
    header
}
