//! What the policy compiler picks for a table, asked as any policy asks: one table, one rule.

use crate::failure::Failure;
use weir_abi::{Family, Layout};
use weir_policy::catalog::{Catalog, TableFacts};
use weir_policy::pipeline;
use weir_policy::source::Source;
use weir_tables::{Kind, Table};

struct One(TableFacts);

impl Catalog for One {
    fn table(&self, _name: &str) -> Option<&TableFacts> {
        Some(&self.0)
    }
}

/// The layout that a policy would have with the table.
///
/// # Errors
/// The compiler refuses the policy.
pub fn layout(table: &Table) -> Result<Layout, Failure> {
    let (ip, family) = match table.family() {
        Family::Ipv4 => ("ip", "ipv4"),
        Family::Ipv6 => ("ip6", "ipv6"),
    };
    let (kind, label) = match table.kind() {
        Kind::Set => ("", ""),
        Kind::Labels => (" : label", " { l1 }"),
    };
    let text = format!(
        "table t {{ type {family}{kind}; file \"t\" }}\nupstream {{ {ip} saddr @t{label} drop; accept }}\ndownstream {{ accept }}\n"
    );
    let catalog = One(TableFacts {
        entries: table.facts().entries,
        by_length: table.facts().by_length.clone(),
        // Their names matter to nobody, and real ones may need quotes.
        labels: (1..=table.labels().len()).map(|label| format!("l{label}")).collect(),
    });
    let (sources, parsed) =
        pipeline::parse(Source::new("bench.weir".to_owned(), text), &|path: &str| Err(format!("{path}: not there")));
    let checked = pipeline::check(&parsed, &sources, &catalog).map_err(|diagnostics| {
        let first = diagnostics.first().map(|diagnostic| diagnostic.message.clone()).unwrap_or_default();
        Failure::Runtime(format!("bench tables: the compiler refuses the table: {first}"))
    })?;
    let lowered = pipeline::lower(&checked, &sources);
    Ok(lowered.program.slots.first().expect("the policy has one table and uses it").layout)
}
