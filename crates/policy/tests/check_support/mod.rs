//! A front end for tests: parse, answer for the tables without opening a list, check, render.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::HashMap;
use std::path::PathBuf;
use weir_policy::catalog::{Catalog, TableFacts};
use weir_policy::check::{Members, TableSource, check};
use weir_policy::checked::{Checked, TableKind};
use weir_policy::diag::Diagnostic;
use weir_policy::source::{Source, SourceMap};
use weir_policy::syntax::{Includes, Parsed, parse};

/// Labels of every table that has a list file.
const FILE_LABELS: [&str; 4] = ["HR", "SI", "AT", "DE"];

/// Facts of the elements in the policy, and of 1000 made-up entries for each list file: single addresses, in maps /24s.
pub struct Fixture(HashMap<String, TableFacts>);

impl Fixture {
    pub fn of(tables: &[TableSource]) -> Self {
        Fixture(tables.iter().map(|table| (table.name.clone(), facts(table))).collect())
    }
}

impl Catalog for Fixture {
    fn table(&self, name: &str) -> Option<&TableFacts> {
        self.0.get(name)
    }
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

/// Everything from text to checked policy.
pub fn front(name: &str, text: &str, includes: &dyn Includes) -> (SourceMap, Parsed, Result<Checked, Vec<Diagnostic>>) {
    let (sources, parsed) = parse(Source::new(name, text), includes);
    let catalog = Fixture::of(&parsed.tables(&sources));
    let checked = check(&parsed, &sources, &catalog);
    (sources, parsed, checked)
}
