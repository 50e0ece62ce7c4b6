//! The generator (Fig. 6): packets of both kinds of traffic, and the card that appends its answers.

use crate::mix::Mix;
use weir_engine::traffic::{SMALL_FRAME_BYTES, SplitMix, small_packet};

/// Kinds of traffic, with the paper's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Random sources.
    Random,
    /// Looks like an attack: 10% of random sources, 20% of allowed ones, 70% from a pool of malicious ones.
    Specific,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Random, Kind::Specific];

    /// The name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Random => "random",
            Kind::Specific => "specific",
        }
    }
}

/// A packet of 64 bytes on the wire.
pub type Packet = [u8; SMALL_FRAME_BYTES];

const TCP: u8 = 6;
const UDP: u8 = 17;
const SERVICES: [u16; 12] = [22, 80, 443, 25, 465, 587, 3389, 53, 123, 5060, 5061, 8080];
/// Services that attackers have answer the victim.
const REFLECTORS: [u16; 6] = [19, 53, 123, 161, 389, 1900];

/// Random packets: TCP or UDP, half of them to the port of a service. In specific traffic, half of the packets from the
/// pool are answers of reflectors.
pub fn packets(kind: Kind, count: usize, allowed: &[u32], blocked: &[u32]) -> Vec<Packet> {
    let mut random = SplitMix::new(19);
    let mix = match kind {
        Kind::Random => Mix::Random,
        Kind::Specific => Mix::Botnet { allowed, blocked },
    };
    let one = |_| {
        let mut packet = small_packet(mix.source(&mut random));
        let drawn = random.draw();
        let any = |shift: u32| (drawn >> shift) as u16;
        let reflects = kind == Kind::Specific && drawn & 1 == 0;
        let protocol = if reflects || drawn & 2 == 0 { UDP } else { TCP };
        let service = SERVICES[usize::from(any(8)) % SERVICES.len()];
        let dport = if drawn & 4 == 0 { service } else { any(16) };
        let sport = if reflects { REFLECTORS[usize::from(any(32)) % REFLECTORS.len()] } else { any(48) };
        write_transport(&mut packet, protocol, sport, dport);
        // TTL: what is left of 64.
        packet[22] = 24 + (any(40) % 40) as u8;
        packet
    };
    (0..count).map(one).collect()
}

fn write_transport(packet: &mut Packet, protocol: u8, sport: u16, dport: u16) {
    packet[23] = protocol;
    packet[34..36].copy_from_slice(&sport.to_be_bytes());
    packet[36..38].copy_from_slice(&dport.to_be_bytes());
    if protocol == TCP {
        // No options, ACK, a window.
        packet[38..46].copy_from_slice(&[0; 8]);
        packet[46..50].copy_from_slice(&[0x50, 0x10, 0xff, 0xff]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_has_the_sources_and_ports_of_its_kind() {
        let (allowed, blocked) = ([0x0a00_0001], [0xc000_0201]);
        let share = |kind: Kind, is: fn(&Packet) -> bool| {
            let packets = packets(kind, 4000, &allowed, &blocked);
            packets.iter().filter(|packet| is(packet)).count() as f64 / 4000.0
        };
        let is_blocked = |packet: &Packet| packet[26..30] == [0xc0, 0, 2, 1];
        let is_tcp = |packet: &Packet| packet[23] == TCP;
        let reflects = |packet: &Packet| REFLECTORS.contains(&u16::from_be_bytes([packet[34], packet[35]]));
        assert_eq!(share(Kind::Random, is_blocked), 0.0);
        assert!((0.65..0.75).contains(&share(Kind::Specific, is_blocked)));
        assert!((0.45..0.55).contains(&share(Kind::Random, is_tcp)));
        assert!((0.45..0.55).contains(&share(Kind::Specific, reflects)));
    }
}
