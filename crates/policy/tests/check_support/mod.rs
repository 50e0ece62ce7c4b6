//! A front end for tests: parses, checks and renders, with invented facts instead of list files.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::HashMap;
use std::path::PathBuf;
use weir_abi::Layout;
use weir_policy::catalog::{Catalog, Family, ImageFacts, LimitsFacts, PrefixCounts, TableFacts};
use weir_policy::check::{LimitKey, LimitsSource, Members, TableSource, check};
use weir_policy::checked::{Checked, TableKind};
use weir_policy::diag::Diagnostic;
use weir_policy::source::{Source, SourceMap};
use weir_policy::syntax::{Includes, Parsed, parse};

/// Labels of every table that has a list file.
const FILE_LABELS: [&str; 4] = ["HR", "SI", "AT", "DE"];

/// Facts of the elements in the policy, and of 1000 invented entries for each list file. Sets have single addresses,
/// maps have /24s, and lists of limits have 500 /24s and 500 /48s.
pub struct Fixture {
    tables: HashMap<String, TableFacts>,
    limits: HashMap<String, LimitsFacts>,
}

impl Fixture {
    pub fn of(tables: &[TableSource], limits: &[LimitsSource]) -> Self {
        Fixture {
            tables: tables.iter().map(|table| (table.name.clone(), facts(table))).collect(),
            limits: limits.iter().map(|limits| (limits.name.clone(), limits_facts(limits))).collect(),
        }
    }
}

impl Catalog for Fixture {
    fn table(&self, name: &str) -> Option<&TableFacts> {
        self.tables.get(name)
    }

    fn limits(&self, name: &str) -> Option<&LimitsFacts> {
        self.limits.get(name)
    }

    fn image(&self, _: &[&str], layout: Layout) -> Option<ImageFacts> {
        Some(image(layout))
    }

    fn limits_image(&self, _: &str, _: Family, layout: Layout) -> Option<ImageFacts> {
        Some(image(layout))
    }
}

/// Facts of a small image.
fn image(layout: Layout) -> ImageFacts {
    ImageFacts { layout, bytes: 1 << 19, words: 4.0, lines: 4.0 }
}

fn facts(table: &TableSource) -> TableFacts {
    let bits = usize::from(table.family.bits());
    let mut facts = TableFacts { by_length: vec![0; bits + 1], ..TableFacts::default() };
    for Members { label, .. } in &table.members {
        let length = table.members[0].prefix_length(table.family).map_or(24, usize::from);
        facts.entries += 1;
        facts.by_length[length] += 1;
        facts.labels.extend(label.clone().filter(|label| !facts.labels.contains(label)));
    }
    for _ in &table.files {
        facts.entries += 1000;
        let labelled = table.kind == TableKind::Labels;
        facts.by_length[if labelled { 24 } else { bits }] += 1000;
        let labels = FILE_LABELS.iter().filter(|_| labelled).map(|&label| label.to_owned());
        facts.labels.extend(labels);
    }
    facts
}

fn limits_facts(limits: &LimitsSource) -> LimitsFacts {
    let counts = |family: Family, length: usize| {
        let mut by_length = vec![0; usize::from(family.bits()) + 1];
        for member in &limits.members {
            match member.key {
                LimitKey::Prefix { family: of, length, .. } if of == family => by_length[usize::from(length)] += 1,
                _ => {}
            }
        }
        by_length[length] += 500 * limits.files.len();
        PrefixCounts { entries: by_length.iter().sum(), by_length }
    };
    let rates = limits.members.len() + limits.files.len();
    LimitsFacts { v4: counts(Family::Ipv4, 24), v6: counts(Family::Ipv6, 48), labels: 0, rates }
}

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads includes from a directory.
pub struct Directory(pub PathBuf);

impl Includes for Directory {
    fn read(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(self.0.join(path)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "no such file".to_owned(),
            _ => error.to_string(),
        })
    }
}

/// Runs all stages from text to checked policy.
pub fn front(name: &str, text: &str, includes: &dyn Includes) -> (SourceMap, Parsed, Result<Checked, Vec<Diagnostic>>) {
    let (sources, parsed) = parse(Source::new(name, text), includes);
    let catalog = Fixture::of(&parsed.tables(&sources), &parsed.limits(&sources));
    let checked = check(&parsed, &sources, &catalog);
    (sources, parsed, checked)
}
