//! Random cards.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use weir_card::Profile;
use weir_card::field::CardField;

/// Cards of every size, from one that can do nothing to one that can do everything.
pub fn profiles() -> BoxedStrategy<Profile> {
    let fields: Vec<CardField> = CardField::ALL.iter().map(|(field, _)| *field).collect();
    let carried: Vec<CardField> = fields.iter().copied().filter(|field| field.carried().is_some()).collect();
    let (all, sent) = (fields.len(), carried.len());
    let parser = (0..=2usize, any::<bool>(), any::<bool>());
    let matches = prop_oneof![1 => subsequence(fields.clone(), 0..=all), 1 => Just(fields)];
    let fields = (matches, subsequence(carried, 0..=sent));
    let patterns = (select(vec![0, 1, 4, 16, 64, 64]), select(vec![0, 1, 2, 8, 8]));
    let rules = (select(vec![0, 1, 4, 64, 255, 255]), select(vec![0, 1, 2, 64, 64, 64]));
    let lookups = (select(vec![0, 1, 2, 6, 6, 6]), select(vec![1, 3, 65_536, 65_536, 65_536]));
    let metadata = prop_oneof![1 => 0..=448usize, 2 => Just(448)];
    (parser, fields, patterns, rules, lookups, metadata)
        .prop_map(|((vlan, options, ip6), (matches, carries), of_patterns, of_rules, of_lookups, metadata)| Profile {
            name: "random".to_owned(),
            vlan,
            options,
            ip6,
            matches,
            carries,
            patterns: of_patterns.0,
            ranges: of_patterns.1,
            rules: of_rules.0,
            counters: of_rules.1,
            lookups: of_lookups.0,
            blocks: of_lookups.1,
            metadata,
            reconfigure_ms: 1,
        })
        .boxed()
}
