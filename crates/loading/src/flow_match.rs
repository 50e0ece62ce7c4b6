//! Matches of the policy language on tracked flows, for `ctl flows`.

use std::net::Ipv4Addr;
use weir_abi::Link;
use weir_abi::flow::{Flow, FlowKey};
use weir_policy::diag::render::{Style, render};
use weir_policy::field::{Field, Subject};
use weir_policy::ir::eval::packet::{Frame, Packet, parse};
use weir_policy::ir::eval::{field, guard_holds};
use weir_policy::ir::{Test, match_tree};
use weir_policy::pass::choose_layouts::CostModel;
use weir_policy::source::Source;
use weir_policy::syntax::NoIncludes;

use crate::error::LoadError;
use crate::text::Text;

/// The two ends of a flow and its protocol, as its opening packet has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Source and destination.
    pub addresses: [u128; 2],
    /// Ports of source and destination; for ICMP the identifier and the type of the request.
    pub ports: [u16; 2],
    /// The IP protocol.
    pub protocol: u8,
    /// The ids of the outer and the inner VLAN tag, 0 without a tag.
    pub vlan: [u16; 2],
    /// Whether the addresses are IPv6.
    pub is_ipv6: bool,
}

impl Opening {
    /// The opening packet of a flow.
    pub fn of(key: &FlowKey, flow: &Flow) -> Self {
        let [one_hi, one_lo, other_hi, other_lo, last] = key.words;
        let wide = |hi: u64, lo: u64| u128::from(hi) << 64 | u128::from(lo);
        let (mut addresses, mut ports) =
            ([wide(one_hi, one_lo), wide(other_hi, other_lo)], [(last >> 48) as u16, (last >> 32) as u16]);
        if flow.opener == 1 {
            addresses.reverse();
            // The ports of ICMP belong to no side.
            if !matches!(key.protocol(), 1 | 58) {
                ports.reverse();
            }
        }
        let vlan = [(last >> 12) as u16 & 0xfff, last as u16 & 0xfff];
        Opening { addresses, ports, protocol: key.protocol(), vlan, is_ipv6: key.is_ipv6 }
    }

    /// A packet with these ends. Ports are read from the first bytes behind the IP header.
    fn packet(&self) -> Packet {
        let mut bytes = vec![0; 12];
        for id in self.vlan.iter().take(if self.vlan[1] != 0 { 2 } else { usize::from(self.vlan[0] != 0) }) {
            bytes.extend([0x81, 0]);
            bytes.extend(id.to_be_bytes());
        }
        let mut transport: Vec<u8> = self.ports.iter().flat_map(|port| port.to_be_bytes()).collect();
        transport.extend([0; 8]);
        transport.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        match self.protocol {
            17 => transport[4..6].copy_from_slice(&20u16.to_be_bytes()),
            1 | 58 => transport[..2].copy_from_slice(&[self.ports[1] as u8, 0]),
            _ => {}
        }
        let length = transport.len() as u16;
        if self.is_ipv6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([self.protocol, 64]);
            bytes.extend(self.addresses.iter().flat_map(|address| address.to_be_bytes()));
        } else {
            bytes.extend([0x08, 0, 0x45, 0]);
            bytes.extend((20 + length).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, self.protocol, 0, 0]);
            bytes.extend(self.addresses.iter().flat_map(|&address| Ipv4Addr::from_bits(address as u32).octets()));
        }
        bytes.extend(transport);
        let wire_len = bytes.len() as u32;
        parse(Frame { bytes: &bytes, wire_len, link: Link::Ethernet, time_ns: 0 }).0
    }
}

/// Matches that a flow has if its opening packet has them.
pub struct FlowMatch {
    tests: Vec<Test>,
}

/// The fields that are known of a flow.
const KNOWN: [Field; 15] = [
    Field::MetaNfproto,
    Field::MetaL4proto,
    Field::VlanId,
    Field::VlanInnerId,
    Field::IpSaddr,
    Field::IpDaddr,
    Field::Ip6Saddr,
    Field::Ip6Daddr,
    Field::ThSport,
    Field::ThDport,
    Field::TcpSport,
    Field::TcpDport,
    Field::UdpSport,
    Field::UdpDport,
    Field::IcmpType,
];

impl FlowMatch {
    /// Reads matches such as `ip saddr 192.0.2.0/24 tcp dport 443`.
    ///
    /// # Errors
    /// The text is no list of matches, or a flow does not have what it matches. The error has several lines.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains(['\n', ';', '{', '}', '#']) {
            return Err(format!("`{}`: matches of one rule are wanted", text.escape_debug()));
        }
        let policy = format!("upstream {{\n{text} accept\n}}\ndownstream {{ accept }}\n");
        let lowered = match Text::check(Source::new("matches", policy), &NoIncludes, &CostModel::default()) {
            Ok(text) => text.lowered,
            Err(LoadError::Mistakes(rejected)) => {
                return Err(render(&rejected.diagnostics, &rejected.sources, Style::Plain));
            }
            Err(error) => return Err(error.to_string()),
        };
        // The only rule upstream.
        let conditions = match_tree::conditions(&lowered.program.chains[0].tree.nodes);
        let tests: Vec<Test> = conditions.into_iter().take(1).flat_map(|condition| condition.tests).cloned().collect();
        for test in &tests {
            let unknown = match test {
                Test::Guard(_) => None,
                Test::Value { subject: Subject::Field(field), .. } => {
                    (!KNOWN.contains(field)).then(|| field.name().to_owned())
                }
                Test::Value { subject: Subject::Raw(_) | Subject::Card(_), .. } => Some("@".to_owned()),
                Test::Found { .. } => Some("a table".to_owned()),
            };
            if let Some(unknown) = unknown {
                return Err(format!("`{unknown}` is not known of a flow"));
            }
        }
        Ok(FlowMatch { tests })
    }

    /// Whether a flow has the matches.
    pub fn matches(&self, opening: &Opening) -> bool {
        let packet = opening.packet();
        self.tests.iter().all(|test| match test {
            Test::Guard(guard) => guard_holds(*guard, &packet),
            Test::Value { subject: Subject::Field(of), mask, set, negated } => {
                set.contains(field::value(*of, &packet) & mask.unwrap_or(u128::MAX)) != *negated
            }
            Test::Value { .. } | Test::Found { .. } => unreachable!("refused when the matches were read"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::flow::{Arrival, FlowState, Side};

    fn flow(opener: usize) -> Flow {
        let sides = [Side::default(); 2];
        Flow {
            time: 0,
            state: FlowState::Established,
            opener,
            liberal: false,
            replied: true,
            syn: false,
            proxied: false,
            sides,
        }
    }

    fn opening(opener: usize, protocol: u8, vlan: [u16; 2]) -> Opening {
        let key = FlowKey::of(Arrival::Outside, (0xc000_0201, 40000), (0xc633_6401, 443), protocol, vlan, false);
        Opening::of(&key, &flow(opener))
    }

    #[test]
    fn matches_are_those_of_the_opening_packet() {
        let has = |text: &str, opening: &Opening| {
            FlowMatch::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).matches(opening)
        };
        let client = opening(0, 6, [0; 2]);
        let cases = [
            ("ip saddr 192.0.2.0/24 tcp dport 443", true),
            ("ip daddr 192.0.2.0/24", false),
            ("tcp dport != 443", false),
            ("udp dport 443", false),
            ("meta l4proto tcp", true),
            ("vlan id 5", false),
            ("ip6 saddr ::/0", false),
        ];
        for (text, expected) in cases {
            assert_eq!(has(text, &client), expected, "{text}");
        }
        let server = opening(1, 17, [5, 6]);
        assert!(has("ip daddr 192.0.2.1 udp sport 443 vlan id 5 vlan inner-id 6", &server));
    }

    #[test]
    fn what_is_not_known_of_a_flow_is_refused() {
        let error = |text: &str| FlowMatch::parse(text).err().expect("it is refused");
        assert_eq!(error("ip ttl 5"), "`ip ttl` is not known of a flow");
        assert_eq!(error("tcp flags syn"), "`tcp flags` is not known of a flow");
        assert!(error("ip saddr 5.5").contains("matches:2:"), "{}", error("ip saddr 5.5"));
        assert!(error("accept } posture x { upstream {").starts_with("`accept }"));
    }
}
