//! The syntax tree: the written text with its positions. Names and types are not resolved; [`crate::check`] does that.
//!
//! One idea with `tree/additions.rs`, `tree/inside.rs`, `tree/limits.rs`, `tree/observe.rs`, `tree/slot.rs`, `tree/tracking.rs` and `tree/values.rs`: the types of the tree contain one another.

mod additions;
mod inside;
mod limits;
mod observe;
mod slot;
mod tracking;
mod values;

pub use additions::{Add, AddKind, ExceedAdd};
pub use inside::{Inside, InsideMember};
pub use limits::{EachLimit, Exceed, Limit, LimitEach, LimitElement, Limits, LimitsSetting, Log, OnExceed};
pub use observe::{Observe, ObserveSetting};
pub use slot::{Slot, SlotSetting};
pub use tracking::{SynproxyOffer, SynproxyThreshold, Tracking, TrackingSetting};
pub use values::{Atom, AtomKind, Operand, Value, Values};

use crate::diag::{Diagnostic, Severity};
use crate::direction::Direction;
use crate::source::{FileId, Span};
use weir_abi::Action;

/// A parsed policy: its files and their syntax errors.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The main file first, then the included ones in the order of their [`FileId`].
    pub files: Vec<File>,
    /// Syntax errors. The tree lacks the text that they affect; the rest can still be checked.
    pub diagnostics: Vec<Diagnostic>,
    /// Whether an included file could not be read. An unknown name may then be defined in that file.
    pub incomplete: bool,
}

impl Parsed {
    /// All items except includes, in order. The items of an included file take the position of its `include`.
    pub fn items(&self) -> Vec<&Item> {
        let mut items = Vec::new();
        // The id of an included file is greater than the id of the including file, so the loop ends.
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
    /// The id.
    pub id: FileId,
    /// Its declarations.
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
    /// `tracking { ... }`
    Tracking(Tracking),
    /// `slot attacks { ... }`
    Slot(Slot),
    /// `observe { ... }`
    Observe(Observe),
    /// `inside { 192.0.2.0/24 }`
    Inside(Inside),
    /// `on-exit forward`
    OnExit(OnExit),
    /// `upstream { ... }`
    Direction(DirectionBlock),
    /// `posture calm { ... }`
    Posture(Posture),
}

/// A name or a keyword.
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
    /// The file. `None` if it could not be read or was already included.
    pub file: Option<FileId>,
}

/// `define NAME = values`
#[derive(Clone, Debug)]
pub struct Define {
    /// The whole item.
    pub span: Span,
    /// The name, without `$`.
    pub name: Name,
    /// The values; `None` after a syntax error.
    pub values: Option<Values>,
}

/// `table NAME { ... }`
#[derive(Clone, Debug)]
pub struct Table {
    /// The whole item.
    pub span: Span,
    /// The name.
    pub name: Name,
    /// Its settings, in order.
    pub settings: Vec<TableSetting>,
}

/// A setting of a table.
#[derive(Clone, Debug)]
pub enum TableSetting {
    /// `type ipv4 : label`
    Type {
        /// `ipv4` or `ipv6`; other words are not refused here.
        family: Name,
        /// The word after the colon.
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
    /// `counters`
    Counters(Span),
    /// `watch`
    Watch(Span),
    /// `protect @admin`; the span of the name includes the `@`.
    Protect(Name),
    /// `max-change 20%`; the text is the number, and its span includes the `%`.
    MaxChange(Atom),
}

/// An element of a table.
#[derive(Clone, Debug)]
pub struct Element {
    /// The addresses.
    pub value: Value,
    /// The label of the addresses.
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
    /// Pairs of the kind of packet and its default.
    pub entries: Vec<(Name, Name)>,
}

/// `on-exit forward`
#[derive(Clone, Debug)]
pub struct OnExit {
    /// The whole item.
    pub span: Span,
    /// `forward` or `block`; other words are not refused here.
    pub value: Name,
}

/// `upstream { ... }`
#[derive(Clone, Debug)]
pub struct DirectionBlock {
    /// The whole item.
    pub span: Span,
    /// Upstream or downstream.
    pub direction: Direction,
    /// The keyword.
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
    pub directions: Vec<DirectionBlock>,
}

/// A rule: matches, then statements.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The whole rule.
    pub span: Span,
    /// Conditions.
    pub matches: Vec<Match>,
    /// Statements; only the last may be a verdict.
    pub statements: Vec<Statement>,
}

/// The left side of a match.
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
        /// Offset of the first bit.
        offset: Atom,
        /// Number of bits.
        bits: Atom,
        /// The whole expression, with the `@`.
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

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// No operator is written.
    Implicit,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `!`: none of the bits is set.
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
    /// Whether it tests for membership in a set, or the opposite.
    pub const fn is_equality(self) -> bool {
        matches!(self, Operator::Implicit | Operator::Equal | Operator::NotEqual)
    }

    /// The operator in policies.
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
        /// The field or raw bits that are compared.
        subject: Subject,
        /// `& mask`
        mask: Option<Value>,
        /// The operator.
        operator: Operator,
        /// The operator, or an empty span before the values.
        operator_span: Span,
        /// The right side.
        values: Values,
    },
    /// `ip saddr != @geo { HR }`
    Table {
        /// The address field.
        subject: Subject,
        /// [`Operator::Implicit`], [`Operator::Equal`] or [`Operator::NotEqual`].
        operator: Operator,
        /// The table; the span includes the `@`.
        table: Name,
        /// The labels, if any are written.
        labels: Option<Vec<Atom>>,
        /// The whole match.
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
            Statement::Counter(span) | Statement::Track(span) | Statement::Synproxy(span) => *span,
            Statement::Verdict(_, span) => *span,
            Statement::Sample { copies, packets } => copies.span.to(packets.span),
            Statement::Limit { span, .. } | Statement::LimitRate { span, .. } => *span,
            Statement::LimitEach(limit) => limit.span,
            Statement::Add(add) => add.span,
            Statement::Slot { span, .. } => *span,
        }
    }
}

/// A statement of a rule.
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
        /// The address field.
        subject: Subject,
        /// The list of limits; the span includes the `@`.
        limits: Name,
        /// What happens to packets that exceed the limit.
        exceed: OnExceed,
        /// The whole statement.
        span: Span,
    },
    /// `limit rate 1mpps burst 100 exceed mark`
    LimitRate {
        /// The limit.
        limit: Limit,
        /// What happens to packets that exceed the limit.
        exceed: OnExceed,
        /// The whole statement.
        span: Span,
    },
    /// `limit each ip saddr/24 50pps size 100000 exceed mark`
    LimitEach(LimitEach),
    /// `add @suspects { ip saddr timeout 10m }`
    Add(Add),
    /// `track`
    Track(Span),
    /// `synproxy`
    Synproxy(Span),
    /// `slot attacks`
    Slot {
        /// The slot.
        slot: Name,
        /// The whole statement.
        span: Span,
    },
    /// `accept`, `drop`, `divert`
    Verdict(Action, Span),
}
