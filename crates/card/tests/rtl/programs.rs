//! Random programs of a card, and its tables.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_abi::{Family, Layout};
use weir_card::Lookups;
use weir_card::body::BodyLayout;
use weir_card::field::{CardField, Carried};
use weir_card::program::{Act, CardPattern, CardProgram, CardRule, Compare, TableKey};
use weir_policy::field::{Field, Guard};
use weir_policy::ir::{RuleId, SlotId};
use weir_tables::{Entries, Image, Kind};

/// Images `d16x4r`, one a lookup.
#[derive(Clone, Copy)]
pub struct Images<'a>(pub &'a [Image]);

impl Lookups for Images<'_> {
    fn begin(&self, lookup: usize, address: u32) -> u32 {
        self.0[lookup].view().stages().expect("the layout is d16x4r").begin(address)
    }

    fn finish(&self, lookup: usize, entry: u32, low: u16) -> u32 {
        self.0[lookup].view().stages().expect("the layout is d16x4r").finish(entry, low)
    }
}

/// Two tables that have some of the addresses in random packets.
pub fn images() -> Vec<Image> {
    let image = |entries: &[&str]| {
        let mut table = Entries::new(Family::Ipv4, Kind::Set);
        entries.iter().for_each(|entry| table.insert_text(entry, None).expect("it is a prefix"));
        table.settle().build(Layout::Dxr16x4).expect("the image is small")
    };
    vec![
        image(&["198.51.100.7", "192.0.2.0/28", "0.0.0.0/8", "10.1.2.3", "255.255.255.255"]),
        image(&["203.0.113.0/24", "198.51.100.8", "128.0.0.0/1", "10.0.0.0/9"]),
    ]
}

/// Values that packets have, or any.
fn value() -> impl Strategy<Value = u32> {
    let known = [0, 1, 2, 6, 17, 18, 22, 53, 58, 64, 80, 100, 443, 1024, 0xc633_6407, 0xc000_020f, u32::MAX];
    prop_oneof![3 => proptest::sample::select(known.to_vec()), 1 => any::<u32>(), 2 => 0u32..300]
}

fn pattern() -> impl Strategy<Value = CardPattern> {
    let header = proptest::sample::select(Guard::ALL.iter().map(|(guard, _)| *guard).collect::<Vec<_>>());
    let field = proptest::sample::select(CardField::ALL.iter().map(|(field, _)| *field).collect::<Vec<_>>());
    let mask = prop_oneof![3 => Just(u32::MAX), 1 => any::<u32>()];
    let ranges = vec((value(), value()).prop_map(|(one, other)| (one.min(other), one.max(other))), 0..=8);
    let compare = (field, mask, ranges, any::<bool>()).prop_map(|(field, mask, ranges, negated)| Compare {
        field,
        mask,
        ranges,
        negated,
    });
    (header, proptest::option::weighted(0.9, compare)).prop_map(|(header, compare)| CardPattern { header, compare })
}

/// A program with two lookups. Its body is as large as its flags and a random choice of values make it.
pub fn program() -> impl Strategy<Value = CardProgram> {
    let carried = proptest::sample::subsequence(Carried::ALL.to_vec(), 0..=Carried::ALL.len());
    let sizes = (0usize..12, 0usize..8, 0usize..6);
    (vec(pattern(), 0..20), sizes, carried, 0usize..=2, any::<bool>()).prop_flat_map(
        |(patterns, (ends, counted, drops), carried, lookups, options_alone)| {
            let sent = patterns.len().min(40);
            let mask = vec(any::<proptest::sample::Index>(), 0..=2);
            let rules = vec(mask, ends + counted + drops);
            (Just((patterns, carried)), rules).prop_map(move |((patterns, carried), masks)| {
                let acts = (0..counted as u8).map(Act::Count);
                let acts = acts.chain((0..drops as u8).map(Act::Drop)).chain((1..=ends as u8).map(Act::End));
                let rules = acts.zip(masks).map(|(act, mask)| {
                    let mut of: Vec<usize> =
                        mask.iter().filter(|_| !patterns.is_empty()).map(|index| index.index(patterns.len())).collect();
                    // A drop without patterns would leave nothing to compare.
                    if of.is_empty() && matches!(act, Act::Drop(_)) && !patterns.is_empty() {
                        of = (0..patterns.len().min(3)).collect();
                    }
                    CardRule { patterns: of, act }
                });
                let key = |index: usize| if index == 0 { Field::IpSaddr } else { Field::IpDaddr };
                let table = |index| TableKey { name: "t".into(), slot: SlotId(0), index, key: key(index) };
                CardProgram {
                    rules: rules.collect(),
                    patterns,
                    lookups: (0..lookups).map(table).collect(),
                    options_alone,
                    dropped: (0..drops as u16).map(RuleId).collect(),
                    body: BodyLayout { ends, counted, patterns: sent, carried, lookups },
                }
            })
        },
    )
}
