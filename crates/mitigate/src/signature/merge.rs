//! Signatures that differ in one field. A field with a third value does not describe the attack: a counter, the time,
//! or what an attacker changes so that a slot fills. A coarser signature takes their place if it spares legitimate
//! packets as well.

use super::learn::{Examples, Learned, of_terms};
use super::{Field, Signature, Term};
use crate::class;
use crate::header::Header;
use std::collections::HashMap;

/// Values of a field from which on they do not describe the attack.
const VALUES_MIN: usize = 3;
/// A signature whose packets have the same sender and port in this share describes a stream, if the sender uses each
/// of its own ports so often: a stream is eight packets and more.
const SENDER_SHARE: f64 = 0.95;
const PACKETS_PER_PORT: usize = 8;
/// Fields that change within a stream.
const OF_PACKETS: [Field; 3] = [Field::Payload, Field::Length, Field::Ttl];

/// Replaces signatures by coarser ones, where others differ from them in one field. `known` are those that the attack
/// had before. The packets of one sender are named by what they have in common.
pub fn merge(learned: Vec<Learned>, known: &[&Signature], examples: &Examples<'_>) -> Vec<Learned> {
    let mut merged: Vec<Learned> = Vec::new();
    for one in &learned {
        let others = learned.iter().map(|other| &other.signature).chain(known.iter().copied());
        let coarser = widest(&one.signature, others, examples);
        let one = coarser.unwrap_or_else(|| one.clone());
        let one = Learned { is_stream: is_stream(&one.signature, examples.attack), ..one };
        let one = if one.is_stream { without_packets(&one, examples).unwrap_or(one) } else { one };
        if !merged.iter().any(|other| other.signature.covers(&one.signature)) {
            merged.push(one);
        }
    }
    merged
}

/// The signature without the field in which others differ from it, or with a range that has the values of all.
fn widest<'a>(
    one: &Signature,
    others: impl Iterator<Item = &'a Signature> + Clone,
    examples: &Examples<'_>,
) -> Option<Learned> {
    one.terms().iter().find_map(|term| {
        let relatives = others.clone().filter_map(|other| other.differs_in(one, term.field));
        let mut values: Vec<Term> = relatives.chain([*term]).collect();
        values.sort_unstable();
        values.dedup();
        if values.len() < VALUES_MIN {
            return None;
        }
        let rest = || one.terms().iter().filter(|other| other.field != term.field).copied();
        let range = Term {
            first: values.iter().map(|value| value.first).min()?,
            last: values.iter().map(|value| value.last).max()?,
            field: term.field,
        };
        let ranges = term.field.is_ordered().then_some(range);
        of_terms(rest().collect(), examples).or_else(|| of_terms(rest().chain([ranges?]).collect(), examples))
    })
}

/// Whether nearly all datagrams of a signature come from one source and go to one port.
fn is_stream(signature: &Signature, attack: &[Header]) -> bool {
    let mut senders: HashMap<(u128, u128, u16), Vec<u16>> = HashMap::new();
    let mut all = 0;
    for header in attack.iter().filter(|header| signature.matches(header)) {
        all += 1;
        if class::is_datagram(class::of(header)) {
            senders.entry((header.saddr, header.daddr, header.dport)).or_default().push(header.sport);
        }
    }
    senders.into_values().max_by_key(Vec::len).is_some_and(|mut ports| {
        let packets = ports.len();
        ports.sort_unstable();
        ports.dedup();
        packets as f64 >= f64::from(all) * SENDER_SHARE && packets >= ports.len() * PACKETS_PER_PORT
    })
}

/// The signature of a stream without what changes from packet to packet.
fn without_packets(stream: &Learned, examples: &Examples<'_>) -> Option<Learned> {
    let terms = stream.signature.terms().iter().filter(|term| !OF_PACKETS.contains(&term.field));
    let wider = of_terms(terms.copied().collect(), examples)?;
    is_stream(&wider.signature, examples.attack).then_some(Learned { is_stream: true, ..wider })
}

#[cfg(test)]
mod tests {
    use super::merge;
    use crate::header::{Header, protocol};
    use crate::prefix::Prefix;
    use crate::signature::learn::{Examples, learn};
    use crate::signature::{Field, Signature, Term};

    /// A datagram of one of many sources, whose payload is a word.
    fn datagram(source: u32, word: u32) -> Header {
        let payload = Some(word.to_be_bytes());
        let header = Header::between(source.wrapping_mul(0x9e37_79b1), 0xc000_0201);
        Header {
            protocol: protocol::UDP,
            has_ports: true,
            sport: source as u16,
            dport: 7,
            length: 99,
            payload,
            ..header
        }
    }

    /// What becomes of the signature of a word, if the attack had signatures of others before.
    fn merged(others: &[u128], legitimate: &[&Header]) -> Vec<String> {
        let attack: Vec<Header> = (0..200).map(|source| datagram(source, 3)).collect();
        let (victim, no) = (Prefix::of(false, 0xc000_0201, 32), Vec::new());
        let examples = Examples {
            victim,
            attack: &attack,
            legitimate,
            first: &no,
            foreign: &[],
            usual: &no,
            streamed: &[],
            is_used: true,
            share_min: 0.0,
            is_known: &|_| false,
            is_known_net: &|_| false,
        };
        let learned = learn(&examples);
        let known: Vec<Signature> = others
            .iter()
            .map(|&word| {
                let change = |term: &Term| match term.field {
                    Field::Payload => Term { first: word, last: word, ..*term },
                    _ => *term,
                };
                Signature::new(victim, learned[0].signature.terms().iter().map(change).collect())
            })
            .collect();
        let known: Vec<&Signature> = known.iter().collect();
        merge(learned, &known, &examples).iter().map(|one| one.signature.to_string()).collect()
    }

    #[test]
    fn a_field_goes_with_its_third_value_if_customers_are_spared_without_it() {
        let fine = "ip daddr 192.0.2.1 meta l4proto udp th dport 7 @th,64,32 0x00000003 meta length 99";
        assert_eq!(merged(&[1], &[]), [fine]);
        assert_eq!(merged(&[1, 1], &[]), [fine]);
        assert_eq!(merged(&[1, 2], &[]), ["ip daddr 192.0.2.1 meta l4proto udp th dport 7 meta length 99"]);
        let customer = datagram(1 << 20, 0x0100_0000);
        assert_eq!(merged(&[1, 2], &[&customer]), [fine]);
    }
}
