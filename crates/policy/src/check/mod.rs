//! The second stage: names, types and bounds.
//!
//! Checks the whole policy and reports all mistakes with their positions. Each mistake is reported once: consequences
//! of an invalid name or value are not reported.

mod addition;
mod bounds;
mod checker;
mod constants;
mod counters;
mod declare;
mod define;
mod definition;
mod inside;
mod limit_each;
mod limits;
mod observe;
mod overlap;
mod reach;
mod rule;
mod satisfy;
mod settings;
mod shadow;
mod slot;
mod sources;
mod synproxy;
mod table;
mod tracking;
mod updates;
mod value;

pub use bounds::{
    ADDITIONS_MAX, DEFINE_DEPTH_MAX, ELEMENTS_MAX, LIMITERS_MAX, MATCHES_MAX, POSTURES_MAX, REPORTED_MAX,
    SET_RANGES_MAX, STATEMENTS_MAX, TABLES_MAX, WIDE_SET_RANGES_MAX,
};
use checker::{Check, Checker, Declared, Reported, Scope};
pub use constants::name_of;
pub use sources::{LimitKey, LimitMembers, LimitsSource, ListSource, Members, TableSource};
pub use table::{DYNAMIC_SIZE_MAX, TIMEOUT_MS_MAX};
pub use updates::MAX_CHANGE_PERCENT_MAX;

use crate::catalog::Catalog;
use crate::checked::Checked;
use crate::diag::{Diagnostic, Severity, nearest};
use crate::source::SourceMap;
use crate::syntax::Parsed;
use crate::syntax::tree::Item;
use std::collections::HashSet;

/// Checks a policy. The error contains all mistakes, syntax errors included, in the order of the text.
pub fn check(parsed: &Parsed, sources: &SourceMap, catalog: &dyn Catalog) -> Result<Checked, Vec<Diagnostic>> {
    let mut checker = Checker::new(parsed);
    checker.declare_names();
    let mut tables = checker.tables(catalog);
    checker.updates(&mut tables);
    let limits = checker.limits(catalog, &tables);
    let rule_slots = checker.rule_slots();
    let defaults = checker.defaults();
    let on_exit = checker.on_exit();
    let mut postures = checker.postures(sources, Scope { tables: &tables, limits: &limits });
    let tracking = checker.tracking(&postures);
    let observe = checker.observe();
    let inside = checker.inside(&tables);
    checker.refuse_empty(&postures);
    checker.bound_limiters(&postures);
    checker.bound_additions(&postures);
    checker.slots_once(&postures);
    checker.bound_counters(&tables);
    if !checker.has_errors() {
        checker.warn_of_unused();
        checker.warn_of_idle_counters(&tables, &postures);
        let keyword = checker.items.iter().find_map(|item| match item {
            Item::Direction(block) => Some(block.keyword),
            _ => None,
        });
        checker.warn_of_missing(&postures, keyword);
        checker.warn_of_missing_inside(tracking.as_ref(), &postures);
    }
    inside::put_in_front(inside.as_ref(), &mut postures);
    checker.bound_rules(inside.as_ref(), &postures);
    let mut diagnostics = parsed.diagnostics.clone();
    diagnostics.append(&mut checker.errors);
    diagnostics.append(&mut checker.warnings);
    let diagnostics = presentable(diagnostics);
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        return Err(diagnostics);
    }
    Ok(Checked {
        name: policy_name(sources),
        tables,
        limits,
        rule_slots,
        defaults,
        on_exit,
        tracking,
        observe,
        inside,
        postures,
        warnings: diagnostics,
    })
}

/// The main file's name without directory and extension.
fn policy_name(sources: &SourceMap) -> String {
    let path = &sources.file(crate::source::FileId(0)).name;
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem }).to_owned()
}

/// Sorts diagnostics by position, removes duplicates and limits their number. If there are errors, warnings are
/// dropped, because they may be consequences.
fn presentable(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        diagnostics.retain(|d| d.severity == Severity::Error);
    }
    diagnostics.sort_by(|a, b| (a.span, a.code).cmp(&(b.span, b.code)));
    let mut seen = HashSet::new();
    diagnostics.retain(|d| seen.insert((d.code, d.span, d.message.clone())));
    if diagnostics.len() > REPORTED_MAX {
        let (first, more) = (&diagnostics[REPORTED_MAX], diagnostics.len() - REPORTED_MAX);
        let rest = Diagnostic {
            severity: first.severity,
            ..Diagnostic::error("E0112", first.span, format!("{more} more messages are not shown"))
        };
        diagnostics.truncate(REPORTED_MAX);
        diagnostics.push(rest);
    }
    diagnostics
}
