//! The tables and lists that the caller loads to implement [`crate::catalog::Catalog`].

use super::Checker;
use super::table::table_type;
use crate::catalog::Family;
use crate::checked::TableKind;
use crate::source::{SourceMap, Span};
use crate::syntax::tree::{Item, LimitsSetting, ListFile, TableSetting};
use crate::syntax::{Parsed, resolve};
use weir_abi::Limit;

/// A table as declared.
#[derive(Clone, Debug)]
pub struct TableSource {
    /// Its name.
    pub name: String,
    /// Where the name is written.
    pub span: Span,
    /// Family of its prefixes.
    pub family: Family,
    /// Whether entries carry labels.
    pub kind: TableKind,
    /// Whether it is filled while running.
    pub dynamic: bool,
    /// The elements that the policy lists.
    pub members: Vec<Members>,
    /// Its list files.
    pub files: Vec<ListSource>,
}

/// The addresses `first..=last`. An IPv4 address is in the low 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The first address.
    pub first: u128,
    /// The last address.
    pub last: u128,
    /// The label of the addresses; `None` in a set.
    pub label: Option<String>,
    /// Where they are written.
    pub span: Span,
}

impl Members {
    /// The prefix length, or `None` if the addresses are not a prefix.
    pub fn prefix_length(&self, family: Family) -> Option<u8> {
        let host = self.first ^ self.last;
        let is_prefix = host & host.wrapping_add(1) == 0 && self.first & host == 0;
        is_prefix.then(|| family.bits() - u8::try_from(128 - host.leading_zeros()).expect("at most 128"))
    }
}

/// A list of limits as declared.
#[derive(Clone, Debug)]
pub struct LimitsSource {
    /// Its name.
    pub name: String,
    /// Whether its keys are labels. Otherwise they are prefixes.
    pub of_labels: bool,
    /// The elements that the policy lists.
    pub members: Vec<LimitMembers>,
    /// Its list files.
    pub files: Vec<ListSource>,
}

/// An element of a list of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitMembers {
    /// The prefix or label.
    pub key: LimitKey,
    /// The limit.
    pub limit: Limit,
    /// Where it is written.
    pub span: Span,
    /// The citation of the span: `edge.weir:12`.
    pub citation: String,
}

/// The key of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitKey {
    /// A prefix.
    Prefix {
        /// Its family.
        family: Family,
        /// Its first address. An IPv4 address is in the low 32 bits.
        first: u128,
        /// Its length.
        length: u8,
    },
    /// A label of a table.
    Label(String),
}

/// A list file.
#[derive(Clone, Debug)]
pub struct ListSource {
    /// The path as written.
    pub written: String,
    /// The path, relative to the same directory as the name of the main file.
    pub path: String,
    /// The field of a MaxMind database.
    pub field: Option<String>,
    /// Whether bad lines are skipped and counted.
    pub lenient: bool,
    /// The setting in the policy.
    pub span: Span,
}

impl Parsed {
    /// The tables to load, each name once. Invalid tables and elements are left out; [`super::check`] reports them.
    pub fn tables(&self, sources: &SourceMap) -> Vec<TableSource> {
        let mut checker = Checker::new(self);
        checker.declare_names();
        let mut tables: Vec<TableSource> = Vec::new();
        for item in checker.items.clone() {
            let Item::Table(table) = item else { continue };
            let first = checker.tables.get(table.name.text.as_str()).is_some_and(|d| d.span == table.name.span);
            let Some((family, kind)) = table_type(table).filter(|_| first) else { continue };
            let elements = checker.elements(table, family, |_, _| ());
            let label = |label: &str| (kind == TableKind::Labels).then(|| label.to_owned());
            let members = elements.ranges.iter().zip(&elements.labels).map(|(range, text)| Members {
                first: range.first,
                last: range.last,
                label: label(text),
                span: range.span,
            });
            let files = table.settings.iter().filter_map(|setting| match setting {
                TableSetting::File(file) => Some(list_source(file, sources)),
                _ => None,
            });
            tables.push(TableSource {
                name: table.name.text.clone(),
                span: table.name.span,
                family,
                kind,
                dynamic: table.settings.iter().any(|setting| matches!(setting, TableSetting::Dynamic(_))),
                members: members.collect(),
                files: files.collect(),
            });
        }
        tables
    }

    /// The lists of limits to load, each name once. Invalid lists and elements are left out; [`super::check`] reports
    /// them.
    pub fn limits(&self, sources: &SourceMap) -> Vec<LimitsSource> {
        let mut checker = Checker::new(self);
        checker.declare_names();
        let mut lists: Vec<LimitsSource> = Vec::new();
        for item in checker.items.clone() {
            let Item::Limits(limits) = item else { continue };
            if checker.limits.get(limits.name.text.as_str()).is_none_or(|d| d.span != limits.name.span) {
                continue;
            }
            let members = checker.limit_members(limits);
            let files = limits.settings.iter().filter_map(|setting| match setting {
                LimitsSetting::File(file) => Some(list_source(file, sources)),
                _ => None,
            });
            let of_labels = limits.settings.iter().any(|setting| matches!(setting, LimitsSetting::Table(_)));
            let members =
                members.into_iter().map(|member| LimitMembers { citation: sources.cite(member.span), ..member });
            lists.push(LimitsSource {
                name: limits.name.text.clone(),
                of_labels,
                members: members.collect(),
                files: files.collect(),
            });
        }
        lists
    }
}

fn list_source(file: &ListFile, sources: &SourceMap) -> ListSource {
    ListSource {
        written: file.path.text.clone(),
        path: resolve(&sources.file(file.span.file).name, &file.path.text),
        field: file.field.as_ref().map(|field| field.text.clone()),
        lenient: file.lenient.is_some(),
        span: file.span,
    }
}
