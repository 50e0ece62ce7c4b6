//! Verdicts in the words of IPFIX.

use weir_abi::{Action, Reason};

/// `forwardingStatus` (RFC 7270, 4.12): two bits of status and six of reason.
pub mod forwarding {
    /// Forwarded, for no special reason.
    pub const FORWARDED: u8 = 64;
    /// Dropped, for a reason that the list does not have.
    pub const DROPPED: u8 = 128;
    /// Dropped by an access list that denies.
    pub const ACL_DENY: u8 = 129;
    /// Dropped because of a bad header length.
    pub const BAD_HEADER_LENGTH: u8 = 136;
    /// Dropped by a policer.
    pub const POLICER: u8 = 138;
    /// Consumed, for no special reason: sent elsewhere.
    pub const CONSUMED: u8 = 192;
    /// Consumed by this device, which answered itself.
    pub const FOR_US: u8 = 195;
}

/// The status of a packet with this verdict.
pub const fn of(action: Action, reason: Reason) -> u8 {
    match action {
        Action::Accept => forwarding::FORWARDED,
        Action::Divert => forwarding::CONSUMED,
        Action::Reply => forwarding::FOR_US,
        Action::Drop => dropped(reason),
    }
}

const fn dropped(reason: Reason) -> u8 {
    if reason.rule_index().is_some() {
        return forwarding::ACL_DENY;
    }
    match reason {
        Reason::NO_MATCH | Reason::NOT_IP | Reason::ARP | Reason::FRAGMENT | Reason::IP_OPTIONS | Reason::SLOT => {
            forwarding::ACL_DENY
        }
        Reason::MALFORMED_LINK
        | Reason::MALFORMED_VLAN
        | Reason::MALFORMED_IPV4
        | Reason::MALFORMED_IPV6
        | Reason::MALFORMED_IPV6_EXT
        | Reason::MALFORMED_FRAGMENT
        | Reason::MALFORMED_TCP
        | Reason::MALFORMED_UDP
        | Reason::MALFORMED_ICMP
        | Reason::MALFORMED_TRANSPORT => forwarding::BAD_HEADER_LENGTH,
        Reason::LIMIT => forwarding::POLICER,
        _ => forwarding::DROPPED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new reason of Weir needs a line above. Those without a word of their own are listed here.
    #[test]
    fn every_reason_has_a_status() {
        let names = |wanted: u8| -> Vec<&str> {
            let has = |reason: Reason| of(Action::Drop, reason) == wanted;
            Reason::BUILTIN.iter().filter(|(reason, _)| has(*reason)).map(|&(_, name)| name).collect()
        };
        let without = [
            "unknown-interface",
            "bad-flags",
            "out-of-window",
            "bad-ack",
            "no-state",
            "rst-out-of-window",
            "state-full",
            "syn-cookie",
            "unsealed",
            "card-control",
        ];
        assert_eq!(names(forwarding::DROPPED), without);
        assert_eq!(names(forwarding::ACL_DENY), ["no-match", "not-ip", "arp", "fragment", "ip-options", "slot"]);
        assert_eq!(names(forwarding::POLICER), ["limit"]);
        assert_eq!(of(Action::Drop, Reason::rule(9)), forwarding::ACL_DENY);
        let others = [Action::Accept, Action::Divert, Action::Reply].map(|action| of(action, Reason::rule(9)));
        assert_eq!(others, [64, 192, 195]);
    }
}
