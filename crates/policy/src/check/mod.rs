//! The second stage: names, types and bounds.
//!
//! Checks everything and reports all that is wrong, each with its place. Each mistake is reported once: what hangs on a wrong
//! name or value is skipped silently.

mod constants;
mod declare;
mod define;
mod limits;
mod overlap;
mod reach;
mod rule;
mod satisfy;
mod shadow;
mod sources;
mod table;
mod value;

pub use constants::name_of;
pub use sources::{LimitKey, LimitMembers, LimitsSource, ListSource, Members, TableSource};

use crate::catalog::Catalog;
use crate::checked::{Checked, LabelId, Limits, LimitsId, Table, TableId};
use crate::diag::{Diagnostic, Severity, nearest};
use crate::source::{SourceMap, Span};
use crate::syntax::Parsed;
use crate::syntax::tree::Item;
use std::collections::{HashMap, HashSet};

/// Tables, and lists of limits, of a policy.
pub const TABLES_MAX: usize = 1024;
/// Limit statements that have buckets of their own: those of different postures share them.
pub const LIMITERS_MAX: usize = 1024;
/// Named postures of a policy.
pub const POSTURES_MAX: usize = 64;
/// Matches of one rule.
pub const MATCHES_MAX: usize = 64;
/// Statements of one rule.
pub const STATEMENTS_MAX: usize = 16;
/// Ranges that one set in a rule may come to; beyond that its code takes compilers minutes, and a table is faster.
pub const SET_RANGES_MAX: usize = 4096;
/// The same for sets of values of more than 64 bits, which are compared one after the other.
pub const WIDE_SET_RANGES_MAX: usize = 256;
/// Definitions that may stand inside one another.
pub const DEFINE_DEPTH_MAX: usize = 32;
/// Elements of all sets of a policy together, after `$NAME` has been replaced by what it stands for.
pub const ELEMENTS_MAX: usize = 4 << 20;
/// Errors, and warnings, reported.
pub const REPORTED_MAX: usize = 200;
/// Errors before the one that still gets a "did you mean".
const SUGGESTIONS_MAX: usize = 50;
/// Errors, and warnings, kept until they are sorted.
const KEPT_MAX: usize = 5 * REPORTED_MAX;

/// Checks a policy. The error holds everything that is wrong with it, syntax errors included, in the order of the text.
pub fn check(parsed: &Parsed, sources: &SourceMap, catalog: &dyn Catalog) -> Result<Checked, Vec<Diagnostic>> {
    let mut checker = Checker::new(parsed);
    checker.declare_names();
    let tables = checker.tables(catalog);
    let limits = checker.limits(catalog, &tables);
    let defaults = checker.defaults();
    let on_exit = checker.on_exit();
    let postures = checker.postures(sources, Scope { tables: &tables, limits: &limits });
    checker.refuse_empty(&postures);
    checker.bound_limiters(&postures);
    if !checker.has_errors() {
        checker.warn_of_unused();
        let keyword = checker.items.iter().find_map(|item| match item {
            Item::Direction(direction) => Some(direction.keyword),
            _ => None,
        });
        checker.warn_of_missing(&postures, keyword);
    }
    let mut diagnostics = parsed.diagnostics.clone();
    diagnostics.append(&mut checker.errors);
    diagnostics.append(&mut checker.warnings);
    let diagnostics = presentable(diagnostics);
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        return Err(diagnostics);
    }
    Ok(Checked { name: policy_name(sources), tables, limits, defaults, on_exit, postures, warnings: diagnostics })
}

/// The main file's name without directory and extension.
fn policy_name(sources: &SourceMap) -> String {
    let path = &sources.file(crate::source::FileId(0)).name;
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem }).to_owned()
}

/// In the order of the text, each once, and not too many. With errors the warnings go: they may only be consequences.
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

/// The error has been reported, or is a consequence of one that has.
#[derive(Clone, Copy, Debug)]
struct Reported;

/// What a checking function gives.
type Check<T> = Result<T, Reported>;

/// A declared name and whether anything refers to it.
struct Declared<T> {
    span: Span,
    used: bool,
    what: T,
}

struct Checker<'a> {
    parsed: &'a Parsed,
    items: Vec<&'a Item>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    tables: HashMap<&'a str, Declared<TableId>>,
    limits: HashMap<&'a str, Declared<LimitsId>>,
    /// The ids of each table's labels.
    labels: Vec<HashMap<String, LabelId>>,
    /// The labels that the policy writes in each table: those of wrong elements are not in the catalog.
    written_labels: Vec<HashSet<&'a str>>,
    defines: HashMap<&'a str, Declared<define::Definition<'a>>>,
    /// Elements that may still be expanded.
    elements_left: usize,
    /// Whether the policy says itself what happens to packets that no rule decides.
    declared_no_match: bool,
}

impl<'a> Checker<'a> {
    fn new(parsed: &'a Parsed) -> Self {
        Checker {
            parsed,
            items: parsed.items(),
            errors: Vec::new(),
            warnings: Vec::new(),
            tables: HashMap::new(),
            limits: HashMap::new(),
            labels: Vec::new(),
            written_labels: Vec::new(),
            defines: HashMap::new(),
            elements_left: ELEMENTS_MAX,
            declared_no_match: false,
        }
    }

    fn report(&mut self, error: Diagnostic) -> Reported {
        if self.errors.len() < KEPT_MAX {
            self.errors.push(error);
        }
        Reported
    }

    fn warn(&mut self, warning: Diagnostic) {
        if self.warnings.len() < KEPT_MAX {
            self.warnings.push(warning);
        }
    }

    fn has_errors(&self) -> bool {
        self.parsed.has_errors() || !self.errors.is_empty()
    }

    /// Reports a name that nothing declares, unless what declares it may be in a file that could not be read.
    fn unknown<'n>(
        &mut self,
        error: Diagnostic,
        name: &str,
        sigil: &str,
        known: impl Iterator<Item = &'n str>,
    ) -> Reported {
        if self.parsed.incomplete {
            return Reported;
        }
        let near = if self.errors.len() < SUGGESTIONS_MAX { nearest(name, known) } else { None };
        self.report(match near {
            Some(near) => error.help(format!("did you mean `{sigil}{near}`?")),
            None => error,
        })
    }

    fn warn_of_unused(&mut self) {
        let unused = |span: Span, code, what: String| {
            Diagnostic::warning(code, span, format!("{what} is never used")).help("refer to it in a rule, or remove it")
        };
        let mut warnings = Vec::new();
        for (name, declared) in self.tables.iter().filter(|(_, d)| !d.used) {
            warnings.push(unused(declared.span, "W0404", format!("the table `{name}`")));
        }
        for (name, declared) in self.defines.iter().filter(|(_, d)| !d.used) {
            warnings.push(unused(declared.span, "W0405", format!("the definition `{name}`")));
        }
        for (name, declared) in self.limits.iter().filter(|(_, d)| !d.used) {
            warnings.push(unused(declared.span, "W0406", format!("the list of limits `{name}`")));
        }
        warnings.sort_by_key(|warning| warning.span);
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }
}

/// What rules can refer to.
#[derive(Clone, Copy)]
struct Scope<'s> {
    tables: &'s [Table],
    limits: &'s [Limits],
}
