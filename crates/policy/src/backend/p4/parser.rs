//! The parser: states that extract headers, with the checks and reasons of `ir::eval::packet`.
//!
//! Each header is compared with the captured bytes that are left before it is extracted, and with the length of its IP
//! packet. Extension headers of IPv6 are unrolled, because states lead only to later ones.

use super::fields::{EXT_HEADERS_MAX, Meta, NONE};
use super::model::{ACCEPT, Assign, Extract, Load, Next, Operator, Place, Source, State, Target, Term};
use weir_abi::Reason;
use weir_abi::packet::{Fragment, L3, L4, ext};

/// A state that is being built.
fn state(name: impl Into<Target>) -> State {
    State { name: name.into(), extract: None, steps: vec![], next: Next::Accept }
}

impl State {
    fn extract(self, header: impl Into<Target>) -> Self {
        State { extract: Some(Extract::Whole(header.into())), ..self }
    }

    fn step(mut self, to: &Place, operator: Operator, from: Source) -> Self {
        self.steps.push(Assign { to: to.clone(), operator, from });
        self
    }

    fn set(self, to: Meta, value: u64) -> Self {
        self.step(&to.place(), Operator::Set, Source::Constant(value))
    }

    fn copy(self, to: Meta, from: Load) -> Self {
        self.step(&to.place(), Operator::Set, Source::Load(from))
    }

    fn subtract(self, to: Meta, value: u64) -> Self {
        self.step(&to.place(), Operator::Subtract, Source::Constant(value))
    }

    /// Takes the bytes of an extracted header from those that are left.
    fn read(self, bytes: u64) -> Self {
        self.subtract(Meta::Left, bytes)
    }

    /// Sets a field to the offset in the frame of what is left.
    fn offset(self, to: Meta) -> Self {
        let captured = Place::header("h.arrival.captured", 32).load();
        self.copy(to, captured).step(&to.place(), Operator::Subtract, Source::Load(Meta::Left.load()))
    }

    fn to(self, next: impl Into<Target>) -> Self {
        State { next: Next::To(next.into()), ..self }
    }

    fn when(self, term: Term, then: impl Into<Target>, otherwise: impl Into<Target>) -> Self {
        State { next: Next::If { term, then: then.into(), otherwise: otherwise.into() }, ..self }
    }

    fn select(self, key: Load, cases: Vec<(u64, Target)>, otherwise: impl Into<Target>) -> Self {
        State { next: Next::Select { key, cases, otherwise: otherwise.into() }, ..self }
    }
}

fn field(path: &'static str, bits: u16) -> Load {
    Place::header(path, bits).load()
}

const IPV4: u64 = 0x0800;
const IPV6: u64 = 0x86dd;
const ARP: u64 = 0x0806;
const TAGS: [u64; 3] = [0x8100, 0x88a8, 0x9100];

/// The states, each before those to which it leads.
pub(super) fn states() -> Vec<State> {
    let mut states = links();
    states.extend(tags());
    states.extend(ipv4());
    states.extend(ipv6());
    (1..=EXT_HEADERS_MAX).for_each(|number| states.extend(extension(number)));
    states.push(last_extension());
    states.extend(later_fragments());
    states.extend(transports());
    states.extend(transport_headers());
    states.extend(malformed());
    states
}

fn links() -> Vec<State> {
    let link = field("h.arrival.link", 8);
    let cases = vec![(0, "ethernet".into()), (2, "cooked".into()), (3, "cooked2".into())];
    let start = state("start")
        .extract("arrival")
        .copy(Meta::Left, field("h.arrival.captured", 32))
        .copy(Meta::Length, field("h.arrival.length", 32))
        .set(Meta::Reason, NONE.into())
        .set(Meta::L3, L3::None as u64)
        .set(Meta::L4, L4::None as u64)
        .set(Meta::Fragment, Fragment::None as u64)
        .set(Meta::Tags, 0)
        .set(Meta::Options, 0)
        .set(Meta::Ext, 0)
        .select(link, cases, "raw_ip");
    let version = field("h.first.version", 8).shifted(4);
    let raw = [
        state("raw_ip").when(Term::below(Meta::Left.load(), 1), "malformed_link", "raw_ip_version"),
        State { extract: Some(Extract::Ahead("first".into())), ..state("raw_ip_version") }
            .set(Meta::EtherType, 0)
            .select(version, vec![(4, "raw_ipv4".into()), (6, "raw_ipv6".into())], "not_ip"),
        state("raw_ipv4").set(Meta::EtherType, IPV4).to("ipv4"),
        state("raw_ipv6").set(Meta::EtherType, IPV6).to("ipv6"),
    ];
    let mut states = vec![start];
    states.extend(raw);
    states.extend(link_header("cooked2", 20, "h.cooked2.ether_type"));
    states.extend(link_header("cooked", 16, "h.cooked.ether_type"));
    states.extend(link_header("ethernet", 14, "h.ethernet.ether_type"));
    states
}

fn link_header(name: &'static str, bytes: u64, ether_type: &'static str) -> [State; 2] {
    let whole = format!("{name}_header");
    [
        state(name).when(Term::below(Meta::Left.load(), bytes), "malformed_link", whole.clone()),
        state(whole)
            .extract(name)
            .read(bytes)
            .subtract(Meta::Length, bytes)
            .copy(Meta::EtherType, field(ether_type, 16))
            .to("tag_1"),
    ]
}

/// Up to two VLAN tags. A third one stays, as an EtherType that is not IP.
fn tags() -> Vec<State> {
    let network = || vec![(IPV4, "ipv4".into()), (IPV6, "ipv6".into()), (ARP, "arp".into())];
    let tagged = |next: &'static str| {
        let mut cases: Vec<(u64, Target)> = network();
        cases.extend(TAGS.map(|tag| (tag, next.into())));
        cases
    };
    let tag = |name: &'static str, header: &'static str, ether_type, number| {
        state(name)
            .extract(header)
            .read(4)
            .subtract(Meta::Length, 4)
            .set(Meta::Tags, number)
            .copy(Meta::EtherType, field(ether_type, 16))
    };
    let short = || Term::below(Meta::Left.load(), 4);
    let ether_type = || Meta::EtherType.load();
    vec![
        state("tag_1").select(ether_type(), tagged("vlan_outer"), "not_ip"),
        state("vlan_outer").when(short(), "malformed_vlan", "vlan_outer_tag"),
        tag("vlan_outer_tag", "vlan_outer", "h.vlan_outer.ether_type", 1).select(
            ether_type(),
            tagged("vlan_inner"),
            "not_ip",
        ),
        state("vlan_inner").when(short(), "malformed_vlan", "vlan_inner_tag"),
        tag("vlan_inner_tag", "vlan_inner", "h.vlan_inner.ether_type", 2).select(ether_type(), network(), "not_ip"),
        state("arp").offset(Meta::L3Offset).set(Meta::L3, L3::Arp as u64),
        state("not_ip").offset(Meta::L3Offset),
    ]
}

/// RFC 791.
fn ipv4() -> Vec<State> {
    let bad = || Target::from("malformed_ipv4");
    let total = || field("h.ipv4.total_length", 16);
    let version_ihl = || field("h.ipv4.version_ihl", 8);
    let frag_off = || field("h.ipv4.frag_off", 16);
    let beyond = |place: Place, limit: Meta| Term::Above(place, limit.place());
    let read = state("ipv4_header")
        .extract("ipv4")
        .offset(Meta::L3Offset)
        .read(20)
        .set(Meta::L3, L3::Ipv4 as u64)
        .set(Meta::Nfproto, 2)
        .copy(Meta::Proto, field("h.ipv4.protocol", 8))
        .copy(Meta::IpLeft, total());
    let mut states = vec![
        state("ipv4").when(Term::below(Meta::Left.load(), 20), bad(), "ipv4_header"),
        read.when(beyond(total().place, Meta::Length), bad(), "ipv4_version"),
        state("ipv4_version").select(version_ihl(), vec![(0x45, "ipv4_plain".into())], "ipv4_other"),
        state("ipv4_other").when(Term::is_not(version_ihl().shifted(4), 4), bad(), "ipv4_size"),
        state("ipv4_size").copy(Meta::Header, version_ihl().shifted(-2).masked(0x3c)).when(
            Term::below(Meta::Header.load(), 20),
            bad(),
            "ipv4_long",
        ),
        state("ipv4_long").copy(Meta::Rest, Meta::Header.load()).subtract(Meta::Rest, 20).when(
            Term::Above(Meta::Header.place(), total().place),
            bad(),
            "ipv4_options",
        ),
        state("ipv4_options").when(beyond(Meta::Rest.place(), Meta::Left), bad(), "ipv4_options_read"),
        State {
            extract: Some(Extract::Varying("ipv4_options".into(), Meta::Rest.place())),
            ..state("ipv4_options_read")
        }
        .step(&Meta::Left.place(), Operator::Subtract, Source::Load(Meta::Rest.load()))
        .step(&Meta::IpLeft.place(), Operator::Subtract, Source::Load(Meta::Header.load()))
        .set(Meta::Options, 1)
        .to("ipv4_fragment"),
        state("ipv4_plain").when(Term::below(Meta::IpLeft.load(), 20), bad(), "ipv4_payload"),
        state("ipv4_payload").subtract(Meta::IpLeft, 20).to("ipv4_fragment"),
        // Nearly all packets are whole and have only the flag DF, or none.
        state("ipv4_fragment").select(
            frag_off(),
            vec![(0x4000, "transport_4".into()), (0, "transport_4".into())],
            "ipv4_flags",
        ),
        state("ipv4_flags").when(Term::is(frag_off().masked(0x3fff), 0), "transport_4", "ipv4_part"),
    ];
    let [units, more] = [frag_off().masked(0x1fff), frag_off().shifted(13).masked(1)];
    states.extend(fragments(|name| format!("ipv4_{name}").into(), [units, more], "transport_4"));
    states
}

/// The states behind the header of a fragment: `part`, `first` and `first_empty`. Offset and flag are given. A first
/// fragment goes on with `next`.
fn fragments(named: impl Fn(&str) -> Target, [units, more]: [Load; 2], next: impl Into<Target>) -> [State; 3] {
    let bad = || Target::from("malformed_fragment");
    [
        state(named("part")).copy(Meta::Units, units).copy(Meta::More, more).when(
            Term::is_not(Meta::Units.load(), 0),
            "later_fragment",
            named("first"),
        ),
        state(named("first")).set(Meta::Fragment, Fragment::First as u64).when(uneven(), bad(), named("first_empty")),
        state(named("first_empty")).when(empty(), bad(), next),
    ]
}

/// Whether a payload is no multiple of 8 bytes.
fn uneven() -> Term {
    Term::is_not(Meta::IpLeft.load().masked(7), 0)
}

fn empty() -> Term {
    Term::is(Meta::IpLeft.load(), 0)
}

/// RFC 8200.
fn ipv6() -> Vec<State> {
    let bad = || Target::from("malformed_ipv6");
    let header = state("ipv6_header")
        .extract("ipv6")
        .offset(Meta::L3Offset)
        .read(40)
        .set(Meta::L3, L3::Ipv6 as u64)
        .set(Meta::Nfproto, 10)
        .copy(Meta::Proto, field("h.ipv6.next_header", 8))
        .copy(Meta::IpLeft, field("h.ipv6.payload_length", 16))
        .copy(Meta::Reach, field("h.ipv6.payload_length", 16))
        .step(&Meta::Reach.place(), Operator::Add, Source::Constant(40));
    vec![
        state("ipv6").when(Term::below(Meta::Left.load(), 40), bad(), "ipv6_header"),
        header.when(Term::Above(Meta::Reach.place(), Meta::Length.place()), bad(), "ipv6_version"),
        state("ipv6_version").when(
            Term::is_not(field("h.ipv6.version_class_label", 32).shifted(28), 6),
            bad(),
            "next_1",
        ),
    ]
}

/// Protocols of extension headers, with the bit and the name of each.
const EXTENSIONS: [(u64, u8, &str); 6] = [
    (0, ext::HBH, "hop_by_hop"),
    (43, ext::RT, "routing"),
    (44, ext::FRAG, "fragment"),
    (51, ext::AH, "authentication"),
    (60, ext::DST, "destination"),
    (135, ext::MH, "mobility"),
];

/// RFC 8200 section 4, RFC 4302 for the authentication header. The size of that one counts words of 4 bytes.
fn extension(number: usize) -> Vec<State> {
    let bad = || Target::from("malformed_ipv6_ext");
    let named = |name: &str| Target::from(format!("{name}_{number}"));
    let header = |field: &str, bits| Place { path: format!("h.ext_{number}.{field}").into(), bits }.load();
    let next = format!("next_{}", number + 1);
    let is_allowed = |protocol: u64| protocol != 0 || number == 1;
    let check = |protocol| if is_allowed(protocol) { named("ext") } else { bad() };
    let mut cases = vec![(6, "tcp".into()), (17, "udp".into())];
    cases.extend(EXTENSIONS.map(|(protocol, _, _)| (protocol, check(protocol))));
    let allowed = || EXTENSIONS.into_iter().filter(|(protocol, _, _)| is_allowed(*protocol));
    let (last, kinds) = (named("mobility"), allowed().filter(|(protocol, _, _)| *protocol != 135));
    let kinds = kinds.map(|(protocol, _, name)| (protocol, named(name))).collect();
    let mut states = vec![
        state(named("next")).select(Meta::Proto.load(), cases, "transport_6"),
        state(named("ext")).when(Term::below(Meta::IpLeft.load(), 8), bad(), named("captured")),
        state(named("captured")).when(Term::below(Meta::Left.load(), 8), bad(), named("header")),
        state(named("header")).extract(format!("ext_{number}")).read(8).subtract(Meta::IpLeft, 8).select(
            Meta::Proto.load(),
            kinds,
            last,
        ),
    ];
    states.extend(fragment(number));
    for (_, bit, name) in allowed().filter(|(_, bit, _)| *bit != ext::FRAG) {
        let words = if bit == ext::AH { -2 } else { -3 };
        let kind = state(named(name)).mark(bit).copy(Meta::Rest, header("length", 8).shifted(words));
        let kind = if bit == ext::HBH { kind.set(Meta::Options, 1) } else { kind };
        states.push(kind.to(named("size")));
    }
    let rest = || Source::Load(Meta::Rest.load());
    states.extend([
        state(named("size")).when(Term::Above(Meta::Rest.place(), Meta::IpLeft.place()), bad(), named("whole")),
        state(named("whole")).when(Term::Above(Meta::Rest.place(), Meta::Left.place()), bad(), named("skip")),
        state(named("skip"))
            .copy(Meta::Proto, header("next_header", 8))
            .step(&Meta::IpLeft.place(), Operator::Subtract, rest())
            .step(&Meta::Left.place(), Operator::Subtract, rest())
            .when(Term::is(Meta::Rest.load(), 0), next.clone(), named("rest")),
        State {
            extract: Some(Extract::Varying(format!("ext_{number}_rest").into(), Meta::Rest.place())),
            ..state(named("rest"))
        }
        .to(next),
    ]);
    states
}

impl State {
    fn mark(self, bit: u8) -> Self {
        self.step(&Meta::Ext.place(), Operator::Or, Source::Constant(bit.into()))
    }
}

/// The fragment header of IPv6. Both bits between offset and flag are reserved.
fn fragment(number: usize) -> Vec<State> {
    let named = |name: &str| Target::from(format!("{name}_{number}"));
    let header = |field: &str, bits| Place { path: format!("h.ext_{number}.{field}").into(), bits }.load();
    let next = format!("next_{}", number + 1);
    let whole = Term::is(header("frag_off", 16).masked(0xfff9), 0);
    let read = state(named("fragment")).mark(ext::FRAG).copy(Meta::Proto, header("next_header", 8));
    let mut states = vec![read.when(whole, next.clone(), named("part"))];
    let [units, more] = [header("frag_off", 16).shifted(3), header("frag_off", 16).masked(1)];
    states.extend(fragments(named, [units, more], next));
    states
}

/// No more extension headers may follow.
fn last_extension() -> State {
    let cases = EXTENSIONS.map(|(protocol, _, _)| (protocol, "malformed_ipv6_ext".into()));
    state(format!("next_{}", EXT_HEADERS_MAX + 1)).select(Meta::Proto.load(), cases.into(), "transport_6")
}

/// RFC 791, 1858, 3128. A later fragment has no transport header.
fn later_fragments() -> Vec<State> {
    let bad = || Target::from("malformed_fragment");
    vec![
        state("later_fragment").set(Meta::Fragment, Fragment::Later as u64).when(
            Term::is(Meta::More.load(), 0),
            "later_end",
            "later_even",
        ),
        state("later_even").when(uneven(), bad(), "later_full"),
        state("later_full").when(empty(), bad(), "later_end"),
        state("later_end")
            .copy(Meta::Reach, Meta::Units.load())
            .step(&Meta::Reach.place(), Operator::Set, Source::Load(Meta::Reach.load().shifted(-3)))
            .step(&Meta::Reach.place(), Operator::Add, Source::Load(Meta::IpLeft.load()))
            .when(Term::below(Meta::Reach.load(), 65536), "later_second", bad()),
        state("later_second").when(Term::is(Meta::Units.load(), 1), "later_tcp", ACCEPT),
        state("later_tcp").when(Term::is(Meta::Proto.load(), 6), bad(), ACCEPT),
    ]
}

fn transports() -> Vec<State> {
    let cases = |icmp: u64, to: &'static str| {
        let ports = [132, 33, 136].map(|protocol| (protocol, "ports".into()));
        let mut cases: Vec<(u64, Target)> = vec![(6, "tcp".into()), (17, "udp".into()), (icmp, to.into())];
        cases.extend(ports);
        // ESP hides its ports; 59 is "no next header".
        cases.extend([(50, ACCEPT.into()), (59, ACCEPT.into())]);
        cases
    };
    vec![
        state("transport_6").select(Meta::Proto.load(), cases(58, "icmp6"), "other"),
        state("transport_4").select(Meta::Proto.load(), cases(1, "icmp"), "other"),
        state("other").offset(Meta::L4Offset).set(Meta::L4, L4::Other as u64),
    ]
}

/// A transport header: checks of its length, and its extraction.
fn transport(name: &'static str, header: &'static str, bytes: u64, bad: &'static str, l4: L4) -> [State; 3] {
    let (captured, read) = (format!("{name}_captured"), format!("{name}_header"));
    [
        state(name).when(Term::below(Meta::IpLeft.load(), bytes), bad, captured.clone()),
        state(captured).when(Term::below(Meta::Left.load(), bytes), bad, read.clone()),
        state(read).extract(header).offset(Meta::L4Offset).set(Meta::L4, l4 as u64),
    ]
}

fn transport_headers() -> Vec<State> {
    let ports =
        |state: State, sport, dport| state.copy(Meta::Sport, field(sport, 16)).copy(Meta::Dport, field(dport, 16));
    let mut states: Vec<State> = Vec::new();
    states.extend(transport("icmp", "icmp", 8, "malformed_icmp", L4::Icmp));
    states.extend(transport("icmp6", "icmp", 8, "malformed_icmp", L4::Icmp6));
    let [first, second, read] = transport("ports", "ports", 8, "malformed_transport", L4::Ports);
    states.extend([first, second, ports(read, "h.ports.source", "h.ports.destination")]);
    let [first, second, read] = transport("udp", "udp", 8, "malformed_udp", L4::Udp);
    let length = Place::header("h.udp.length", 16);
    states.extend([
        first,
        second,
        ports(read, "h.udp.source", "h.udp.destination").when(
            Term::below(length.load(), 8),
            "malformed_udp",
            "udp_length",
        ),
        // A first fragment has the length of the whole datagram.
        state("udp_length").when(Term::Above(length, Meta::IpLeft.place()), "udp_beyond", ACCEPT),
        state("udp_beyond").when(Term::is(Meta::Fragment.load(), 0), "malformed_udp", ACCEPT),
    ]);
    let [first, second, read] = transport("tcp", "tcp", 20, "malformed_tcp", L4::Tcp);
    let bytes = field("h.tcp.data_offset", 8).shifted(2).masked(0x3c);
    states.extend([
        first,
        second,
        ports(read, "h.tcp.source", "h.tcp.destination").copy(Meta::Header, bytes).when(
            Term::below(Meta::Header.load(), 20),
            "malformed_tcp",
            "tcp_length",
        ),
        state("tcp_length").when(Term::Above(Meta::Header.place(), Meta::IpLeft.place()), "malformed_tcp", ACCEPT),
    ]);
    states
}

fn malformed() -> Vec<State> {
    let reasons = [
        ("malformed_link", Reason::MALFORMED_LINK),
        ("malformed_vlan", Reason::MALFORMED_VLAN),
        ("malformed_ipv4", Reason::MALFORMED_IPV4),
        ("malformed_ipv6", Reason::MALFORMED_IPV6),
        ("malformed_ipv6_ext", Reason::MALFORMED_IPV6_EXT),
        ("malformed_fragment", Reason::MALFORMED_FRAGMENT),
        ("malformed_tcp", Reason::MALFORMED_TCP),
        ("malformed_udp", Reason::MALFORMED_UDP),
        ("malformed_icmp", Reason::MALFORMED_ICMP),
        ("malformed_transport", Reason::MALFORMED_TRANSPORT),
    ];
    reasons.map(|(name, reason)| state(name).set(Meta::Reason, reason.0.into())).into()
}
