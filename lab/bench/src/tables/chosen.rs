//! The layouts that the policy compiler chooses for tables, in a policy with one rule per table, all for the same key.

use crate::line_costs;
use crate::scale::Scale;
use std::sync::OnceLock;
use weir_abi::{Family, Layout};
use weir_command::failure::Failure;
use weir_loading::image_facts::{self, Images};
use weir_policy::catalog::{Catalog, ImageFacts, LimitsFacts, TableFacts};
use weir_policy::pass::choose_layouts::{CostModel, Planned};
use weir_policy::pipeline;
use weir_policy::source::Source;
use weir_tables::{Kind, Table};

/// Tables with their names in the policy.
struct Known<'t>(Vec<(String, &'t Table, TableFacts, Images)>);

impl Catalog for Known<'_> {
    fn table(&self, name: &str) -> Option<&TableFacts> {
        self.0.iter().find(|(known, ..)| known == name).map(|(_, _, facts, _)| facts)
    }

    fn limits(&self, _: &str) -> Option<&LimitsFacts> {
        None
    }

    fn image(&self, tables: &[&str], layout: Layout) -> Option<ImageFacts> {
        let known = |name: &&str| self.0.iter().find(|(known, ..)| known == name);
        match tables.iter().map(known).collect::<Option<Vec<_>>>()?.as_slice() {
            [(.., images)] => images.iter().find(|image| image.layout == layout).copied(),
            several => image_facts::of_sets(&several.iter().map(|(_, table, ..)| *table).collect::<Vec<_>>()),
        }
    }

    fn limits_image(&self, _: &str, _: Family, _: Layout) -> Option<ImageFacts> {
        None
    }
}

/// The measured costs of this machine. They are measured once.
pub fn model(scale: Scale) -> &'static CostModel {
    static MODEL: OnceLock<CostModel> = OnceLock::new();
    MODEL.get_or_init(|| line_costs::model(scale))
}

/// The expected cost of the chosen layout in cycles.
///
/// # Errors
/// The compiler rejects the policy.
pub fn expected_cycles(table: &Table, scale: Scale) -> Result<Option<f64>, Failure> {
    let images = images(&[table], model(scale))?;
    Ok(images.first().and_then(|image| image.reason.expected_cycles(image.layout)))
}

/// The images of a policy whose rules look up the source address in the tables.
///
/// # Errors
/// The compiler rejects the policy.
pub fn images(tables: &[&Table], model: &CostModel) -> Result<Vec<Planned>, Failure> {
    let (mut declarations, mut rules, mut known) = (String::new(), String::new(), Vec::new());
    for (index, table) in tables.iter().enumerate() {
        let (ip, family) = match table.family() {
            Family::Ipv4 => ("ip", "ipv4"),
            Family::Ipv6 => ("ip6", "ipv6"),
        };
        let (kind, label) = match table.kind() {
            Kind::Set => ("", ""),
            Kind::Labels => (" : label", " { l1 }"),
        };
        declarations += &format!("table t{index} {{ type {family}{kind}; file \"t\" }}\n");
        rules += &format!("  {ip} saddr @t{index}{label} drop\n");
        let facts = TableFacts {
            entries: table.facts().entries,
            by_length: table.facts().by_length.clone(),
            // The names of labels are irrelevant, and real names could require quotes.
            labels: (1..=table.labels().len()).map(|label| format!("l{label}")).collect(),
        };
        known.push((format!("t{index}"), *table, facts, image_facts::of_table(table)));
    }
    let text = format!("{declarations}upstream {{\n{rules}  accept\n}}\ndownstream {{ accept }}\n");
    let catalog = Known(known);
    let (sources, parsed) =
        pipeline::parse(Source::new("bench.weir".to_owned(), text), &|path: &str| Err(format!("{path}: not there")));
    let checked = pipeline::check(&parsed, &sources, &catalog).map_err(|diagnostics| {
        let first = diagnostics.first().map(|diagnostic| diagnostic.message.clone()).unwrap_or_default();
        Failure::Runtime(format!("bench tables: the compiler rejects the table: {first}"))
    })?;
    Ok(pipeline::lower(&checked, &sources, &catalog, model).plan.images)
}
