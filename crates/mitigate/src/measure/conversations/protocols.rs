//! What headers of a protocol can say in a conversation.

use super::turns::Pay;
use crate::header::{Header, protocol};
use weir_abi::packet::Fragment;

/// Whether packets of a protocol can be a stream. Legitimate senders of TCP and ICMP have answers.
pub fn may_be_stream(header: &Header) -> bool {
    !matches!(header.protocol, protocol::TCP | protocol::ICMP | protocol::ICMP6)
}

/// Whether a packet can belong to a conversation by itself.
pub fn can_prove(header: &Header) -> bool {
    match header.protocol {
        protocol::TCP | protocol::UDP => header.has_ports && header.fragment != Fragment::Later,
        protocol::ICMP => header.icmp_type == 0 || header.icmp_type == 8,
        protocol::ICMP6 => header.icmp_type == 128 || header.icmp_type == 129,
        _ => true,
    }
}

/// Whether a packet is an echo request.
pub fn is_ping(header: &Header) -> bool {
    matches!((header.protocol, header.icmp_type), (protocol::ICMP, 8) | (protocol::ICMP6, 128))
}

/// What a packet pays for, if it can be answered.
pub fn pay(header: &Header) -> Option<Pay> {
    match header.protocol {
        protocol::ICMP | protocol::ICMP6 => is_ping(header).then_some(Pay::Echo),
        _ => Some(Pay::Datagrams),
    }
}
