//! A policy's text, checked together with its lists and lowered. Images and interpreter contents are made from it.

use crate::error::{LoadError, Rejected};
use crate::lists::{ListOfLimits, Lists};
use crate::stamp::Stamps;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::Family;
use weir_policy::checked::{self, Checked, LimitKeys};
use weir_policy::ir::lower::Lowered;
use weir_policy::pass::choose_layouts::CostModel;
use weir_policy::pipeline;
use weir_policy::source::{Source, SourceMap};
use weir_policy::syntax::{Includes, Parsed};
use weir_tables::limit_image::NESTING_MAX;
use weir_tables::{Overlap, Table};

/// Durations of the steps of reading a policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Reading and parsing the policy's text.
    pub parse: Duration,
    /// Reading and parsing the lists.
    pub lists: Duration,
    /// Checking and lowering.
    pub check: Duration,
}

/// A policy that was read as text and has no errors.
pub struct Text {
    /// The source files.
    pub sources: SourceMap,
    /// The checked policy.
    pub checked: Checked,
    /// The program, with the positions of rules.
    pub lowered: Lowered,
    /// The tables, in order of declaration. `lowered.plan` assigns them to slots.
    pub tables: Vec<Arc<Table>>,
    /// The lists of limits, in order of declaration.
    pub limits: Vec<ListOfLimits>,
    /// All files that were read, including lists.
    pub files: Vec<PathBuf>,
    /// The list files, when they were read.
    pub stamps: Stamps,
    /// Notices about the lists.
    pub notices: Vec<String>,
    /// Durations of the steps.
    pub timing: Timing,
}

impl Text {
    /// Parses a policy, reads its lists, checks it and lowers it. Included files come from `includes`. Layouts are
    /// chosen for the machine in `model`.
    ///
    /// # Errors
    /// All errors in the policy and its lists, or no descriptors are left to read the lists.
    pub fn check(main: Source, includes: &dyn Includes, model: &CostModel) -> Result<Self, LoadError> {
        let mut timing = Timing::default();
        let start = Instant::now();
        let (sources, parsed) = pipeline::parse(main, includes);
        timing.parse = start.elapsed();

        let start = Instant::now();
        let (of_tables, of_limits) = (parsed.tables(&sources), parsed.limits(&sources));
        let mut lists = Lists::read(&of_tables, &of_limits);
        if let Some(error) = lists.no_descriptors.take() {
            return Err(error);
        }
        let list_files =
            of_tables.iter().flat_map(|table| &table.files).chain(of_limits.iter().flat_map(|list| &list.files));
        let mut files: Vec<PathBuf> = list_files.map(|file| PathBuf::from(&file.path)).collect();
        files.extend(sources.names().map(PathBuf::from));
        timing.lists = start.elapsed();
        Text::of(sources, &parsed, (lists, files), model, timing)
    }

    /// Checks a parsed policy with its lists, and lowers it. `files` are all files of both.
    ///
    /// # Errors
    /// All errors in the policy and its lists.
    pub(crate) fn of(
        sources: SourceMap,
        parsed: &Parsed,
        (mut lists, files): (Lists, Vec<PathBuf>),
        model: &CostModel,
        mut timing: Timing,
    ) -> Result<Self, LoadError> {
        let start = Instant::now();
        let checked = match pipeline::check(parsed, &sources, &lists) {
            Ok(checked) if lists.errors.is_empty() => checked,
            Ok(_) => return Err(Rejected { sources, diagnostics: vec![], lists: lists.errors }.into()),
            Err(diagnostics) => return Err(Rejected { sources, diagnostics, lists: lists.errors }.into()),
        };
        let lowered = pipeline::lower(&checked, &sources, &lists, model);
        timing.check = start.elapsed();

        let take = |table: &checked::Table| lists.take(&table.name).expect("check asked the catalog for it");
        let tables: Vec<Arc<Table>> = checked.tables.iter().map(take).collect();
        let take = |list: &checked::Limits| lists.take_limits(&list.name).expect("check asked the catalog for it");
        let limits: Vec<ListOfLimits> = checked.limits.iter().map(take).collect();
        let deep = too_deep(&checked, &limits);
        if !deep.is_empty() {
            return Err(Rejected { sources, diagnostics: vec![], lists: deep }.into());
        }
        let (mut notices, stamps) = (lists.notices, lists.stamps);
        notices.extend(unknown_labels(&checked, &limits, &tables));
        notices.extend(protected_entries(&checked, &tables));
        Ok(Text { sources, checked, lowered, tables, limits, files, stamps, notices, timing })
    }
}

/// Errors for nested lists whose prefixes enclose each other more often than engines support.
fn too_deep(checked: &Checked, limits: &[ListOfLimits]) -> Vec<String> {
    let too_deep = |(list, held): (&checked::Limits, &ListOfLimits)| match (list.keys, held) {
        (LimitKeys::Prefixes { nested: true }, ListOfLimits::Prefixes(table)) => {
            let depth = [Family::Ipv4, Family::Ipv6].map(|family| table.depth(family)).into_iter().max().unwrap_or(0);
            let problem =
                format!("limits {}: {depth} of its prefixes enclose each other, at most {NESTING_MAX} may", list.name);
            (depth > NESTING_MAX).then_some(problem)
        }
        _ => None,
    };
    checked.limits.iter().zip(limits).filter_map(too_deep).collect()
}

/// Notices about labels in lists of limits that their tables do not contain.
fn unknown_labels(checked: &Checked, limits: &[ListOfLimits], tables: &[Arc<Table>]) -> Vec<String> {
    let mut notices = Vec::new();
    for (list, held) in checked.limits.iter().zip(limits) {
        let (LimitKeys::Labels(table), ListOfLimits::Labels(rates)) = (list.keys, held) else { continue };
        let unknown = rates.unknown(tables[usize::from(table.0)].labels());
        if let [first, ..] = unknown[..] {
            let (table, count) = (&checked.tables[usize::from(table.0)].name, unknown.len());
            notices.push(format!(
                "limits {}: the table {table} lacks {count} of its labels, the first: {first}",
                list.name
            ));
        }
    }
    notices
}

/// Notices about tables that begin with addresses that their updates must not add.
fn protected_entries(checked: &Checked, tables: &[Arc<Table>]) -> Vec<String> {
    let mut notices = Vec::new();
    for (declared, table) in checked.tables.iter().zip(tables) {
        for protected in declared.updates.protected.iter().map(|id| usize::from(id.0)) {
            let Some(Overlap { entry, other, count }) = table.overlap(&tables[protected]) else { continue };
            let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            notices.push(format!(
                "table {}: {entry} overlaps {other} of the protected table {}{more}; only updates are refused",
                declared.name, checked.tables[protected].name
            ));
        }
    }
    notices
}
