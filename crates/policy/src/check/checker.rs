//! The state of a check: what a policy declares, and the errors and warnings so far. Other files of this folder add
//! the checks.

use super::bounds::{ELEMENTS_MAX, REPORTED_MAX};
use super::definition::Definition;
use crate::checked::{Fallback, LabelId, Limits, LimitsId, RuleSlotId, Table, TableId};
use crate::diag::{Diagnostic, nearest};
use crate::source::Span;
use crate::syntax::Parsed;
use crate::syntax::tree::Item;
use std::collections::{HashMap, HashSet};

/// Number of errors that may get a "did you mean". Later ones get none.
const SUGGESTIONS_MAX: usize = 50;
/// Maximum number of errors, and of warnings, kept until they are sorted.
const KEPT_MAX: usize = 5 * REPORTED_MAX;

/// The error has been reported, or is a consequence of a reported one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

/// What a checking function returns.
pub(super) type Check<T> = Result<T, Reported>;

/// A declared name: its target, and whether anything refers to it.
pub(super) struct Declared<T> {
    pub span: Span,
    pub used: bool,
    pub target: T,
}

/// The state of one check.
pub(super) struct Checker<'a> {
    pub parsed: &'a Parsed,
    pub items: Vec<&'a Item>,
    pub errors: Vec<Diagnostic>,
    pub warnings: Vec<Diagnostic>,
    pub tables: HashMap<&'a str, Declared<TableId>>,
    pub limits: HashMap<&'a str, Declared<LimitsId>>,
    pub rule_slots: HashMap<&'a str, Declared<RuleSlotId>>,
    /// The label ids of each table.
    pub labels: Vec<HashMap<String, LabelId>>,
    /// The labels that the policy writes in each table. The catalog lacks the labels of invalid elements.
    pub written_labels: Vec<HashSet<&'a str>>,
    pub defines: HashMap<&'a str, Declared<Definition<'a>>>,
    /// Number of elements that may still be expanded.
    pub elements_left: usize,
    /// Whether the policy sets `no-match`.
    pub declared_no_match: bool,
    /// The default of packets from outside with an inside source, if the policy writes it, and where.
    pub spoofed: Option<(Fallback, Span)>,
}

impl<'a> Checker<'a> {
    /// Starts a check.
    pub fn new(parsed: &'a Parsed) -> Self {
        Checker {
            parsed,
            items: parsed.items(),
            errors: Vec::new(),
            warnings: Vec::new(),
            tables: HashMap::new(),
            limits: HashMap::new(),
            rule_slots: HashMap::new(),
            labels: Vec::new(),
            written_labels: Vec::new(),
            defines: HashMap::new(),
            elements_left: ELEMENTS_MAX,
            declared_no_match: false,
            spoofed: None,
        }
    }

    /// Records an error.
    pub fn report(&mut self, error: Diagnostic) -> Reported {
        if self.errors.len() < KEPT_MAX {
            self.errors.push(error);
        }
        Reported
    }

    /// Records a warning.
    pub fn warn(&mut self, warning: Diagnostic) {
        if self.warnings.len() < KEPT_MAX {
            self.warnings.push(warning);
        }
    }

    /// Whether the policy has errors so far, including syntax errors.
    pub fn has_errors(&self) -> bool {
        self.parsed.has_errors() || !self.errors.is_empty()
    }

    /// Reports an undeclared name, unless its declaration may be in a file that could not be read.
    pub fn unknown<'n>(
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

    /// Warns about declared names that nothing uses.
    pub fn warn_of_unused(&mut self) {
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
        for (name, declared) in self.rule_slots.iter().filter(|(_, d)| !d.used) {
            warnings.push(unused(declared.span, "W0416", format!("the slot `{name}`")));
        }
        warnings.sort_by_key(|warning| warning.span);
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }
}

/// The tables and lists that rules can refer to.
#[derive(Clone, Copy)]
pub(super) struct Scope<'s> {
    pub tables: &'s [Table],
    pub limits: &'s [Limits],
}
