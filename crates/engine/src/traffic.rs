//! Synthetic traffic: small UDP packets.

use weir_abi::Link;

pub use weir_tables::SplitMix;

use crate::frame_set::FrameSet;

/// Size of a minimum Ethernet frame without its frame check sequence, in bytes. It has 64 bytes on the wire.
pub const SMALL_FRAME_BYTES: usize = 60;

/// Size of a UDP packet of IPv6 without data, in an Ethernet frame without its frame check sequence, in bytes.
pub const SMALL_FRAME6_BYTES: usize = 62;

/// `count` packets like the packets of [`packets_from`], with random sources.
pub fn random_packets(count: usize, seed: u64) -> FrameSet {
    let mut random = SplitMix::new(seed);
    packets_from(&(0..count).map(|_| random.draw() as u32).collect::<Vec<_>>())
}

/// One UDP packet with 64 bytes on the wire for each source, all to one destination.
pub fn packets_from(sources: &[u32]) -> FrameSet {
    packets_of(SMALL_FRAME_BYTES, sources)
}

/// One UDP packet for each source, with `bytes` bytes without the frame check sequence.
pub fn packets_of(bytes: usize, sources: &[u32]) -> FrameSet {
    let mut packets = vec![0; bytes * sources.len()];
    for (packet, &source) in packets.chunks_exact_mut(bytes).zip(sources) {
        write_packet(packet, source);
    }
    FrameSet::new(Link::Ethernet, packets.chunks_exact(bytes).map(|packet| (packet, bytes as u32)))
}

/// One UDP packet of IPv6 without data for each source, all to one destination.
pub fn packets6_from(sources: &[u128]) -> FrameSet {
    let mut header = [0; SMALL_FRAME6_BYTES];
    header[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
    header[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 8, 17, 64]);
    header[38..54].copy_from_slice(&(0x2001_0db8_00cb_0071_u128 << 64 | 1).to_be_bytes());
    header[54..62].copy_from_slice(&[0x9c, 0x40, 0x1f, 0x90, 0, 8, 0, 0]);
    let packet = |source: &u128| {
        let mut packet = header;
        packet[22..38].copy_from_slice(&source.to_be_bytes());
        packet
    };
    let packets: Vec<_> = sources.iter().map(packet).collect();
    FrameSet::new(Link::Ethernet, packets.iter().map(|packet| (&packet[..], SMALL_FRAME6_BYTES as u32)))
}

/// A UDP packet of 64 bytes on the wire.
pub fn small_packet(source: u32) -> [u8; SMALL_FRAME_BYTES] {
    let mut packet = [0u8; SMALL_FRAME_BYTES];
    write_packet(&mut packet, source);
    packet
}

/// Changes the source of a packet from this module.
pub fn set_source(packet: &mut [u8], source: u32) {
    packet[26..30].copy_from_slice(&source.to_be_bytes());
}

/// Writes the headers of Ethernet, IPv4 and UDP. Checksums stay 0, because nothing verifies them.
fn write_packet(packet: &mut [u8], source: u32) {
    let behind = |header: usize| u16::try_from(packet.len() - header).expect("a packet fits a frame").to_be_bytes();
    let (ip_bytes, udp_bytes) = (behind(14), behind(34));
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    packet[14..26].copy_from_slice(&[0x45, 0, ip_bytes[0], ip_bytes[1], 0, 0, 0, 0, 64, 17, 0, 0]);
    set_source(packet, source);
    packet[30..34].copy_from_slice(&[203, 0, 113, 1]);
    packet[34..42].copy_from_slice(&[0x9c, 0x40, 0x1f, 0x90, udp_bytes[0], udp_bytes[1], 0, 0]);
}
