//! The syntax tree: what was written, where. It knows no names and no types; [`crate::check`] does.
//!
//! One idea with `tree/limits.rs` and `tree/values.rs`: the types of a tree contain one another.

mod limits;
mod values;

pub use limits::{Exceed, Limit, LimitEach, LimitElement, Limits, LimitsSetting, Log};
pub use values::{Atom, AtomKind, Operand, Value, Values};

use crate::diag::{Diagnostic, Severity};
use crate::source::{FileId, Span};
use weir_abi::Action;

/// A policy as it was written: its files, and what was wrong with their syntax.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The main file first, then the included ones in the order of their [`FileId`].
    pub files: Vec<File>,
    /// Syntax errors. What they touch is missing from the tree; the rest can still be checked.
    pub diagnostics: Vec<Diagnostic>,
    /// Whether an included file could not be read, so that a name that seems unknown may be in it.
    pub incomplete: bool,
}

impl Parsed {
    /// All items but the includes, in the order in which an included file stands where its `include` does.
    pub fn items(&self) -> Vec<&Item> {
        let mut items = Vec::new();
        // An included file's id is always above its includer's, so this ends.
        let mut stack: Vec<std::slice::Iter<'_, Item>> =
            self.files.first().map(|f| f.items.iter()).into_iter().collect();
        while let Some(top) = stack.last_mut() {
            match top.next() {
                None => _ = stack.pop(),
                Some(Item::Include(include)) => {
                    stack.extend(include.file.and_then(|id| self.files.get(id.0 as usize)).map(|f| f.items.iter()))
                }
                Some(item) => items.push(item),
            }
        }
        items
    }

    /// Whether there were syntax errors.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }
}

/// One file.
#[derive(Clone, Debug)]
pub struct File {
    /// Which.
    pub id: FileId,
    /// What it declares.
    pub items: Vec<Item>,
}

/// A declaration at the top level.
#[derive(Clone, Debug)]
pub enum Item {
    /// `include "more.weir"`
    Include(Include),
    /// `define WEB = { 80, 443 }`
    Define(Define),
    /// `table bad { ... }`
    Table(Table),
    /// `limits customers { ... }`
    Limits(Limits),
    /// `defaults { ... }`
    Defaults(Defaults),
    /// `on-exit forward`
    OnExit(OnExit),
    /// `upstream { ... }`
    Direction(Direction),
    /// `posture calm { ... }`
    Posture(Posture),
}

/// A name, or a word that stands for itself.
#[derive(Clone, Debug)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// `include "more.weir"`
#[derive(Clone, Debug)]
pub struct Include {
    /// The whole item.
    pub span: Span,
    /// The path as written.
    pub path: Name,
    /// The file; `None` if it could not be read or had been included before.
    pub file: Option<FileId>,
}

/// `define NAME = values`
#[derive(Clone, Debug)]
pub struct Define {
    /// The whole item.
    pub span: Span,
    /// The name, without `$`.
    pub name: Name,
    /// What it stands for; `None` after a syntax error.
    pub values: Option<Values>,
}

/// `table NAME { ... }`
#[derive(Clone, Debug)]
pub struct Table {
    /// The whole item.
    pub span: Span,
    /// The name.
    pub name: Name,
    /// What is said of it, in order.
    pub settings: Vec<TableSetting>,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub enum TableSetting {
    /// `type ipv4 : label`
    Type {
        /// `ipv4` or `ipv6`, or anything else that was written.
        family: Name,
        /// What stands after the colon.
        label: Option<Name>,
    },
    /// `elements = { 192.0.2.0/24 : HR }`
    Elements(Vec<Element>, Span),
    /// `file "bad.txt"`
    File(ListFile),
    /// `dynamic`
    Dynamic(Span),
    /// `size 1000`
    Size(Atom),
    /// `timeout 10m`
    Timeout(Atom),
    /// `layout d16x4r`
    Layout(Name),
}

/// An element of a table.
#[derive(Clone, Debug)]
pub struct Element {
    /// The addresses.
    pub value: Value,
    /// Their label.
    pub label: Option<Atom>,
}

/// `file "geo.mmdb" field "country.iso_code" lenient`
#[derive(Clone, Debug)]
pub struct ListFile {
    /// The whole setting.
    pub span: Span,
    /// The path as written.
    pub path: Name,
    /// The field of a MaxMind database.
    pub field: Option<Name>,
    /// Whether bad lines are skipped and counted instead of being errors.
    pub lenient: Option<Span>,
}

/// `defaults { ... }`
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The whole item.
    pub span: Span,
    /// Kind of packet and what happens to it.
    pub entries: Vec<(Name, Name)>,
}

/// `on-exit forward`
#[derive(Clone, Debug)]
pub struct OnExit {
    /// The whole item.
    pub span: Span,
    /// What the link does then: `forward` or `block`, or anything else that was written.
    pub what: Name,
}

/// The two ways through the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the lower to the upper bundle.
    Upstream,
    /// From the upper to the lower bundle.
    Downstream,
}

impl Way {
    /// The keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Upstream => "upstream",
            Way::Downstream => "downstream",
        }
    }
}

/// `upstream { ... }`
#[derive(Clone, Debug)]
pub struct Direction {
    /// The whole item.
    pub span: Span,
    /// Which.
    pub way: Way,
    /// The keyword's place.
    pub keyword: Span,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// `posture NAME { ... }`
#[derive(Clone, Debug)]
pub struct Posture {
    /// The whole item.
    pub span: Span,
    /// The name.
    pub name: Name,
    /// Its directions.
    pub directions: Vec<Direction>,
}

/// A rule: matches, then statements.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The whole rule.
    pub span: Span,
    /// Conditions.
    pub matches: Vec<Match>,
    /// What happens; only the last may be a verdict.
    pub statements: Vec<Statement>,
}

/// What a match looks at.
#[derive(Clone, Debug)]
pub enum Subject {
    /// `tcp dport`
    Named {
        /// `tcp`
        layer: Name,
        /// `dport`
        field: Name,
    },
    /// `@nh,96,32`
    Raw {
        /// `nh`
        base: Name,
        /// First bit.
        offset: Atom,
        /// Number of bits.
        bits: Atom,
        /// With the `@`.
        span: Span,
    },
}

impl Subject {
    /// Where.
    pub fn span(&self) -> Span {
        match self {
            Subject::Named { layer, field } => layer.span.to(field.span),
            Subject::Raw { span, .. } => *span,
        }
    }
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// None was written.
    Implicit,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `!`: none of the bits.
    NoneOf,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Operator {
    /// Whether it asks for being in a set, or not.
    pub const fn is_equality(self) -> bool {
        matches!(self, Operator::Implicit | Operator::Equal | Operator::NotEqual)
    }

    /// As it is written.
    pub const fn text(self) -> &'static str {
        match self {
            Operator::Implicit => "",
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::NoneOf => "!",
            Operator::Less => "<",
            Operator::LessEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterEqual => ">=",
        }
    }
}

/// A condition.
#[derive(Clone, Debug)]
pub enum Match {
    /// `tcp` before a statement.
    Guard(Name),
    /// `tcp dport != { 22, 80 }`
    Compare {
        /// What is looked at.
        subject: Subject,
        /// `& mask`
        mask: Option<Value>,
        /// How.
        operator: Operator,
        /// The operator's place, or an empty one before the values.
        operator_span: Span,
        /// With what.
        values: Values,
    },
    /// `ip saddr != @geo { HR }`
    Table {
        /// What is looked up.
        subject: Subject,
        /// [`Operator::Implicit`], [`Operator::Equal`] or [`Operator::NotEqual`].
        operator: Operator,
        /// The table; the span covers the `@`.
        table: Name,
        /// The labels in braces.
        labels: Option<Vec<Atom>>,
        /// From the subject to the closing brace.
        span: Span,
    },
}

impl Match {
    /// Where.
    pub fn span(&self) -> Span {
        match self {
            Match::Guard(name) => name.span,
            Match::Compare { subject, values, .. } => subject.span().to(values.span()),
            Match::Table { span, .. } => *span,
        }
    }
}

impl Statement {
    /// Where.
    pub fn span(&self) -> Span {
        match self {
            Statement::Counter(span) | Statement::Track(span) | Statement::Verdict(_, span) => *span,
            Statement::Sample { copies, packets } => copies.span.to(packets.span),
            Statement::Limit { span, .. } | Statement::LimitRate { span, .. } => *span,
            Statement::LimitEach(limit) => limit.span,
        }
    }
}

/// What a rule does.
#[derive(Clone, Debug)]
pub enum Statement {
    /// `counter`
    Counter(Span),
    /// `sample 1/1000`
    Sample {
        /// `1`
        copies: Atom,
        /// `1000`
        packets: Atom,
    },
    /// `ip saddr limit @customers exceed divert`
    Limit {
        /// What is looked up.
        subject: Subject,
        /// The limits; the span covers the `@`.
        limits: Name,
        /// What happens to what has no room; `None` if nothing is said.
        exceed: Option<Exceed>,
        /// From the subject to the last word.
        span: Span,
    },
    /// `limit rate 1mpps burst 100 exceed mark`
    LimitRate {
        /// The limit.
        limit: Limit,
        /// What happens to what has no room; `None` if nothing is said.
        exceed: Option<Exceed>,
        /// From `limit` to the last word.
        span: Span,
    },
    /// `limit each ip saddr/24 50pps size 100000 exceed mark`
    LimitEach(LimitEach),
    /// `track`
    Track(Span),
    /// `accept`, `drop`, `divert`
    Verdict(Action, Span),
}
