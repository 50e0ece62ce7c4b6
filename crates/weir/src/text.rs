//! A policy that was read as text, with its lists: what images are built of, and what interpreters ask.

use crate::limits;
use crate::lists::ListOfLimits;
use std::path::PathBuf;
use std::sync::Arc;
use weir_abi::{Family, LimitEntries};
use weir_policy::checked::{Checked, LimitsId, LimitsOf, TableId};
use weir_policy::ir::lower::Lowered;
use weir_policy::ir::{LimiterKind, Program};
use weir_policy::pass::choose_layouts::{Planned, Planning};
use weir_policy::source::SourceMap;
use weir_tables::limit_image::NESTING_MAX;
use weir_tables::{Image, LimitTable, Nesting, Reference, Table};

/// A policy that was read as text.
pub struct Text {
    /// Its files.
    pub sources: SourceMap,
    /// What it means.
    pub checked: Checked,
    /// Its program, with the rules' places.
    pub lowered: Lowered,
    /// Its tables, in order of declaration; `lowered.plan` says which slot has which.
    pub tables: Vec<Table>,
    /// Its lists of limits, in order of declaration.
    pub limits: Vec<ListOfLimits>,
    /// Its files, those of its lists among them.
    pub files: Vec<PathBuf>,
    /// What reading the lists had to say.
    pub notices: Vec<String>,
}

impl Text {
    /// The ground truth of what an image holds.
    pub(crate) fn references(&self, image: &Planned) -> Vec<Arc<Reference>> {
        match &image.holds {
            Planning::Tables(tables) => {
                tables.iter().map(|id| Arc::new(self.tables[usize::from(id.0)].reference())).collect()
            }
            Planning::Limits(list, family) => vec![Arc::new(self.prefixes(*list).reference(*family))],
        }
    }

    /// Builds an image.
    ///
    /// # Errors
    /// What it holds does not fit its layout.
    pub(crate) fn build(&self, image: &Planned) -> Result<Image, String> {
        let tables = match &image.holds {
            Planning::Tables(tables) => tables,
            Planning::Limits(list, family) => {
                let built = self.prefixes(*list).build(*family, image.layout);
                return built
                    .map_err(|error| format!("limits {}: {error}", self.checked.limits[usize::from(list.0)].name));
            }
        };
        let members: Vec<&Table> = tables.iter().map(|id| &self.tables[usize::from(id.0)]).collect();
        let built = match members.as_slice() {
            [one] => one.build(image.layout),
            fused => weir_tables::exact_sets(fused),
        };
        let name = |id: &TableId| self.checked.tables[usize::from(id.0)].name.as_str();
        built.map_err(|error| format!("table {}: {error}", tables.iter().map(name).collect::<Vec<_>>().join("+")))
    }

    fn prefixes(&self, list: LimitsId) -> &LimitTable {
        match &self.limits[usize::from(list.0)] {
            ListOfLimits::Prefixes(table) => table,
            ListOfLimits::Labels(_) => panic!("compiler bug: an image of a list of labels"),
        }
    }

    /// What each limiter polices by; limiters of the same list share it.
    pub(crate) fn limit_entries(&self, program: &Program) -> Vec<Arc<LimitEntries>> {
        let mut known: Vec<(&str, LimiterKind, Arc<LimitEntries>)> = Vec::new();
        let mut all = Vec::with_capacity(program.limiters.len());
        for limiter in &program.limiters {
            let (name, kind) = (limiter.name.as_str(), limiter.kind);
            let found = known.iter().find(|(other, of, _)| (*other, *of) == (name, kind));
            let entries = match found {
                Some((_, _, entries)) => Arc::clone(entries),
                None => Arc::new(self.entries_of(name, kind)),
            };
            if found.is_none() {
                known.push((name, kind, Arc::clone(&entries)));
            }
            all.push(entries);
        }
        all
    }

    fn entries_of(&self, name: &str, kind: LimiterKind) -> LimitEntries {
        let list = || {
            let index = self.checked.limits.iter().position(|list| list.name == name);
            let index = index.expect("a limiter's list is declared");
            (&self.checked.limits[index], &self.limits[index])
        };
        match kind {
            LimiterKind::Rate(limit) => LimitEntries::single(limit.profile()),
            LimiterKind::Each(each) => LimitEntries::single(limits::each_profile(&each)),
            LimiterKind::Prefixes { family, nested } => {
                let (checked, ListOfLimits::Prefixes(table)) = list() else {
                    panic!("compiler bug: `{name}` is a list of labels")
                };
                table.entries(family, if nested { Nesting::Nested } else { Nesting::Flat }, checked.default)
            }
            LimiterKind::Labels => {
                let (checked, ListOfLimits::Labels(rates)) = list() else {
                    panic!("compiler bug: `{name}` is a list of prefixes")
                };
                let LimitsOf::Labels(table) = checked.of else { panic!("compiler bug: `{name}` names no table") };
                rates.entries(self.tables[usize::from(table.0)].labels(), checked.default)
            }
        }
    }
}

/// Nested lists whose prefixes enclose each other more often than engines follow.
pub(crate) fn too_deep(checked: &Checked, limits: &[ListOfLimits]) -> Vec<String> {
    let too_deep = |(list, held): (&weir_policy::checked::Limits, &ListOfLimits)| match (list.of, held) {
        (LimitsOf::Prefixes { nested: true }, ListOfLimits::Prefixes(table)) => {
            let depth = [Family::Ipv4, Family::Ipv6].map(|family| table.depth(family)).into_iter().max().unwrap_or(0);
            let problem =
                format!("limits {}: {depth} of its prefixes enclose each other, at most {NESTING_MAX} may", list.name);
            (depth > NESTING_MAX).then_some(problem)
        }
        _ => None,
    };
    checked.limits.iter().zip(limits).filter_map(too_deep).collect()
}

/// Labels that lists limit and their tables do not hold.
pub(crate) fn unknown_labels(checked: &Checked, limits: &[ListOfLimits], tables: &[Table]) -> Vec<String> {
    let mut notices = Vec::new();
    for (list, held) in checked.limits.iter().zip(limits) {
        let (LimitsOf::Labels(table), ListOfLimits::Labels(rates)) = (list.of, held) else { continue };
        let unknown = rates.unknown(tables[usize::from(table.0)].labels());
        if let [first, ..] = unknown[..] {
            let (table, count) = (&checked.tables[usize::from(table.0)].name, unknown.len());
            notices.push(format!(
                "limits {}: the table {table} holds {count} of its labels not, the first: {first}",
                list.name
            ));
        }
    }
    notices
}
