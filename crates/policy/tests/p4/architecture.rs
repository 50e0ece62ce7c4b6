//! What `core.p4` and `psa.p4` declare, and what compilers for the PSA demand of a program.

/// How the array of counters is declared. A counter of bytes needs the length of the packet, for which PSA has no
/// argument.
#[rustfmt::skip]
pub const COUNTER: [&str; 17] = [
    "<", "bit", "<", "64", ">", ",", "bit", "<", "32", ">>",
    "(", "COUNTERS", ",", "PSA_CounterType_t", ".", "PACKETS", ")",
];

/// Whether p4c-dpdk translates a comparison that is an operand. Of `||` and `<=` it jumps to the end if the comparison is
/// false, of `&&` and `<` if it is true, and forgets the other operands.
pub fn stands_beside(comparison: &str, operator: &str) -> Result<(), String> {
    match (operator, comparison) {
        ("||", "<=" | ">=") | ("&&", "<" | ">") => Err(format!("{comparison} is an operand of {operator}")),
        _ => Ok(()),
    }
}

/// Whether a name is one of `core.p4` or `psa.p4`. Declarations of a program share one space of names with theirs.
pub fn declares(name: &str) -> bool {
    let is_typedef = TYPES.iter().any(|kind| {
        let rest = name.strip_prefix(kind).unwrap_or_default();
        ["_t", "Uint_t", "InHeader_t", "InHeaderUint_t"].contains(&rest)
    });
    is_typedef || name.to_ascii_lowercase().starts_with("psa_") || NAMES.contains(&name)
}

/// Types that have a form for each place in which they are.
const TYPES: [&str; 7] =
    ["PortId", "MulticastGroup", "CloneSessionId", "ClassOfService", "PacketLength", "EgressInstance", "Timestamp"];

/// All others that do not begin with `psa_`.
const NAMES: [&str; 34] = [
    "ActionProfile",
    "ActionSelector",
    "BufferingQueueingEngine",
    "Checksum",
    "Counter",
    "Digest",
    "DirectCounter",
    "DirectMeter",
    "Egress",
    "EgressDeparser",
    "EgressParser",
    "EgressPipeline",
    "Hash",
    "Ingress",
    "IngressDeparser",
    "IngressParser",
    "IngressPipeline",
    "InternetChecksum",
    "Meter",
    "NoAction",
    "PacketReplicationEngine",
    "ParserError_t",
    "Random",
    "Register",
    "assert",
    "assume",
    "egress_drop",
    "ingress_drop",
    "multicast",
    "packet_in",
    "packet_out",
    "send_to_port",
    "static_assert",
    "verify",
];
