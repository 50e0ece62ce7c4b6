use super::*;
use crate::catalog::{LimitsFacts, TableFacts};
use crate::checked::{Defaults, Dynamic, OnExit, Posture, Rule, TableKind, Updates};
use crate::source::{FileId, Span};
use weir_abi::Family;

const SPAN: Span = Span { file: FileId(0), start: 0, end: 0 };

fn table(family: Family, kind: TableKind, lengths: &[(usize, usize)], labels: usize) -> Table {
    let mut by_length = vec![0; usize::from(family.bits()) + 1];
    lengths.iter().for_each(|&(length, count)| by_length[length] = count);
    let labels = (0..labels).map(|index| index.to_string()).collect();
    let facts = TableFacts { entries: by_length.iter().sum(), by_length, labels };
    Table {
        name: "t".to_owned(),
        span: SPAN,
        family,
        kind,
        dynamic: None,
        counters: false,
        layout: None,
        updates: Updates::default(),
        facts,
    }
}

fn addresses(count: usize) -> Table {
    table(Family::Ipv4, TableKind::Set, &[(32, count)], 0)
}

/// Describes images of typical size. A search in ranges reads one word for each halving.
struct Typical<'p>(&'p [Table]);

impl Catalog for Typical<'_> {
    fn table(&self, name: &str) -> Option<&TableFacts> {
        self.0.iter().find(|table| table.name == name).map(|table| &table.facts)
    }

    fn limits(&self, _: &str) -> Option<&LimitsFacts> {
        None
    }

    fn image(&self, tables: &[&str], layout: Layout) -> Option<ImageFacts> {
        let entries: usize = tables.iter().map(|name| self.table(name).map_or(0, |facts| facts.entries)).sum();
        let halvings = f64::from(entries.max(1).ilog2());
        let (bytes, words, lines) = match layout {
            Layout::ExactSet | Layout::ExactSets => ((4 * entries).next_power_of_two().max(1 << 19), 1.0, 1.0),
            Layout::ExactSet6 | Layout::ExactSets6 => (16 * entries, 1.6, 1.6),
            Layout::RankLeaf | Layout::CountedLeaf => ((256 << 10) + 5 * entries, 4.0, 4.0),
            Layout::ExactLeaf | Layout::ExactLeaf6 => ((800 << 10) + 10 * entries, 1.5, 1.5),
            Layout::RankLeaf6 => ((256 << 10) + 5 * entries, 7.0, 7.0),
            Layout::Dxr16x4 => ((128 << 10) + 10 * entries, 2.0 + halvings / 3.0, 4.0),
            Layout::Range6 => ((256 << 10) + 24 * entries, 2.0 + halvings / 2.0, 2.0 + halvings / 3.0),
        };
        Some(ImageFacts { layout, bytes, words, lines })
    }

    fn limits_image(&self, _: &str, _: Family, _: Layout) -> Option<ImageFacts> {
        None
    }
}

/// A policy whose rules look the given keys up in the tables.
fn policy(mut tables: Vec<Table>, lookups: &[(u16, Field)]) -> Checked {
    tables.iter_mut().enumerate().for_each(|(index, table)| table.name = format!("t{index}"));
    let rule = |&(table, key): &(u16, Field)| Rule {
        span: SPAN,
        matches: vec![Match::Table { key, table: TableId(table), labels: None, negated: false }],
        effects: vec![],
    };
    let upstream = Some(lookups.iter().map(rule).collect());
    Checked {
        tracking: None,
        observe: None,
        inside: None,
        name: "test".to_owned(),
        tables,
        rule_slots: vec![],
        limits: vec![],
        defaults: Defaults::default(),
        on_exit: OnExit::default(),
        postures: vec![Posture { name: None, span: SPAN, upstream, downstream: None }],
        warnings: vec![],
    }
}

fn plan_of(policy: &Checked) -> Plan {
    plan(policy, &Typical(&policy.tables), &CostModel::default())
}

/// The table numbers and the layout of each image.
fn planned(tables: Vec<Table>, lookups: &[(u16, Field)]) -> Vec<(Vec<u16>, Layout)> {
    let plan = plan_of(&policy(tables, lookups));
    plan.images.into_iter().map(|image| (image.tables().iter().map(|table| table.0).collect(), image.layout)).collect()
}

fn layout(family: Family, kind: TableKind, lengths: &[(usize, usize)], labels: usize) -> Layout {
    planned(vec![table(family, kind, lengths, labels)], &[])[0].1
}

#[test]
fn addresses_are_an_exact_set_and_prefixes_rank_leaves() {
    for count in [1, 1000, 178_000, 1_100_000] {
        assert_eq!(layout(Family::Ipv4, TableKind::Set, &[(32, count)], 0), Layout::ExactSet, "{count}");
    }
    assert_eq!(layout(Family::Ipv4, TableKind::Set, &[(24, 9), (32, 1000)], 0), Layout::RankLeaf);
    assert_eq!(layout(Family::Ipv4, TableKind::Labels, &[(24, 300_000)], 250), Layout::RankLeaf);
    assert_eq!(layout(Family::Ipv4, TableKind::Set, &[], 0), Layout::RankLeaf, "an empty table may yet get prefixes");
}

#[test]
fn ipv6_prefixes_are_rank_leaves_and_whole_networks_and_hosts_exact_sets() {
    assert_eq!(layout(Family::Ipv6, TableKind::Labels, &[(32, 60_000), (48, 90_000)], 250), Layout::RankLeaf6);
    assert_eq!(layout(Family::Ipv6, TableKind::Set, &[(64, 1000), (128, 2_000_000)], 0), Layout::ExactSet6);
    assert_eq!(layout(Family::Ipv6, TableKind::Set, &[(56, 1), (64, 1000)], 0), Layout::RankLeaf6);
}

#[test]
fn a_layout_in_the_policy_is_used_and_its_cost_is_reported() {
    let mut table = addresses(178_000);
    table.layout = Some(Layout::Dxr16x4);
    let plan = plan_of(&policy(vec![table], &[]));
    assert_eq!(plan.images[0].layout, Layout::Dxr16x4);
    let reason = plan.images[0].reason.to_string();
    assert!(reason.starts_with("the policy says so; expected exact-set 3 cycles 1.00 MiB, rank-leaf "), "{reason}");
}

#[test]
fn sets_with_lookups_of_the_same_key_are_fused() {
    let both = [(0, Field::IpSaddr), (1, Field::IpSaddr)];
    let tables = || vec![addresses(100_000), addresses(178_000)];
    assert_eq!(planned(tables(), &both), [(vec![0, 1], Layout::ExactSets)]);
    let plan = plan_of(&policy(tables(), &both));
    assert_eq!((plan.image_of(TableId(0)), plan.image_of(TableId(1))), ((0, 0), (0, 1)));
    let reason = plan.images[0].reason.to_string();
    assert!(
        reason.starts_with("one lookup for 2 tables: expected exact-sets 5 cycles 2.00 MiB; apart exact-set "),
        "{reason}"
    );

    let apart = [(vec![0], Layout::ExactSet), (vec![1], Layout::ExactSet)];
    assert_eq!(planned(tables(), &[(0, Field::IpSaddr), (1, Field::IpDaddr)]), apart, "other keys");
    assert_eq!(planned(tables(), &[(0, Field::IpSaddr)]), apart, "one has no lookups");
    let mut dynamic = tables();
    dynamic[1].dynamic = Some(Dynamic { size: 1000, timeout_ms: None });
    let expected = [(vec![0], Layout::ExactSet), (vec![1], Layout::ExactLeaf)];
    assert_eq!(planned(dynamic, &both), expected, "one may get prefixes while running");
    let mut counted = tables();
    counted[1] = Table { dynamic: Some(Dynamic { size: 1000, timeout_ms: None }), counters: true, ..addresses(9) };
    let expected = [(vec![0], Layout::ExactSet), (vec![1], Layout::RankLeaf)];
    assert_eq!(planned(counted, &both), expected, "its entries are numbered");
    let mut forced = tables();
    forced[0].layout = Some(Layout::ExactSet);
    assert_eq!(planned(forced, &both), apart, "the policy wants one alone");
}

#[test]
fn sets_of_ipv6_are_fused_with_each_other_only() {
    let six = |nets: usize, hosts: usize| table(Family::Ipv6, TableKind::Set, &[(64, nets), (128, hosts)], 0);
    let tables = vec![addresses(9000), six(9000, 1000), six(0, 9000), addresses(9000)];
    let lookups = [(0, Field::IpSaddr), (1, Field::Ip6Saddr), (2, Field::Ip6Saddr), (3, Field::IpSaddr)];
    let expected = [(vec![0, 3], Layout::ExactSets), (vec![1, 2], Layout::ExactSets6)];
    assert_eq!(planned(tables, &lookups), expected);
    let mut forced = vec![six(9000, 0), six(9000, 0)];
    forced[1].layout = Some(Layout::ExactSet6);
    let apart = [(vec![0], Layout::ExactSet6), (vec![1], Layout::ExactSet6)];
    assert_eq!(planned(forced, &[(0, Field::Ip6Saddr), (1, Field::Ip6Saddr)]), apart);
}

#[test]
fn images_apart_share_the_cache() {
    // Lines of one image alone would come from a cache, and lines of two do not.
    let model = CostModel::measured(vec![(2 << 20, 11.0), (4 << 20, 90.0)]).expect("there are points");
    let set = |count: usize| table(Family::Ipv6, TableKind::Set, &[(64, count)], 0);
    let policy = policy(vec![set(100_000), set(120_000)], &[(0, Field::Ip6Saddr), (1, Field::Ip6Saddr)]);
    let plan = plan(&policy, &Typical(&policy.tables), &model);
    let Reason::Fused { together, apart } = &plan.images[0].reason else { panic!("{plan:?}") };
    assert_eq!(apart.iter().map(|image| image.bytes).sum::<usize>(), together.bytes);
    assert!(together.cycles < 0.6 * apart.iter().map(|image| image.cycles).sum::<f64>(), "{plan:?}");
}

#[test]
fn an_image_has_at_most_four_fused_sets() {
    let lookups: Vec<(u16, Field)> = (0..6).map(|table| (table, Field::IpSaddr)).collect();
    let images = planned((0..6).map(|_| addresses(1000)).collect(), &lookups);
    assert_eq!(images, [(vec![0, 1, 2, 3], Layout::ExactSets), (vec![4, 5], Layout::ExactSets)]);
}

#[test]
fn a_layout_that_cannot_hold_a_table_is_not_chosen() {
    struct Without(Layout);
    impl Catalog for Without {
        fn table(&self, _: &str) -> Option<&TableFacts> {
            None
        }

        fn limits(&self, _: &str) -> Option<&LimitsFacts> {
            None
        }

        fn image(&self, _: &[&str], layout: Layout) -> Option<ImageFacts> {
            (layout != self.0).then_some(ImageFacts { layout, bytes: 1 << 20, words: 4.0, lines: 4.0 })
        }

        fn limits_image(&self, _: &str, _: Family, _: Layout) -> Option<ImageFacts> {
            None
        }
    }
    let of = |table: Table, without: Layout| {
        plan(&policy(vec![table], &[]), &Without(without), &CostModel::default()).images[0].layout
    };
    assert_eq!(of(addresses(1000), Layout::ExactSet), Layout::RankLeaf);
    let prefixes = || table(Family::Ipv6, TableKind::Set, &[(48, 10)], 0);
    assert_eq!(of(prefixes(), Layout::ExactSet6), Layout::RankLeaf6);
    assert_eq!(of(prefixes(), Layout::RankLeaf6), Layout::Range6);
}

#[test]
fn limits_are_in_layouts_that_hold_all_tickets() {
    let holding = |family| Layout::ALL.into_iter().filter(move |&layout| holds_limits(layout, family));
    assert_eq!(holding(Family::Ipv4).collect::<Vec<_>>(), [Layout::RankLeaf, Layout::CountedLeaf]);
    assert_eq!(holding(Family::Ipv6).collect::<Vec<_>>(), [Layout::RankLeaf6]);
}
