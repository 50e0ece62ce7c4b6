//! The keys of flows.

/// The side from which a packet arrived. Packets that go upstream arrive from outside, others from inside.
///
/// A sender can write any address into a packet, but not the side of arrival. So it belongs to the key of a flow: an
/// answer comes from the other side, and a forged one from the same side belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Arrival {
    /// From outside: the packet goes upstream, or is received by a host that Weir protects.
    Outside = 0,
    /// From inside: the packet goes downstream, or is sent by that host.
    Inside = 1,
}

impl Arrival {
    /// The number of the side.
    pub const fn side(self) -> usize {
        self as usize
    }

    /// The other side: a packet that arrived on this side leaves there, and its answers arrive there.
    pub const fn other(self) -> Self {
        match self {
            Arrival::Outside => Arrival::Inside,
            Arrival::Inside => Arrival::Outside,
        }
    }
}

/// An ICMP message that asks, or that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The identifier.
    pub identifier: u16,
    /// The type of the request.
    pub request: u8,
    /// Whether the message is the reply.
    pub is_reply: bool,
}

/// The key of a flow. Packets of both directions have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Words 0 to 4 of an entry.
    pub words: [u64; 5],
    /// Whether the addresses are IPv6.
    pub is_ipv6: bool,
}

impl FlowKey {
    /// The key of a packet with ports, or with none (0). `vlan` is the outer id and the inner one, 0 without a tag.
    pub fn of(
        arrival: Arrival,
        source: (u128, u16),
        destination: (u128, u16),
        protocol: u8,
        vlan: [u16; 2],
        is_ipv6: bool,
    ) -> Self {
        let [outside, inside] = from_outside(arrival, source, destination);
        Self::between([outside.0, inside.0], [outside.1, inside.1], protocol, vlan, is_ipv6)
    }

    /// The key of an ICMP request or of its reply. The ports are the identifier and the type of the request. Bit 8 of
    /// the type is the side that asks.
    pub fn of_icmp(
        arrival: Arrival,
        addresses: [u128; 2],
        prompt: Prompt,
        protocol: u8,
        vlan: [u16; 2],
        is_ipv6: bool,
    ) -> Self {
        let [source, destination] = addresses;
        let Prompt { identifier, request, is_reply } = prompt;
        let asks = if is_reply { arrival.other() } else { arrival };
        let ports = [identifier, u16::from(request) | (asks as u16) << 8];
        Self::between(from_outside(arrival, source, destination), ports, protocol, vlan, is_ipv6)
    }

    fn between(addresses: [u128; 2], ports: [u16; 2], protocol: u8, vlan: [u16; 2], is_ipv6: bool) -> Self {
        let [outside, inside] = addresses;
        let last = u64::from(ports[0]) << 48
            | u64::from(ports[1]) << 32
            | u64::from(protocol) << 24
            | u64::from(vlan[0] & 0xfff) << 12
            | u64::from(vlan[1] & 0xfff);
        let words = [(outside >> 64) as u64, outside as u64, (inside >> 64) as u64, inside as u64, last];
        FlowKey { words, is_ipv6 }
    }

    /// The IP protocol.
    pub fn protocol(&self) -> u8 {
        (self.words[4] >> 24) as u8
    }
}

/// The ends of a packet's way, the outer one first.
fn from_outside<T>(arrival: Arrival, source: T, destination: T) -> [T; 2] {
    match arrival {
        Arrival::Outside => [source, destination],
        Arrival::Inside => [destination, source],
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, FlowKey, Prompt};

    #[test]
    fn an_answer_from_the_other_side_has_the_same_key() {
        let (outer, inner) = ((0x0a00_0002, 40000), (0x0a00_0001, 80));
        let key = FlowKey::of(Arrival::Outside, outer, inner, 6, [100, 7], false);
        let words = [0, 0x0a00_0002, 0, 0x0a00_0001, 0x9c40_0050_0606_4007];
        assert_eq!(key, FlowKey { words, is_ipv6: false });
        assert_eq!(FlowKey::of(Arrival::Inside, inner, outer, 6, [100, 7], false), key);
        assert_ne!(FlowKey::of(Arrival::Inside, inner, outer, 6, [100, 8], false), key);
        assert_ne!(FlowKey::of(Arrival::Inside, inner, outer, 6, [100, 7], true), key);
        let swapped = ((outer.0, inner.1), (inner.0, outer.1));
        assert_ne!(FlowKey::of(Arrival::Outside, swapped.0, swapped.1, 6, [100, 7], false), key);
    }

    #[test]
    fn an_answer_from_the_same_side_is_another_flow() {
        let (outer, inner) = ((0x0a00_0002, 40000), (0x0a00_0001, 80));
        let key = FlowKey::of(Arrival::Outside, outer, inner, 6, [0; 2], false);
        assert_ne!(FlowKey::of(Arrival::Outside, inner, outer, 6, [0; 2], false), key);
    }

    #[test]
    fn an_icmp_request_and_its_reply_have_one_key() {
        let key = |arrival, source, destination, is_reply| {
            let prompt = Prompt { identifier: 9, request: 8, is_reply };
            FlowKey::of_icmp(arrival, [source, destination], prompt, 1, [0; 2], false)
        };
        let asked = key(Arrival::Outside, 1, 2, false);
        assert_eq!(key(Arrival::Inside, 2, 1, true), asked);
        assert_ne!(key(Arrival::Inside, 2, 1, false), asked, "the other host asks with the same identifier");
        assert_ne!(key(Arrival::Outside, 2, 1, true), asked, "a reply from the side of the request");
    }
}
