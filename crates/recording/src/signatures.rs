//! Every term of a signature is a match of the language that a slot can hold, for IPv4 and IPv6.

use weir_mitigate::action::Measure;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::signature::{Field, Signature, Term};
use weir_policy::slot_rule::{SlotRule, text};

const ADDRESSES: [u128; 2] = [0xc000_0201, 0x2001_0db8 << 96 | 1];

/// Values that detection gives a field, as ranges.
fn ranges(field: Field, is_ipv6: bool) -> Vec<(u128, u128)> {
    match field {
        Field::Protocol if is_ipv6 => vec![(6, 6), (17, 17), (58, 58), (132, 132), (59, 255)],
        Field::Protocol => vec![(1, 1), (6, 6), (17, 17), (47, 47), (2, 5), (18, 255)],
        Field::Fragment => vec![(0, 0), (1, 1), (2, 2)],
        Field::Sport | Field::Dport => vec![(0, 0), (53, 53), (65535, 65535)],
        Field::Length => vec![(20, 20), (40, 1500)],
        Field::Flags => (0..=255).map(|flags| (flags, flags)).collect(),
        Field::Doff => vec![(5, 5), (15, 15)],
        Field::Window => vec![(0, 0), (1024, 65535)],
        Field::IcmpType => vec![(0, 0), (8, 8), (128, 128), (255, 255)],
        Field::Payload => vec![(0, 0), (0xffff_ffff, 0xffff_ffff)],
        Field::Ttl => vec![(1, 1), (40, 255)],
        Field::Saddr => vec![(ADDRESSES[usize::from(is_ipv6)], ADDRESSES[usize::from(is_ipv6)])],
    }
}

/// Reads what a measure prints, which must keep all of it.
#[track_caller]
fn reads(measure: &Measure) {
    let written = measure.to_string();
    let rule = SlotRule::parse(&written).unwrap_or_else(|refused| panic!("{written}\n{refused}"));
    let printed = text(&rule.record);
    let again = SlotRule::parse(&printed).unwrap_or_else(|refused| panic!("{printed}\n{refused}"));
    assert_eq!(again.record, rule.record, "{written}\n{printed}");
}

#[test]
fn every_term_is_a_rule_of_a_slot() {
    for is_ipv6 in [false, true] {
        for length in [0, 16, 24, u8::MAX] {
            let victim = Prefix::of(is_ipv6, ADDRESSES[usize::from(is_ipv6)], length);
            reads(&Measure::Drop(Signature::new(victim, vec![])));
            for field in Field::ALL {
                for (first, last) in ranges(field, is_ipv6) {
                    let terms = vec![Term { field, first, last }];
                    reads(&Measure::Drop(Signature::new(victim, terms.clone())));
                    reads(&Measure::Limit(Signature::new(victim, terms), 1234.4));
                }
            }
        }
    }
}

#[test]
fn a_net_of_sources_is_a_rule_of_a_slot() {
    for is_ipv6 in [false, true] {
        let [victim, net] = [u8::MAX, if is_ipv6 { 64 } else { 24 }]
            .map(|length| Prefix::of(is_ipv6, ADDRESSES[usize::from(is_ipv6)], length));
        let term = Term { field: Field::Saddr, first: net.address(), last: net.last() };
        let measure = Measure::Drop(Signature::new(victim, vec![term]));
        reads(&measure);
        assert!(measure.to_string().contains(&format!("saddr {net} ")), "{measure}");
    }
}

#[test]
fn bytes_of_a_udp_payload_are_not_looked_for_in_tcp() {
    for is_ipv6 in [false, true] {
        let victim = Prefix::of(is_ipv6, ADDRESSES[usize::from(is_ipv6)], u8::MAX);
        let term = Term { field: Field::Payload, first: 0x1703_0001, last: 0x1703_0001 };
        let written = Measure::Drop(Signature::new(victim, vec![term])).to_string();
        let rule = SlotRule::parse(&written).unwrap_or_else(|refused| panic!("{written}\n{refused}"));
        assert!(text(&rule.record).contains("meta l4proto udp"), "{}", text(&rule.record));
    }
}

#[test]
fn all_terms_of_a_packet_are_one_rule() {
    let udp =
        [Field::Saddr, Field::Protocol, Field::Fragment, Field::Sport, Field::Dport, Field::Payload, Field::Length];
    let tcp = [Field::Sport, Field::Flags, Field::Doff, Field::Window, Field::Length, Field::Ttl];
    let icmp = [Field::IcmpType, Field::Length, Field::Ttl];
    for is_ipv6 in [false, true] {
        let victim = Prefix::of(is_ipv6, ADDRESSES[usize::from(is_ipv6)], 24);
        for fields in [&udp[..], &tcp, &icmp] {
            let term = |field: &Field| {
                let (first, last) = ranges(*field, is_ipv6)[0];
                Term { field: *field, first, last }
            };
            let mut terms: Vec<Term> = fields.iter().map(term).collect();
            let protocol = terms.iter_mut().find(|term| term.field == Field::Protocol);
            protocol.into_iter().for_each(|term| (term.first, term.last) = (17, 17));
            reads(&Measure::Drop(Signature::new(victim, terms)));
        }
    }
}
