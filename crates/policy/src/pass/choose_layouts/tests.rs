use super::*;
use crate::catalog::TableFacts;
use crate::checked::{Defaults, Dynamic, OnExit, Posture, Rule, TableKind};
use crate::source::{FileId, Span};
use weir_abi::Family;

const SPAN: Span = Span { file: FileId(0), start: 0, end: 0 };

fn table(family: Family, kind: TableKind, lengths: &[(usize, usize)], labels: usize) -> Table {
    let mut by_length = vec![0; usize::from(family.bits()) + 1];
    lengths.iter().for_each(|&(length, count)| by_length[length] = count);
    let labels = (0..labels).map(|index| index.to_string()).collect();
    let facts = TableFacts { entries: by_length.iter().sum(), by_length, labels };
    Table { name: "t".to_owned(), span: SPAN, family, kind, dynamic: None, layout: None, facts }
}

fn addresses(count: usize) -> Table {
    table(Family::Ipv4, TableKind::Set, &[(32, count)], 0)
}

/// A policy whose rules ask the tables for the given keys.
fn policy(tables: Vec<Table>, asked: &[(u16, Field)]) -> Checked {
    let rule = |&(table, key): &(u16, Field)| Rule {
        span: SPAN,
        matches: vec![Match::Table { key, table: TableId(table), labels: None, negated: false }],
        effects: vec![],
    };
    let upstream = Some(asked.iter().map(rule).collect());
    Checked {
        name: "test".to_owned(),
        tables,
        limits: vec![],
        defaults: Defaults::default(),
        on_exit: OnExit::default(),
        postures: vec![Posture { name: None, span: SPAN, upstream, downstream: None }],
        warnings: vec![],
    }
}

/// Numbers of the tables in each image, and its layout.
fn planned(tables: Vec<Table>, asked: &[(u16, Field)]) -> Vec<(Vec<u16>, Layout)> {
    let plan = plan(&policy(tables, asked), &CostModel::default());
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
    assert_eq!(layout(Family::Ipv6, TableKind::Set, &[(56, 1), (128, 2_000_000)], 0), Layout::Range6);
}

#[test]
fn the_policy_has_the_last_word_and_is_told_the_cost() {
    let mut table = addresses(178_000);
    table.layout = Some(Layout::Dxr16x4);
    let plan = plan(&policy(vec![table], &[]), &CostModel::default());
    assert_eq!(plan.images[0].layout, Layout::Dxr16x4);
    let reason = plan.images[0].reason.to_string();
    assert!(reason.starts_with("the policy says so; expected exact-set 3 cycles 1.00 MiB, rank-leaf "), "{reason}");
}

#[test]
fn sets_that_are_asked_for_the_same_key_are_fused() {
    let both = [(0, Field::IpSaddr), (1, Field::IpSaddr)];
    let tables = || vec![addresses(100_000), addresses(178_000)];
    assert_eq!(planned(tables(), &both), [(vec![0, 1], Layout::ExactSets)]);
    let plan = plan(&policy(tables(), &both), &CostModel::default());
    assert_eq!((plan.place(TableId(0)), plan.place(TableId(1))), ((0, 0), (0, 1)));
    let reason = plan.images[0].reason.to_string();
    assert!(
        reason.starts_with("one lookup for 2 tables: expected exact-sets 5 cycles 2.00 MiB; apart exact-set "),
        "{reason}"
    );

    let apart = [(vec![0], Layout::ExactSet), (vec![1], Layout::ExactSet)];
    assert_eq!(planned(tables(), &[(0, Field::IpSaddr), (1, Field::IpDaddr)]), apart, "other keys");
    assert_eq!(planned(tables(), &[(0, Field::IpSaddr)]), apart, "one is not asked");
    let mut dynamic = tables();
    dynamic[1].dynamic = Some(Dynamic { size: 1000, timeout_ms: None });
    assert_eq!(planned(dynamic, &both), apart, "one is filled while running");
    let mut forced = tables();
    forced[0].layout = Some(Layout::ExactSet);
    assert_eq!(planned(forced, &both), apart, "the policy wants one alone");
}

#[test]
fn as_many_are_fused_as_an_image_holds() {
    let asked: Vec<(u16, Field)> = (0..6).map(|table| (table, Field::IpSaddr)).collect();
    let images = planned((0..6).map(|_| addresses(1000)).collect(), &asked);
    assert_eq!(images, [(vec![0, 1, 2, 3], Layout::ExactSets), (vec![4, 5], Layout::ExactSets)]);
}
