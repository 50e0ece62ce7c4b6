//! Synthetic lists are the same in every run and similar to their models.

use super::keys::{KeyMix, Keys, Sources};
use super::{Data, Dataset, geo, hosts, list, shapes};
use std::fs;
use std::path::Path;
use weir_engine::traffic::SplitMix;
use weir_schemes::{Characteristics, Scheme};

fn made_up(dataset: Dataset) -> Data {
    let data = dataset.load(Path::new("/nonexistent")).unwrap();
    assert_eq!(data.source, "synthetic");
    data
}

/// A row of the paper's Table 1: `(N, L, delta)`, and `(mu, phi, rho)` for D16X2R and D16X4R.
type Target = ((usize, f64, usize), [(f64, f64, usize); 2]);

/// Checks ratios to 0.02, lengths to 2%, and the number of ranges to `ranges_off`.
fn assert_like(dataset: Dataset, target: Target, ranges_off: f64) {
    let data = made_up(dataset);
    let ((prefixes, length, labels), shapes) = target;
    for (scheme, (hit_ratio, footprint_ratio, ranges)) in [Scheme::D16X2R, Scheme::D16X4R].into_iter().zip(shapes) {
        let found = Characteristics::of(&data.table, &scheme.build(&data.table).unwrap());
        let name = format!("{} {scheme}: {found:?}", dataset.name);
        assert_eq!((found.prefixes, found.labels), (prefixes, labels), "{name}");
        assert!((found.mean_length_bits / length - 1.0).abs() < 0.02, "{name}");
        assert!((found.hit_ratio.unwrap() - hit_ratio).abs() < 0.02, "{name}");
        assert!((found.footprint_ratio.unwrap() - footprint_ratio).abs() < 0.02, "{name}");
        assert!((found.ranges.unwrap() as f64 / ranges as f64 - 1.0).abs() < ranges_off, "{name}");
    }
}

#[test]
fn block_lists_are_like_the_papers() {
    let target = ((177_935, 32.0, 1), [(0.835, 0.432, 344_517), (0.934, 0.338, 278_549)]);
    assert_like(Dataset::BLOCK_178K, target, 0.06);
    let target = ((1_113_393, 32.0, 1), [(0.680, 0.568, 2_056_778), (0.818, 0.475, 1_967_409)]);
    assert_like(Dataset::BLOCK_1_1M, target, 0.06);
}

#[test]
fn operators_are_like_the_papers() {
    let target = ((430_965, 22.1, 66_349), [(0.844, 0.424, 349_632), (0.927, 0.331, 309_076)]);
    assert_like(Dataset::ASN, target, 0.06);
}

#[test]
fn reserved_space_is_like_the_papers() {
    assert_like(Dataset::PRIVATE, ((9, 11.1, 1), [(1.0, 0.125, 2), (1.0, 0.031, 2)]), 0.01);
}

#[test]
fn the_allow_list_lies_between_the_papers() {
    let data = made_up(Dataset::ALLOW_100K);
    let found = Characteristics::of(&data.table, &Scheme::D16X4R.build(&data.table).unwrap());
    assert_eq!(found.prefixes, 100_000);
    assert!((0.895..0.957).contains(&found.hit_ratio.unwrap()), "{found:?}");
    assert!((0.295..0.487).contains(&found.footprint_ratio.unwrap()), "{found:?}");
    assert!((109_258..269_278).contains(&found.ranges.unwrap()), "{found:?}");
}

#[test]
fn the_same_every_time() {
    let lists = [7, 7, 8].map(|seed| hosts::invent(&shapes::ALLOW_100K, usize::MAX, &mut SplitMix::new(seed)));
    assert!(lists[0] == lists[1] && lists[0] != lists[2]);
    let tables = [7, 7, 8].map(|seed| {
        let mut prefixes = Vec::new();
        geo::invent(&shapes::COUNTRY, &mut SplitMix::new(seed), |addr, len, label| prefixes.push((addr, len, label)));
        prefixes
    });
    assert!(tables[0] == tables[1] && tables[0] != tables[2]);
    // The prefixes are disjoint and in order.
    assert!(tables[0].windows(2).all(|pair| pair[0].0 + (1 << (32 - pair[0].1)) <= pair[1].0));
}

#[test]
fn a_file_goes_before_what_is_made_up() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("country.csv"), "192.0.2.0/24,HR\n198.51.100.0/24,SI\n").unwrap();
    let data = Dataset::COUNTRY.load(directory.path()).unwrap();
    assert_eq!((data.source, data.table.facts().entries, data.table.labels().len()), ("file", 2, 2));
    fs::write(directory.path().join("private.txt"), "10.0.0.0/8\nten\n").unwrap();
    let failure = Dataset::PRIVATE.load(directory.path()).unwrap_err().to_string();
    assert!(failure.contains("private.txt") && failure.contains('2'), "{failure}");
}

#[test]
fn mixes_are_what_they_say() {
    const COUNT: usize = 20_000;
    let data = made_up(Dataset::ALLOW_100K);
    let sources = Sources { allowed: data.addresses(), blocked: vec![1, 2, 3], real: vec![4, 5] };
    let Sources { allowed, blocked, real } = &sources;
    let keys = |mix| match Keys::of(mix, &data, &sources, COUNT) {
        Some(Keys::V4(keys)) => keys,
        other => panic!("{other:?} for an IPv4 table"),
    };
    let share = |keys: &[u32], within: &dyn Fn(u32) -> bool| {
        keys.iter().filter(|&&key| within(key)).count() as f64 / keys.len() as f64
    };
    let botnet = keys(KeyMix::Botnet);
    assert!((share(&botnet, &|key| blocked.contains(&key)) - 0.7).abs() < 0.02);
    assert!((share(&botnet, &|key| allowed.binary_search(&key).is_ok()) - 0.2).abs() < 0.02);
    assert!((share(&keys(KeyMix::Random), &|key| key >> 31 == 1) - 0.5).abs() < 0.02);
    let sequential = keys(KeyMix::Sequential);
    assert_eq!(sequential.len(), COUNT);
    assert!(share(&sequential, &|key| allowed.binary_search(&key).is_ok()) > 0.4);
    assert_eq!(keys(KeyMix::Random), keys(KeyMix::Random));
    assert!(keys(KeyMix::Real).iter().all(|key| real.contains(key)));
    assert_eq!(Keys::of(KeyMix::Real, &data, &Sources::default(), COUNT), None);
    assert_eq!(Keys::of(KeyMix::Real, &made_up(Dataset::BLOCK6_178K), &sources, COUNT), None);
}

#[test]
fn sequential_keys_are_neighbours() {
    let data = made_up(Dataset::PRIVATE);
    let keys = Keys::of(KeyMix::Sequential, &data, &Sources::default(), 9000);
    let Some(Keys::V4(keys)) = keys else { panic!("{keys:?}") };
    let neighbours = keys.windows(2).filter(|pair| pair[1] == pair[0].wrapping_add(1)).count();
    assert_eq!(neighbours, 9000 - 9);
    assert!(data.addresses().iter().all(|address| keys.contains(address)));
}

#[test]
fn edges_are_the_ends_and_beyond() {
    let data = made_up(Dataset::PRIVATE);
    let Keys::V4(keys) = Keys::edges(&data, 100) else { panic!("IPv6 keys") };
    assert_eq!(keys.len(), 4 * 9);
    assert_eq!(keys[4..8], [0x09ff_ffff, 0x0a00_0000, 0x0aff_ffff, 0x0b00_0000]);
    assert_eq!(Keys::edges(&data, 5).len(), 4 * 5);
}

#[test]
fn addresses_are_listed_in_lines() {
    assert_eq!(list(&[0x0102_0304, 0xff00_0001]), "1.2.3.4\n255.0.0.1\n");
}

#[test]
fn a_part_of_a_list_is_small_and_has_every_label() {
    let directory = tempfile::tempdir().unwrap();
    let line = |host: u32| format!("192.0.{}.{},L{}\n", host / 250, host % 250, host / 100);
    fs::write(directory.path().join("country.csv"), (0..1000).map(line).collect::<String>()).unwrap();
    let data = Dataset::COUNTRY.load_part(directory.path(), 50).unwrap();
    assert_eq!((data.source, data.table.labels().len()), ("file", 10));
    assert!((50..=60).contains(&data.table.facts().entries), "{}", data.table.facts().entries);
    assert!(data.text().contains("192.0.0.0/32,L0\n") || data.text().contains("192.0.0.0,L0\n"), "{}", data.text());
    let hosts = Dataset::BLOCK_1_1M.load_part(directory.path(), 1000).unwrap();
    assert!((900..=1100).contains(&hosts.addresses().len()), "{}", hosts.addresses().len());
}
