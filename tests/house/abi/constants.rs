//! Every number that Rust and C share, by its name in C.

use weir_abi::flow;
use weir_abi::image::IMAGE_MAGIC;
use weir_abi::packet::{Fragment, L3, L4, ext, flag};
use weir_abi::slot::{SlotAct, SlotField};
use weir_abi::{
    Action, FlowState, Layout, Link, PacketClass, Reason, Verdict, cookie, each, features, limit, seats, slot,
};
use weir_tables::limit_image::{Logged, NESTING_MAX};

/// C name and number of each reason, and of each counter that is none.
fn reasons() -> Vec<(String, u16)> {
    let name = |name: &str| format!("REASON_{}", name.to_uppercase().replace('-', "_"));
    let mut reasons: Vec<_> = Reason::BUILTIN.iter().map(|(reason, public)| (name(public), reason.0)).collect();
    reasons.extend([("WEIR_RULE_BASE".into(), Reason::RULE_BASE), ("REASON_RULE".into(), Reason::RULE_BASE)]);
    let counters = [("COUNTER_ANSWERED", Reason::COUNTER_ANSWERED), ("COUNTER_ALONE", Reason::COUNTER_ALONE)];
    reasons.extend(counters.map(|(name, counter)| (name.into(), counter.0)));
    reasons
}

/// C name and Rust value of every enumerator in [`SHARED`] and of other constants.
pub fn constants() -> Vec<(String, u64)> {
    let mut constants: Vec<(String, u64)> = vec![
        ("WEIR_ABI_VERSION".into(), weir_abi::ABI_VERSION.into()),
        ("WEIR_BURST_MAX".into(), weir_abi::BURST_MAX as u64),
        ("WEIR_WINDOW_BYTES".into(), weir_abi::WINDOW_BYTES as u64),
        ("REWRITE_BYTES".into(), weir_abi::REWRITE_BYTES as u64),
        ("VERDICT_SAMPLED".into(), Verdict::SAMPLED.into()),
        ("VERDICT_REWRITTEN".into(), Verdict::REWRITTEN.into()),
        ("FLAG_IP_OPTIONS".into(), flag::IP_OPTIONS.into()),
        ("FLAG_EXCEEDED".into(), flag::EXCEEDED.into()),
        ("IMAGE_MAGIC".into(), IMAGE_MAGIC.into()),
        ("TICK_SHIFT".into(), limit::TICK_SHIFT.into()),
        ("BYTE_SHIFT".into(), limit::BYTE_SHIFT.into()),
        ("CHARGED_BYTES_MAX".into(), limit::CHARGED_BYTES_MAX.into()),
        ("DEBT_MAX".into(), limit::DEBT_MAX),
        ("LIMIT_DEPTH".into(), NESTING_MAX as u64),
        ("EACH_WAYS".into(), each::WAYS as u64),
        ("EACH_TIME_BITS".into(), each::TIME_BITS.into()),
        ("RECORD_WORDS".into(), each::RECORD_WORDS as u64),
        ("EXCEEDER_SET_BITS".into(), each::EXCEEDER_SET_BITS.into()),
        ("LOGGED_NOTHING".into(), Logged::Nothing as u64),
        ("LOGGED_EXCEEDED".into(), Logged::Exceeded as u64),
        ("LOGGED_ALL".into(), Logged::All as u64),
    ];
    let mut add = |name: &str, value: u64| constants.push((name.to_owned(), value));
    for action in Action::ALL {
        add(&format!("ACTION_{}", action.name().to_uppercase()), action as u64);
    }
    reasons().into_iter().for_each(|(name, number)| add(&name, number.into()));
    for link in [Link::Ethernet, Link::RawIp, Link::Cooked, Link::Cooked2] {
        let name = match link {
            Link::Ethernet => "LINK_ETHERNET",
            Link::RawIp => "LINK_RAW_IP",
            Link::Cooked => "LINK_COOKED",
            Link::Cooked2 => "LINK_COOKED2",
        };
        add(name, link as u64);
    }
    for layout in Layout::ALL {
        let name = match layout {
            Layout::Dxr16x4 => "LAYOUT_DXR16X4",
            Layout::ExactSet => "LAYOUT_EXACT_SET",
            Layout::Range6 => "LAYOUT_RANGE6",
            Layout::ExactSets => "LAYOUT_EXACT_SETS",
            Layout::ExactSet6 => "LAYOUT_EXACT_SET6",
            Layout::ExactSets6 => "LAYOUT_EXACT_SETS6",
            Layout::RankLeaf => "LAYOUT_RANK_LEAF",
            Layout::RankLeaf6 => "LAYOUT_RANK_LEAF6",
            Layout::CountedLeaf => "LAYOUT_COUNTED_LEAF",
            Layout::ExactLeaf => "LAYOUT_EXACT_LEAF",
            Layout::ExactLeaf6 => "LAYOUT_EXACT_LEAF6",
        };
        add(name, layout as u64);
    }
    for l3 in [L3::None, L3::Arp, L3::Ipv4, L3::Ipv6] {
        add(&format!("L3_{l3:?}").to_uppercase(), l3 as u64);
    }
    for l4 in [L4::None, L4::Tcp, L4::Udp, L4::Icmp, L4::Icmp6, L4::Ports, L4::Other] {
        add(&format!("L4_{l4:?}").to_uppercase(), l4 as u64);
    }
    for fragment in [Fragment::None, Fragment::First, Fragment::Later] {
        add(&format!("FRAGMENT_{fragment:?}").to_uppercase(), fragment as u64);
    }
    let bits =
        [("HBH", ext::HBH), ("RT", ext::RT), ("FRAG", ext::FRAG), ("DST", ext::DST), ("AH", ext::AH), ("MH", ext::MH)];
    bits.iter().for_each(|(name, bit)| add(&format!("EXT_{name}"), (*bit).into()));
    constants.extend([flow_constants(), slot_constants(), feature_constants(), seat_constants()].concat());
    constants
}

/// Names in C and values in Rust of the constants of slots.
fn slot_constants() -> Vec<(String, u64)> {
    let mut constants: Vec<(String, u64)> = [
        ("SLOT_RULES_MAX", slot::RULES_MAX as u64),
        ("SLOT_CELLS", slot::CELLS as u64),
        ("SLOT_STRIPES", slot::STRIPES as u64),
        ("SLOT_FIELDS", slot::FIELDS as u64),
        ("SLOT_SADDR", slot::tested::SADDR.into()),
        ("SLOT_DADDR", slot::tested::DADDR.into()),
        ("SLOT_IPV4", slot::header::IPV4.into()),
        ("SLOT_IPV6", slot::header::IPV6.into()),
        ("SLOT_IP", slot::header::IP.into()),
        ("SLOT_TCP", slot::header::TCP.into()),
        ("SLOT_UDP", slot::header::UDP.into()),
        ("SLOT_ICMP", slot::header::ICMP.into()),
        ("SLOT_ICMP6", slot::header::ICMP6.into()),
        ("SLOT_PORTS", slot::header::PORTS.into()),
        ("SLOT_TRANSPORT", slot::header::TRANSPORT.into()),
        ("SLOT_HAS_PAYLOAD", slot::header::PAYLOAD.into()),
        ("SLOT_COUNT", SlotAct::Count as u64),
        ("SLOT_DROP", SlotAct::Drop as u64),
        ("SLOT_LIMIT", SlotAct::Limit as u64),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let names = [
        "PROTOCOL",
        "FRAGMENT",
        "SPORT",
        "DPORT",
        "WINDOW",
        "DOFF",
        "ICMP_TYPE",
        "ICMP_CODE",
        "FLAGS",
        "TTL",
        "LENGTH",
        "PAYLOAD",
    ];
    let fields = names.into_iter().zip(SlotField::ALL).map(|(name, field)| (format!("SLOT_{name}"), field as u64));
    constants.extend(fields);
    constants
}

/// Names in C and values in Rust of the constants of tables of connections.
fn seat_constants() -> Vec<(String, u64)> {
    vec![
        ("SEAT_PROBES".into(), seats::PROBES.into()),
        ("SEAT_FIRST_SHIFT".into(), seats::FIRST_SHIFT.into()),
        ("SEAT_SECOND_SHIFT".into(), seats::SECOND_SHIFT.into()),
        ("SEAT_BUCKET_MASK".into(), (1 << seats::BUCKET_BITS) - 1),
        ("SEAT_HEADER_USED".into(), seats::HEADER_USED),
        ("CLAIM_NONE".into(), seats::Claim::None as u64),
        ("CLAIM_FREE".into(), seats::Claim::Free as u64),
        ("CLAIM_SEAT".into(), seats::Claim::Seat as u64),
        ("CLAIM_OVER".into(), seats::Claim::Over as u64),
    ]
}

/// Names in C and values in Rust of the constants of flows.
fn flow_constants() -> Vec<(String, u64)> {
    let mut constants = vec![
        ("FLOW_ENTRIES".into(), flow::SLOTS as u64),
        ("FLOW_PREFERRED".into(), flow::PREFERRED as u64),
        ("FLOW_ENTRY_WORDS".into(), flow::ENTRY_WORDS as u64),
        ("FLOW_TICK_SHIFT".into(), flow::TICK_SHIFT.into()),
        ("FLOW_TICKS".into(), flow::TICKS.into()),
        ("TAG_CLASS_SHIFT".into(), flow::TAG_CLASS_SHIFT.into()),
        ("RECLAIM_TICKS".into(), flow::RECLAIM_TICKS.into()),
        ("EXCHANGES_ASSURED".into(), flow::ASSURED_EXCHANGES.into()),
        ("EXCHANGES_ASSURED_TICKS".into(), flow::ASSURED_TICKS.into()),
        ("EXCHANGES_ANSWERED_LAST".into(), u64::from(flow::Exchanges::ANSWERED_LAST) + 32),
        ("FROM_OUTSIDE".into(), flow::Arrival::Outside as u64),
        ("FROM_INSIDE".into(), flow::Arrival::Inside as u64),
        ("FLOW_PROVEN".into(), flow::FlowClass::Proven as u64),
        ("FLOW_EMBRYONIC".into(), flow::FlowClass::Embryonic as u64),
        ("FLOW_UNPROVEN".into(), flow::FlowClass::Unproven as u64),
        ("FLOW_CLOSING".into(), flow::FlowClass::Closing as u64),
        ("TAG_HASH".into(), flow::TAG_HASH.into()),
        ("OPENING_LOCKS".into(), flow::OPENING_LOCKS as u64),
        ("SCALE_NONE".into(), flow::Side::NO_SCALE.into()),
        ("SCALE_MAX".into(), flow::Side::SCALE_MAX.into()),
        ("COOKIE_EPOCH_SHIFT".into(), cookie::EPOCH_SHIFT.into()),
        ("COOKIE_SIZES".into(), cookie::MSS.len() as u64),
    ];
    for (state, name) in FlowState::ALL {
        let name = name.replace("syn-recv", "syn-received").to_uppercase().replace('-', "_");
        constants.push((format!("FLOW_{name}"), state as u64));
    }
    constants
}

/// Names in C and values in Rust of the constants of features.
fn feature_constants() -> Vec<(String, u64)> {
    let mut constants = vec![
        ("FEATURE_GROUP".into(), features::GROUP as u64),
        ("FEATURE_HEADS".into(), features::HEADS as u64),
        ("FEATURE_SAMPLER".into(), features::SAMPLERS[0] as u64),
        ("FEATURE_RECENTS".into(), features::RECENTS as u64),
        ("FEATURE_ONE_IN".into(), features::ONE_IN),
        ("FEATURE_RECORDS".into(), features::RECORDS as u64),
        ("FEATURE_LANES".into(), features::LANES as u64),
        ("(FEATURE_ZERO >> 32)".into(), features::ZERO_KEY[1] >> 32),
        ("sizeof(union feature_element)".into(), features::ELEMENT_BYTES as u64),
        ("FEATURE_REST".into(), features::REST[0] as u64),
        ("FEATURE_WITHOUT_ADDRESS".into(), features::WITHOUT_ADDRESS[0] as u64),
        ("FEATURE_OUTSIDE".into(), features::OUTSIDE[0] as u64),
        ("FEATURE_IPV4".into(), features::IPV4_MARK),
        ("SYSTEM_PORT_MAX".into(), features::SYSTEM_PORT_MAX.into()),
        ("QUIC_PORT".into(), features::QUIC_PORT.into()),
        ("OBSERVED_RANGES".into(), features::RANGES_MAX as u64),
        ("PACKET_CLASSES".into(), PacketClass::COUNT as u64),
    ];
    for class in PacketClass::ALL {
        constants.push((format!("PACKET_{}", class.name().to_uppercase().replace('-', "_")), class as u64));
    }
    constants
}
