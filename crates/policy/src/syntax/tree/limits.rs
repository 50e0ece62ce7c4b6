//! Lists of limits, rates, and what happens to packets that exceed a limit.

use super::{Atom, ExceedAdd, ListFile, Name, Subject, Value};
use crate::source::Span;
use weir_abi::Action;

/// `limits NAME { ... }`
#[derive(Clone, Debug)]
pub struct Limits {
    /// The whole item.
    pub span: Span,
    /// The name.
    pub name: Name,
    /// Its settings, in order.
    pub settings: Vec<LimitsSetting>,
}

/// A setting of a list of limits.
#[derive(Clone, Debug)]
pub enum LimitsSetting {
    /// `file "limits.csv"`
    File(ListFile),
    /// `elements = { 192.0.2.0/24 : 10kpps }`
    Elements(Vec<LimitElement>, Span),
    /// `default 100pps`
    Default(Limit),
    /// `table geo`
    Table(Name),
    /// `nested`
    Nested(Span),
    /// `log exceeded`
    Log(Log, Span),
}

/// An element of a list of limits.
#[derive(Clone, Debug)]
pub struct LimitElement {
    /// A prefix, or a label.
    pub key: Value,
    /// Its limit.
    pub limit: Limit,
}

/// `10mbit burst 64kbytes`. The texts have no blanks.
#[derive(Clone, Debug)]
pub struct Limit {
    /// `10mbit`, `400/second`
    pub rate: Name,
    /// `64kbytes`
    pub burst: Option<Name>,
}

impl Limit {
    /// Where.
    pub fn span(&self) -> Span {
        self.burst.as_ref().map_or(self.rate.span, |burst| self.rate.span.to(burst.span))
    }
}

/// What each address may do.
#[derive(Clone, Debug)]
pub enum EachLimit {
    /// `50pps burst 10`
    Rate(Limit),
    /// `connections 20`
    Connections(Atom),
}

/// `limit each ip saddr/24 50pps burst 10 size 100000 log exceeded exceed mark`: a bucket for each address, or seats for
/// its connections.
#[derive(Clone, Debug)]
pub struct LimitEach {
    /// The address field.
    pub subject: Subject,
    /// The prefix length `24`; `None` for single addresses.
    pub length: Option<Atom>,
    /// The limit of each address or prefix.
    pub limit: EachLimit,
    /// Number of addresses; `None` if not written.
    pub size: Option<Atom>,
    /// What is counted: `off` or `exceeded`; `None` if not written.
    pub log: Option<Log>,
    /// What happens to packets that exceed the limit.
    pub exceed: OnExceed,
    /// The whole statement.
    pub span: Span,
}

/// What a limit does with packets that exceed it: `exceed add @suspects timeout 10m divert`.
#[derive(Clone, Debug, Default)]
pub struct OnExceed {
    /// The table that the packet's address is added to.
    pub add: Option<ExceedAdd>,
    /// What happens to the packet; `None` if not written.
    pub exceed: Option<Exceed>,
}

/// What is counted for each limit of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Log {
    /// Nothing.
    #[default]
    Off,
    /// Packets that exceed the limit.
    Exceeded,
    /// Packets that exceed the limit and packets that pass.
    All,
}

impl Log {
    /// All of them.
    pub const ALL: [Log; 3] = [Log::Off, Log::Exceeded, Log::All];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Log::Off => "off",
            Log::Exceeded => "exceeded",
            Log::All => "all",
        }
    }
}

/// What happens to a packet that exceeds a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Exceed {
    /// The packet is dropped.
    #[default]
    Drop,
    /// The packet is diverted.
    Divert,
    /// The packet is marked and the rule continues. Later rules can test `meta exceeded`.
    Mark,
}

impl Exceed {
    /// All of them.
    pub const ALL: [Exceed; 3] = [Exceed::Drop, Exceed::Divert, Exceed::Mark];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Exceed::Drop => "drop",
            Exceed::Divert => "divert",
            Exceed::Mark => "mark",
        }
    }

    /// The verdict, if the packet is decided.
    pub const fn verdict(self) -> Option<Action> {
        match self {
            Exceed::Drop => Some(Action::Drop),
            Exceed::Divert => Some(Action::Divert),
            Exceed::Mark => None,
        }
    }
}
