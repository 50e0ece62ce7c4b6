//! Tests the parts of the scenario, without measurements.

use super::layouts::{Builder, Built, CONTENDERS, Lookups};
use super::race::{Entrant, Oracle};
use super::{SCENARIO, Selection, choice, chosen, race, run};
use crate::data::Dataset;
use crate::data::keys::{KeyMix, Keys};
use crate::options::Options;
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::Scale;
use clap::Parser;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::rc::Rc;
use weir_abi::{Family, Layout};
use weir_engine::measure::Spread;
use weir_policy::pass::choose_layouts::{CostModel, Reason};
use weir_schemes::Scheme;
use weir_tables::{Entries, Kind, Table};

fn options(arguments: &[&str]) -> Options {
    Options::parse_from(["weir-bench", "tables", "--data", "/nonexistent"].iter().chain(arguments))
}

#[test]
fn every_layout_of_a_policy_takes_part() {
    for layout in Layout::ALL {
        let contender = CONTENDERS.iter().find(|contender| contender.name == layout.name());
        assert!(contender.is_some_and(|contender| !contender.ways.is_empty()), "{}", layout.name());
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    for (option, known) in [("--table", "three-tables-1.1m"), ("--layout", "rank-leaf"), ("--keys", "sequential")] {
        let Err(failure) = Selection::of(&options(&[option, "none"])) else { panic!("{option} none is taken") };
        let failure = failure.to_string();
        assert!(failure.contains("none") && failure.contains(known), "{failure}");
    }
    let selection = Selection::of(&options(&["--table", "city", "--table", "three-tables-178k"])).unwrap();
    assert_eq!((selection.datasets.len(), selection.threes.len()), (1, 1));
    assert_eq!((selection.mixes.len(), selection.layouts.len()), (KeyMix::ALL.len(), CONTENDERS.len() - 1));
}

#[test]
fn rows_of_a_table() {
    let layouts = ["--layout", "sail", "--layout", "exact-set", "--layout", "rank-leaf", "--layout", "chosen"];
    let arguments: Vec<&str> = ["--table", "private", "--keys", "sequential"].into_iter().chain(layouts).collect();
    let options = options(&arguments);
    let rows = run(&Plan::new(&SCENARIO, &options).unwrap()).unwrap();
    assert!(rows.iter().all(|row| row.text("table") == Some("private") && row.text("source") == Some("synthetic")));
    let of = |layout: &str, timed: bool| -> Vec<&Row> {
        let of_layout = rows.iter().filter(|row| row.text("layout") == Some(layout));
        of_layout.filter(|row| row.text("keys").is_some() == timed).collect()
    };
    // A layout that cannot contain the table has a reason and is not measured.
    let limit = of("exact-set", false)[0].text("limit").unwrap();
    assert!(limit.contains("/32 addresses only"), "{limit}");
    assert!(of("exact-set", true).is_empty());
    for layout in ["sail", "rank-leaf", "chosen"] {
        let facts = of(layout, false);
        assert_eq!(facts.len(), 1);
        for field in ["prefixes", "mean_length_bits", "labels", "bytes", "build_s", "build_s_min", "build_s_max"] {
            assert!(facts[0].get(field).is_some(), "{layout}: {field}");
        }
        assert!(!of(layout, true).is_empty());
        for row in of(layout, true) {
            assert!(row.text("mode").is_some() && row.get("bytes") == facts[0].get("bytes"));
            let [min, median, max] =
                ["_min", "", "_max"].map(|bound| row.get(&format!("cycles_per_lookup{bound}")).unwrap());
            assert!(min <= median && median <= max);
        }
    }
    let modes: Vec<_> = of("rank-leaf", true).iter().map(|row| row.text("mode").unwrap()).collect();
    // Bursts without AVX-512 have a row of their own where it can be done without.
    assert_eq!(modes[..2], ["single", "burst"]);
    assert!(modes[2..].iter().all(|mode| *mode == "burst, AVX2"), "{modes:?}");
    assert!(of("chosen", false)[0].text("picked").is_some());
    let picture = super::plot("tables", &rows).svg();
    assert!(picture.contains("sequential keys") && picture.contains("NC"));
}

#[test]
fn limits_are_named() {
    let table = Dataset::ASN.load(Path::new("/nonexistent")).unwrap().table;
    for scheme in [Scheme::D20R, Scheme::Poptrie18, Scheme::SailL, Scheme::Dir24_8] {
        let limit = Builder::Scheme(scheme).build(&table).unwrap_err();
        assert!(limit.contains(scheme.name()) && limit.contains("labels"), "{limit}");
    }
}

#[test]
fn a_wrong_layout_fails_the_scenario() {
    let data = Dataset::PRIVATE.load(Path::new("/nonexistent")).unwrap();
    let other = Dataset::ALLOW_100K.load(Path::new("/nonexistent")).unwrap();
    let lookups = Lookups::compile().unwrap();
    let contender = CONTENDERS.iter().find(|contender| contender.name == "d16x4r").unwrap();
    let (builder, ways) = contender.resolve(&data.table, Scale::Full).unwrap();
    let entrant = |built: Built| Entrant {
        layout: "d16x4r",
        mode: ways[0].mode.to_owned(),
        find: lookups.find(&ways[0], Family::Ipv4).unwrap(),
        find_labels: None,
        bytes: built.size(),
        built: Some(Rc::new(built)),
        build_s: Spread::of(vec![0.0]).unwrap(),
    };
    let keys = Keys::edges(&data, 100);
    let right = Oracle::new(&data.table).unwrap().labels(&keys, 1).unwrap();
    race::check(&data, &[entrant(builder.build(&data.table).unwrap())], &keys, &right).unwrap();
    let wrong = race::check(&data, &[entrant(builder.build(&other.table).unwrap())], &keys, &right).unwrap_err();
    let wrong = wrong.to_string();
    assert!(wrong.contains("d16x4r") && wrong.contains("255.255.255.255") && wrong.contains("private"), "{wrong}");
}

#[test]
fn layouts_of_both_families_are_compared() {
    let data = Dataset::COUNTRY6.load(Path::new("/nonexistent")).unwrap();
    let lookups = Lookups::compile().unwrap();
    let keys = Keys::edges(&data, 5000);
    let right = Oracle::new(&data.table).unwrap().labels(&keys, 7).unwrap();
    for contender in CONTENDERS.iter().filter(|contender| contender.family == Family::Ipv6) {
        let (builder, ways) = contender.resolve(&data.table, Scale::Full).unwrap();
        let built = match builder.build(&data.table) {
            Ok(built) => built,
            Err(limit) => {
                assert!(["exact-set6", "exact-sets6", "exact-leaf6"].contains(&contender.name), "{limit}");
                continue;
            }
        };
        for way in &ways {
            let mut labels = vec![u32::MAX; keys.len()];
            lookups.find(way, Family::Ipv6).unwrap().run(built.bytes(), &keys, &mut labels);
            race::compare(contender.name, &keys, &labels, &right).unwrap();
        }
    }
}

/// A table of these prefixes with `labels` labels in turn. Without labels it is a set.
fn made_up(prefixes: impl Iterator<Item = (IpAddr, u8)>, labels: usize) -> Table {
    let mut prefixes = prefixes.peekable();
    let family =
        if prefixes.peek().is_some_and(|(address, _)| address.is_ipv6()) { Family::Ipv6 } else { Family::Ipv4 };
    let mut entries = Entries::new(family, if labels == 0 { Kind::Set } else { Kind::Labels });
    for (index, (address, length)) in prefixes.enumerate() {
        let label = (labels > 0).then(|| (index % labels).to_string());
        entries.insert_prefix(address, length, label.as_deref()).unwrap();
    }
    entries.settle()
}

/// `count` prefixes of a length in 2a00::/12 or 10.0.0.0/8: one in `apart`, so that 1 gives neighbours.
fn spread6(count: u128, length: u8, apart: u128) -> impl Iterator<Item = (IpAddr, u8)> {
    let address = move |index: u128| Ipv6Addr::from(0x2a00 << 112 | (index * apart) << (128 - length));
    (0..count).map(move |index| (address(index).into(), length))
}

fn spread4(count: u32, length: u8, apart: u32) -> impl Iterator<Item = (IpAddr, u8)> {
    let address = move |index: u32| Ipv4Addr::from(0x0a00_0000 | (index * apart) << (32 - length));
    (0..count).map(move |index| (address(index).into(), length))
}

#[test]
fn what_the_compiler_expects_of_a_layout_is_what_is_built() {
    let invented = [Dataset::COUNTRY6, Dataset::BLOCK6_178K, Dataset::COUNTRY, Dataset::BLOCK_178K, Dataset::PRIVATE];
    let invented = invented.map(|dataset| (dataset.name, dataset.load(Path::new("/nonexistent")).unwrap().table));
    let nested = || spread6(200, 32, 3).chain(spread6(20_000, 48, 5)).chain(spread6(20_000, 64, 1 << 15));
    let shapes = [
        ("sparse allocations", made_up(spread6(5000, 32, 9), 200)),
        ("dense /48s", made_up(spread6(60_000, 48, 1), 250)),
        ("dense /48s, many labels", made_up(spread6(60_000, 48, 1), 50_000)),
        ("/64s of one network", made_up(spread6(60_000, 64, 2), 0)),
        ("/64s far apart", made_up(spread6(20_000, 64, (1 << 30) + 77), 0)),
        ("nested", made_up(nested(), 30)),
        ("nested set", made_up(nested(), 0)),
        ("one", made_up(spread6(1, 128, 1), 0)),
        ("dense /24s", made_up(spread4(60_000, 24, 1), 60_000)),
        ("regular addresses", made_up(spread4(60_000, 32, 16), 0)),
    ];
    let mut wrong = Vec::new();
    for (name, table) in invented.into_iter().chain(shapes) {
        let images = chosen::images(&[&table], &CostModel::default()).unwrap();
        let Reason::Cheapest(estimates) = &images[0].reason else { panic!("{:?}", images[0].reason) };
        assert!(!estimates.is_empty());
        for estimate in estimates {
            let built = table.build(estimate.layout).unwrap().as_bytes().len();
            let ratio = estimate.bytes as f64 / built as f64;
            if !(0.9..=1.1).contains(&ratio) {
                wrong.push(format!("{name} as {}: {} expected, {built} built", estimate.layout.name(), estimate.bytes));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_choice_is_judged_against_every_other_layout() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("own-ipv6.csv"), "2001:db8::/32,HR\n2001:db8:1::/48,SI\n").unwrap();
    let of = |arguments: &[&str]| {
        let mut options = options(arguments);
        options.data = directory.path().to_owned();
        choice::run(&Plan::new(&choice::SCENARIO, &options)?)
    };
    let rows = of(&["--table", "own-ipv6", "--table", "few4"]).unwrap();
    for (table, source, layouts) in
        [("own-ipv6", "file", ["rank-leaf6", "range6"]), ("few4", "synthetic", ["rank-leaf", "d16x4r"])]
    {
        for keys in ["entries", "random", "both"] {
            let of_cell = |row: &&Row| (row.text("table"), row.text("keys")) == (Some(table), Some(keys));
            let cell: Vec<&Row> = rows.iter().filter(of_cell).collect();
            let mut found: Vec<&str> = cell.iter().map(|row| row.text("layout").unwrap()).collect();
            found.sort_unstable_by(|one, other| other.cmp(one));
            assert_eq!(found, layouts, "{table} {keys}");
            assert_eq!(cell.iter().filter(|row| row.text("chosen") == Some("yes")).count(), 1);
            assert!(cell.iter().any(|row| row.get("over_best") == Some(1.0)));
            for row in cell {
                assert_eq!(row.text("source"), Some(source));
                assert!(row.get("bytes").is_none_or(|bytes| row.get("expected_bytes") == Some(bytes)));
            }
        }
    }
    for (arguments, complaint) in [(["--table", "own"], "own-ipv6"), (["--layout", "range6"], "takes no --layout")] {
        let failure = of(&arguments).unwrap_err().to_string();
        assert!(failure.contains(complaint), "{failure}");
    }
}
