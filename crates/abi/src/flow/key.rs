//! The keys of flows.

/// The key of a flow. Packets of both directions have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Words 0 to 4 of an entry.
    pub words: [u64; 5],
    /// Whether the addresses are IPv6.
    pub is_ipv6: bool,
}

/// One end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    address: u128,
    port: u16,
}

impl FlowKey {
    /// The key of a packet with ports, or with none (0), and the side that sent it. `vlan` is the outer id and the
    /// inner one, 0 without a tag.
    pub fn of(
        source: (u128, u16),
        destination: (u128, u16),
        protocol: u8,
        vlan: [u16; 2],
        is_ipv6: bool,
    ) -> (Self, usize) {
        let end = |(address, port)| End { address, port };
        let (source, destination) = (end(source), end(destination));
        let sender = usize::from(source > destination);
        let ends = if sender == 0 { [source, destination] } else { [destination, source] };
        (Self::ordered(ends.map(|end| end.address), ends.map(|end| end.port), protocol, vlan, is_ipv6), sender)
    }

    /// The key of an ICMP request or of its reply, and the side that sent it. The ports are the identifier and the type
    /// of the request, in whose bit 8 is the side that asks.
    pub fn of_icmp(
        addresses: [u128; 2],
        identifier: u16,
        request: u8,
        is_reply: bool,
        protocol: u8,
        vlan: [u16; 2],
        is_ipv6: bool,
    ) -> (Self, usize) {
        let [source, destination] = addresses;
        let sender = usize::from(source > destination);
        // Between equal addresses there is only one side.
        let asks = if source == destination { 0 } else { sender ^ usize::from(is_reply) };
        let ends = if sender == 0 { [source, destination] } else { [destination, source] };
        let ports = [identifier, u16::from(request) | (asks as u16) << 8];
        (Self::ordered(ends, ports, protocol, vlan, is_ipv6), sender)
    }

    fn ordered(addresses: [u128; 2], ports: [u16; 2], protocol: u8, vlan: [u16; 2], is_ipv6: bool) -> Self {
        let [one, other] = addresses;
        let last = u64::from(ports[0]) << 48
            | u64::from(ports[1]) << 32
            | u64::from(protocol) << 24
            | u64::from(vlan[0] & 0xfff) << 12
            | u64::from(vlan[1] & 0xfff);
        FlowKey { words: [(one >> 64) as u64, one as u64, (other >> 64) as u64, other as u64, last], is_ipv6 }
    }

    /// The IP protocol.
    pub fn protocol(&self) -> u8 {
        (self.words[4] >> 24) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::FlowKey;

    #[test]
    fn both_directions_have_one_key() {
        let (near, far) = ((0x0a00_0001, 40000), (0x0a00_0002, 80));
        let (key, sender) = FlowKey::of(near, far, 6, [100, 7], false);
        assert_eq!(
            (key, sender),
            (FlowKey { words: [0, 0x0a00_0001, 0, 0x0a00_0002, 0x9c40_0050_0606_4007], is_ipv6: false }, 0)
        );
        assert_eq!(FlowKey::of(far, near, 6, [100, 7], false), (key, 1));
        assert_ne!(FlowKey::of(far, near, 6, [100, 8], false).0, key);
        assert_ne!(FlowKey::of(far, near, 6, [100, 7], true).0, key);
        assert_ne!(
            FlowKey::of((near.0, far.1), (far.0, near.1), 6, [100, 7], false).0,
            key,
            "ports belong to addresses"
        );
    }

    #[test]
    fn an_icmp_request_and_its_reply_have_one_key() {
        let key =
            |source, destination, is_reply| FlowKey::of_icmp([source, destination], 9, 8, is_reply, 1, [0; 2], false);
        let (asked, side) = key(1, 2, false);
        assert_eq!(key(2, 1, true), (asked, 1 - side));
        assert_ne!(key(2, 1, false).0, asked, "the other host asks with the same identifier");
        assert_eq!(key(1, 2, true).0, key(2, 1, false).0);
    }
}
