//! How flows are tracked: the settings of a policy, and the states that rules match.

use weir_abi::Action;
pub use weir_abi::flow::Timeout;
use weir_abi::flow::{SIZE_DEFAULT, Timeouts};

/// The settings of `tracking { ... }`. They hold for all postures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// Number of flows that the table holds, from [`weir_abi::flow::SIZE_MIN`] to [`weir_abi::flow::SIZE_MAX`].
    pub size: u32,
    /// Share of the table in percent, 1 to 100, that flows may take whose opening was not answered yet.
    pub embryonic_percent: u8,
    /// Share of the table in percent, 1 to 100, that new flows may take whose sender cannot prove its address.
    pub unproven_percent: u8,
    /// Whether a TCP connection may be picked up in its midst.
    pub pickup: bool,
    /// Whether only one direction of a connection may pass here.
    pub one_way: bool,
    /// Whether the VLAN tags of packets are no part of their flow: tags may differ by direction.
    pub vlan_ignore: bool,
    /// What happens to invalid packets.
    pub invalid: Invalid,
    /// The timeouts in milliseconds, indexed by [`Timeout`].
    pub timeouts_ms: [u64; Timeout::COUNT],
    /// How `tcp synproxy` answers, if the policy says so.
    pub synproxy: Option<Synproxy>,
}

impl Default for Tracking {
    fn default() -> Self {
        Tracking {
            size: SIZE_DEFAULT,
            embryonic_percent: 25,
            unproven_percent: 50,
            pickup: true,
            one_way: false,
            vlan_ignore: false,
            invalid: Invalid::Rules,
            timeouts_ms: TIMEOUTS.map(|(_, _, seconds)| seconds * 1000),
            synproxy: None,
        }
    }
}

impl Tracking {
    /// The timeouts in ticks.
    pub fn timeouts(&self) -> Timeouts {
        Timeouts::of_milliseconds(self.timeouts_ms)
    }
}

/// How `tcp synproxy` answers SYNs, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synproxy {
    /// The largest segment that the servers receive, [`Synproxy::MSS_MIN`] to [`Synproxy::MSS_MAX`].
    pub mss: u16,
    /// The shift of the servers' windows that clients are told, at most 14. Needs timestamps.
    pub wscale: Option<u8>,
    /// Whether the servers permit selective acknowledgements. Needs timestamps.
    pub sack: bool,
    /// Whether the servers send timestamps.
    pub timestamp: bool,
    /// When SYNs are answered; `None`: always.
    pub threshold: Option<Threshold>,
}

impl Synproxy {
    /// The smallest MSS: what every host receives (RFC 9293, section 3.7.1).
    pub const MSS_MIN: u16 = 536;
    /// The largest MSS: an IPv4 packet with both headers.
    pub const MSS_MAX: u16 = 65_495;
}

/// A threshold with hysteresis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// More SYNs than this in a second switch the proxy on.
    pub on: u32,
    /// Seconds with fewer SYNs than this, at least 1, switch it off.
    pub off: u32,
    /// Number of these seconds.
    pub calm_s: u32,
}

impl Threshold {
    /// The largest number of seconds.
    pub const CALM_MAX_S: u32 = 86_400;
}

/// What happens to invalid packets where they are tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The rules decide. `tcp track` drops invalid packets of TCP.
    Rules,
    /// This verdict, with the tracker's reason.
    Decide(Action),
}

impl Invalid {
    /// The word in policies.
    pub fn name(self) -> &'static str {
        match self {
            Invalid::Rules => "rules",
            Invalid::Decide(action) => action.name(),
        }
    }

    /// The value of a word.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "rules" { Some(Invalid::Rules) } else { Action::from_name(name).map(Invalid::Decide) }
    }

    /// The verdict on packets that the tracker refuses.
    pub fn verdict(self) -> Action {
        match self {
            Invalid::Rules => Action::Drop,
            Invalid::Decide(action) => action,
        }
    }
}

/// Every timeout with its name in policies and its default in seconds. The defaults are the kernel's.
pub const TIMEOUTS: [(Timeout, &str, u64); Timeout::COUNT] = [
    (Timeout::SynSent, "syn-sent", 120),
    (Timeout::SynReceived, "syn-recv", 60),
    (Timeout::Established, "established", 5 * 24 * 3600),
    (Timeout::FinWait, "fin-wait", 120),
    (Timeout::CloseWait, "close-wait", 60),
    (Timeout::LastAck, "last-ack", 30),
    (Timeout::TimeWait, "time-wait", 120),
    (Timeout::Closed, "closed", 10),
    (Timeout::Unacknowledged, "unacknowledged", 300),
    (Timeout::Udp, "udp", 30),
    (Timeout::UdpReplied, "udp-replied", 120),
    (Timeout::Icmp, "icmp", 30),
    (Timeout::Other, "other", 600),
];

/// The state of a packet, as `ct state` matches it. The numbers are nftables' bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PacketState {
    Invalid = 1,
    Established = 2,
    Related = 4,
    New = 8,
    Untracked = 64,
}

impl PacketState {
    /// Every state with its name.
    pub const ALL: [(PacketState, &str); 5] = [
        (PacketState::Invalid, "invalid"),
        (PacketState::Established, "established"),
        (PacketState::Related, "related"),
        (PacketState::New, "new"),
        (PacketState::Untracked, "untracked"),
    ];
}
