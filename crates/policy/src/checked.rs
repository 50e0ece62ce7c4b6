//! The second stage: a policy whose names, types and bounds are right. What it means, without how it was written.

use crate::catalog::{Family, LimitsFacts, TableFacts};
use crate::diag::Diagnostic;
use crate::field::{Field, Subject};
use crate::source::Span;
pub use crate::syntax::tree::{Exceed, Log};
use weir_abi::{Action, Layout, Limit};

/// A checked policy.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The main file's name without directory and extension.
    pub name: String,
    /// Tables, in order of declaration; [`TableId`] is the index.
    pub tables: Vec<Table>,
    /// Lists of limits; [`LimitsId`] is the index.
    pub limits: Vec<Limits>,
    /// What happens to packets before any rule.
    pub defaults: Defaults,
    /// What the link does when Weir ends.
    pub on_exit: OnExit,
    /// The base policy first, then the named postures.
    pub postures: Vec<Posture>,
    /// What is probably not meant.
    pub warnings: Vec<Diagnostic>,
}

/// Index into [`Checked::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u16);

/// Index into [`Checked::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitsId(pub u16);

/// Label of a table entry; 0 is never one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(pub u32);

/// A declared table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Where it was declared.
    pub span: Span,
    /// Address family of its prefixes.
    pub family: Family,
    /// Whether entries carry labels.
    pub kind: TableKind,
    /// Filled while running, if so declared.
    pub dynamic: Option<Dynamic>,
    /// A layout that the policy insists on.
    pub layout: Option<Layout>,
    /// What it holds; empty if it could not be read.
    pub facts: TableFacts,
}

/// Set or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Prefixes.
    Set,
    /// Prefixes to labels.
    Labels,
}

/// Bounds of a table that is filled while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dynamic {
    /// Most entries.
    pub size: u32,
    /// Entries go after this many milliseconds; `None`: they stay.
    pub timeout_ms: Option<u64>,
}

/// A declared list of limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Its name.
    pub name: String,
    /// Where it was declared.
    pub span: Span,
    /// What has limits in it.
    pub of: LimitsOf,
    /// The limit of what is not listed: of all other addresses together, or of each other label.
    pub default: Option<Limit>,
    /// What is counted for each limit.
    pub log: Log,
    /// What it holds; empty if it could not be read.
    pub facts: LimitsFacts,
}

/// What has limits in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsOf {
    /// Prefixes of both families.
    Prefixes {
        /// Whether a packet is charged to all enclosing prefixes too.
        nested: bool,
    },
    /// Labels of a table.
    Labels(TableId),
}

/// What happens to packets that rules cannot, or should not, judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Packets that cannot be parsed.
    pub malformed: Action,
    /// ARP.
    pub arp: Fallback,
    /// Everything else that is not IP.
    pub not_ip: Fallback,
    /// Fragments, first and later.
    pub fragment: Fallback,
    /// IPv4 options and IPv6 hop-by-hop headers.
    pub ip_options: Fallback,
    /// Packets that no rule decides.
    pub no_match: Action,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            malformed: Action::Drop,
            arp: Fallback::Decide(Action::Accept),
            not_ip: Fallback::Decide(Action::Drop),
            fragment: Fallback::Rules,
            ip_options: Fallback::Rules,
            no_match: Action::Accept,
        }
    }
}

/// Decide without asking the rules, or ask them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The verdict.
    Decide(Action),
    /// The rules decide.
    Rules,
}

/// What the link does when nobody judges its packets any more, however that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Nothing passes.
    #[default]
    Block,
    /// Everything passes, unjudged.
    Forward,
}

impl OnExit {
    /// Both.
    pub const ALL: [OnExit; 2] = [OnExit::Block, OnExit::Forward];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            OnExit::Block => "block",
            OnExit::Forward => "forward",
        }
    }

    /// What the policy keyword means.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|on_exit| on_exit.name() == name)
    }
}

/// A complete variant of the policy.
#[derive(Clone, Debug)]
pub struct Posture {
    /// Its name; `None` for the base policy.
    pub name: Option<String>,
    /// Where it was declared; the base policy: the whole main file.
    pub span: Span,
    /// Rules for packets from the lower to the upper bundle. `None`: not written; a named posture then uses the base
    /// policy's, and the base policy decides `no_match`.
    pub upstream: Option<Vec<Rule>>,
    /// Rules for packets from the upper to the lower bundle.
    pub downstream: Option<Vec<Rule>>,
}

/// A rule: if all of `matches` hold, `effects` happen in order.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's text in the policy.
    pub span: Span,
    /// All must hold; tested in order.
    pub matches: Vec<Match>,
    /// What happens, in order; only the last may be a verdict.
    pub effects: Vec<Effect>,
}

/// One condition. The guard of the subject is implied: when it fails, the match does not hold, negated or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Only the guard itself: `tcp` in `tcp track`.
    Guard(crate::field::Guard),
    /// `subject & mask` is (or, negated, is not) in the set.
    Value {
        /// What is looked at.
        subject: Subject,
        /// Bits that count; all of them if `None`.
        mask: Option<u128>,
        /// The values.
        set: ValueSet,
        /// Whether it must be outside the set.
        negated: bool,
    },
    /// The longest matching prefix of `key` in the table exists (and its label is one of `labels`), or, negated, not.
    Table {
        /// An address field of the table's family.
        key: Field,
        /// The table.
        table: TableId,
        /// Sorted, not empty; `None`: any entry.
        labels: Option<Vec<LabelId>>,
        /// Whether the test is turned around.
        negated: bool,
    },
}

/// A set of values: inclusive ranges, sorted, disjoint and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueSet(Vec<(u128, u128)>);

impl ValueSet {
    /// The set of the given inclusive ranges, in any order; a range whose end is below its start is empty.
    pub fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(start, end)| start <= end).collect();
        ranges.sort_unstable();
        let mut set: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match set.last_mut() {
                Some(last) if last.1 == u128::MAX || start <= last.1 + 1 => last.1 = last.1.max(end),
                _ => set.push((start, end)),
            }
        }
        ValueSet(set)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// Whether the value is in the set.
    pub fn contains(&self, value: u128) -> bool {
        let after = self.0.partition_point(|&(start, _)| start <= value);
        after > 0 && value <= self.0[after - 1].1
    }

    /// Whether every value of a subject of so many bits is in the set.
    pub fn is_full(&self, bits: u8) -> bool {
        self.0.first().is_some_and(|&(start, end)| start == 0 && end >= u128::MAX >> (128 - bits))
    }
}

/// Where a packet's limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitBy {
    /// The most specific prefix of a list, or the address's label.
    List {
        /// An address field.
        key: Field,
        /// The list.
        limits: LimitsId,
    },
    /// One for all packets of the rule.
    Rate(Limit),
    /// One for each address.
    Each(LimitEach),
}

impl LimitBy {
    /// The address field that it looks at.
    pub fn key(&self) -> Option<Field> {
        match self {
            LimitBy::List { key, .. } | LimitBy::Each(LimitEach { key, .. }) => Some(*key),
            LimitBy::Rate(_) => None,
        }
    }

    /// Whose buckets it takes.
    pub fn owner(&self) -> LimitOwner {
        match self {
            LimitBy::List { key, limits } => LimitOwner::List(*limits, key.family()),
            LimitBy::Rate(_) => LimitOwner::Rate,
            LimitBy::Each(_) => LimitOwner::Each,
        }
    }
}

/// Whose buckets a statement takes. Statements of a chain are numbered for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitOwner {
    /// A list's, for a family.
    List(LimitsId, Family),
    /// Of `limit rate`.
    Rate,
    /// Of `limit each`.
    Each,
}

/// A bucket for each address, in a table of bounded size ([`weir_abi::each`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitEach {
    /// An address field.
    pub key: Field,
    /// Bits of it that count: addresses with the same prefix have a bucket together.
    pub length: u8,
    /// The limit of each, with a burst that [`weir_abi::each::profile`] takes.
    pub limit: Limit,
    /// For how many addresses there is room, from [`weir_abi::each::SIZE_MIN`] to [`weir_abi::each::SIZE_MAX`]; a power of two.
    pub size: u32,
}

impl LimitEach {
    /// The bits of an address that count.
    pub fn mask(&self) -> u128 {
        let all = u128::MAX >> (128 - self.key.bits());
        all << (self.key.bits() - self.length) & all
    }
}

/// `each ip saddr/24 50pps burst 10packets size 524288`
impl std::fmt::Display for LimitEach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "each {}/{} {} size {}", self.key.name(), self.length, self.limit, self.size)
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `counter`: every rule counts; this says that the author looks at it.
    Counter,
    /// A copy of one packet in `one_in` goes to the divert interface.
    Sample {
        /// At least 1.
        one_in: u32,
    },
    /// Polices.
    Limit {
        /// By which limits.
        by: LimitBy,
        /// What happens to what has no room.
        exceed: Exceed,
    },
    /// Follows the TCP connection.
    Track,
    /// Ends the rules.
    Verdict(Action),
}
