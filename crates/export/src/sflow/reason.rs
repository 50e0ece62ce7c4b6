//! Weir's reasons in the words of sFlow.

use weir_abi::Reason;

/// `drop_reason` of sflow.org/sflow_drops.txt: the numbers that Weir uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DropReason {
    /// `unknown`
    Unknown = 256,
    /// `acl`
    Acl = 258,
    /// `no_buffer_space`
    NoBufferSpace = 259,
    /// `traffic_shaping`
    TrafficShaping = 261,
    /// `non_ip`
    NonIp = 270,
    /// `ip_header_corrupted`
    IpHeaderCorrupted = 275,
    /// `unknown_l2`
    UnknownL2 = 284,
    /// `unknown_l3`
    UnknownL3 = 285,
    /// `unknown_l4`
    UnknownL4 = 289,
}

impl DropReason {
    /// The reason of a dropped packet. Numbers that are not assigned are unknown.
    ///
    /// Only the enumeration of the specification itself is used, which ends at 303. Numbers that agents have added to
    /// it since then would be unknown to most collectors.
    pub const fn of(reason: Reason) -> Self {
        if reason.rule_index().is_some() {
            return DropReason::Acl;
        }
        match reason {
            // The policy decides about these packets, in rules, in slots or by its defaults.
            Reason::NO_MATCH | Reason::ARP | Reason::FRAGMENT | Reason::IP_OPTIONS | Reason::SLOT => DropReason::Acl,
            Reason::NOT_IP => DropReason::NonIp,
            Reason::MALFORMED_LINK | Reason::MALFORMED_VLAN | Reason::UNSEALED => DropReason::UnknownL2,
            Reason::MALFORMED_IPV4 | Reason::MALFORMED_IPV6 | Reason::MALFORMED_IPV6_EXT => {
                DropReason::IpHeaderCorrupted
            }
            Reason::MALFORMED_FRAGMENT => DropReason::UnknownL3,
            Reason::MALFORMED_TCP
            | Reason::MALFORMED_UDP
            | Reason::MALFORMED_ICMP
            | Reason::MALFORMED_TRANSPORT
            | Reason::BAD_FLAGS
            | Reason::OUT_OF_WINDOW
            | Reason::BAD_ACK
            | Reason::NO_STATE
            | Reason::RST_OUT_OF_WINDOW
            | Reason::SYN_COOKIE => DropReason::UnknownL4,
            Reason::LIMIT => DropReason::TrafficShaping,
            Reason::STATE_FULL => DropReason::NoBufferSpace,
            _ => DropReason::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new reason of Weir needs a line above. Those that sFlow has no word for are listed here.
    #[test]
    fn every_reason_has_a_word_of_sflow() {
        let unknown: Vec<&str> = Reason::BUILTIN
            .iter()
            .filter(|(reason, _)| DropReason::of(*reason) == DropReason::Unknown)
            .map(|&(_, name)| name)
            .collect();
        assert_eq!(unknown, ["unknown-interface", "card-control"]);
        assert_eq!(DropReason::of(Reason::rule(0)), DropReason::Acl);
        assert_eq!(DropReason::of(Reason(u16::MAX)), DropReason::Acl);
        assert_eq!(DropReason::of(Reason(Reason::RULE_BASE - 1)), DropReason::Unknown);
    }
}
