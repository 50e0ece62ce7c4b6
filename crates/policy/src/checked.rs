//! The second stage: a policy whose names, types and bounds have been checked. It keeps the meaning of the text, not
//! its form.

use crate::catalog::{Family, LimitsFacts, TableFacts};
use crate::diag::Diagnostic;
use crate::field::{Field, Subject};
pub use crate::limit_each::{EachLimit, LimitEach};
use crate::source::Span;
pub use crate::syntax::tree::{AddKind, Exceed, Log};
use crate::tracking::Tracking;
use weir_abi::features::SIZE_DEFAULT;
use weir_abi::{Action, FeatureShape, Layout, Limit};

/// A checked policy.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The main file's name without directory and extension.
    pub name: String,
    /// Tables, in order of declaration; [`TableId`] is the index.
    pub tables: Vec<Table>,
    /// Lists of limits; [`LimitsId`] is the index.
    pub limits: Vec<Limits>,
    /// Slots, in order of declaration; [`RuleSlotId`] is the index.
    pub rule_slots: Vec<RuleSlot>,
    /// Verdicts on packets that bypass the rules or that no rule decides.
    pub defaults: Defaults,
    /// What the link does when Weir ends.
    pub on_exit: OnExit,
    /// How flows are tracked, and where the policy says so; `None` if they are not.
    pub tracking: Option<(Tracking, Span)>,
    /// What is observed, and where the policy says so; `None` if nothing is.
    pub observe: Option<(Observe, Span)>,
    /// Which sources are inside; `None` if the policy does not say so.
    pub inside: Option<Inside>,
    /// The base policy first, then the named postures. The rules of `inside` come first in each upstream direction.
    pub postures: Vec<Posture>,
    /// Mistakes that do not stop the compiler.
    pub warnings: Vec<Diagnostic>,
}

/// Index into [`Checked::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u16);

/// Index into [`Checked::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitsId(pub u16);

/// Index into [`Checked::rule_slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleSlotId(pub u16);

/// A declared slot: room for rules that are put in while Weir runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSlot {
    /// Its name.
    pub name: String,
    /// Maximum number of rules, 1 to [`weir_abi::slot::RULES_MAX`].
    pub size: u16,
}

/// Label of a table entry, from 1.
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
    /// Bounds, if the table is declared `dynamic`.
    pub dynamic: Option<Dynamic>,
    /// The layout, if the policy sets one.
    pub layout: Option<Layout>,
    /// Whether each entry counts its packets.
    pub counters: bool,
    /// How its updates from lists are made, and which are refused.
    pub updates: Updates,
    /// Its content; empty if it could not be read.
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

/// How a table is updated from its list files while running, and which updates are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updates {
    /// Whether it is updated when one of its files changes.
    pub watch: bool,
    /// Tables whose addresses no update may add, in order of declaration.
    pub protected: Vec<TableId>,
    /// Maximum growth or shrinkage in percent of the entries that it has.
    pub max_change_percent: Option<u32>,
}

/// Bounds of a table that is filled while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dynamic {
    /// Maximum number of entries.
    pub size: u32,
    /// Lifetime of an entry, ms; `None`: unlimited.
    pub timeout_ms: Option<u64>,
}

/// A declared list of limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Its name.
    pub name: String,
    /// Where it was declared.
    pub span: Span,
    /// The kind of its keys.
    pub keys: LimitKeys,
    /// The limit of what is not listed. All other addresses share one bucket; each other label has its own.
    pub default: Option<Limit>,
    /// What is counted for each limit.
    pub log: Log,
    /// Its content; empty if it could not be read.
    pub facts: LimitsFacts,
}

/// The kind of the keys of a list of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKeys {
    /// Prefixes of both families.
    Prefixes {
        /// Whether a packet is charged to all enclosing prefixes too.
        nested: bool,
    },
    /// Labels of a table.
    Labels(TableId),
}

/// What happens to packets that bypass the rules, and to those that no rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Packets that cannot be parsed.
    pub malformed: Action,
    /// ARP.
    pub arp: Fallback,
    /// Everything else that is not IP.
    pub not_ip: Fallback,
    /// All fragments, the first included.
    pub fragment: Fallback,
    /// Packets with IPv4 options or IPv6 hop-by-hop headers.
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

/// A verdict without rules, or the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The verdict.
    Decide(Action),
    /// The rules decide.
    Rules,
}

/// What the link does after Weir has ended, for any reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Nothing passes.
    #[default]
    Block,
    /// Everything passes unfiltered.
    Forward,
}

impl OnExit {
    /// All of them.
    pub const ALL: [OnExit; 2] = [OnExit::Block, OnExit::Forward];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            OnExit::Block => "block",
            OnExit::Forward => "forward",
        }
    }

    /// The value of a policy keyword.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|on_exit| on_exit.name() == name)
    }
}

/// The addresses that are protected: packets from outside do not come from them.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The first statement.
    pub span: Span,
    /// The addresses that are written, of IPv4 and of IPv6.
    pub sets: [ValueSet; 2],
    /// Whether addresses of tables are inside too. Only the rules know them.
    pub has_tables: bool,
    /// The rules that decide packets from outside with such a source.
    pub rules: Vec<Rule>,
}

/// A complete variant of the policy.
#[derive(Clone, Debug)]
pub struct Posture {
    /// Its name; `None` for the base policy.
    pub name: Option<String>,
    /// Where it was declared; for the base policy, the whole main file.
    pub span: Span,
    /// Rules for packets from the lower to the upper interfaces. `None` if not written: a named posture then uses the
    /// chain of the base policy, and the base policy applies `no_match`.
    pub upstream: Option<Vec<Rule>>,
    /// Rules for packets from the upper to the lower interfaces.
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

/// One condition. The guard of the subject is implied: if it fails, the match does not hold, negated or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Only the guard itself: `tcp` in `tcp track`.
    Guard(crate::field::Guard),
    /// Holds if `subject & mask` is in the set. `negated` inverts that.
    Value {
        /// The field or raw bits that are compared.
        subject: Subject,
        /// The bits that are compared; all of them if `None`.
        mask: Option<u128>,
        /// The values.
        set: ValueSet,
        /// Whether the value must be outside the set.
        negated: bool,
    },
    /// Holds if the longest matching prefix of `key` in the table exists and its label is in `labels`. `negated`
    /// inverts that.
    Table {
        /// An address field of the table's family.
        key: Field,
        /// The table.
        table: TableId,
        /// Sorted and not empty. `None`: any entry matches.
        labels: Option<Vec<LabelId>>,
        /// Inverts the match.
        negated: bool,
    },
}

/// A set of values as inclusive ranges that are sorted, disjoint and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueSet(Vec<(u128, u128)>);

impl ValueSet {
    /// Builds a set from inclusive ranges in any order. A range whose end is below its start is empty.
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

    /// Whether every value of `bits` bits is in the set.
    pub fn is_full(&self, bits: u8) -> bool {
        self.0.first().is_some_and(|&(start, end)| start == 0 && end >= u128::MAX >> (128 - bits))
    }
}

/// How a packet's limit is found.
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
    /// One for each address, and what is counted.
    Each(LimitEach, Log),
}

impl LimitBy {
    /// The address field that selects the limit.
    pub fn key(&self) -> Option<Field> {
        match self {
            LimitBy::List { key, .. } | LimitBy::Each(LimitEach { key, .. }, _) => Some(*key),
            LimitBy::Rate(_) => None,
        }
    }

    /// The owner of the buckets.
    pub fn owner(&self) -> LimitOwner {
        match self {
            LimitBy::List { key, limits } => LimitOwner::List(*limits, key.family()),
            LimitBy::Rate(_) => LimitOwner::Rate,
            LimitBy::Each(..) => LimitOwner::Each,
        }
    }
}

/// The owner of a statement's buckets. The statements of a chain are numbered separately for each owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitOwner {
    /// A list, for one family.
    List(LimitsId, Family),
    /// `limit rate`.
    Rate,
    /// `limit each`.
    Each,
}

/// Adds an address to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Add {
    /// What happens to an entry that is there.
    pub kind: AddKind,
    /// A dynamic set of the key's family.
    pub table: TableId,
    /// An address field.
    pub key: Field,
    /// Prefix length: the entry is the prefix of the address.
    pub length: u8,
    /// The timeout of the entry, ms; `None`: the timeout of the table.
    pub timeout_ms: Option<u64>,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `counter`. It has no effect, because every rule counts.
    Counter,
    /// Copies one packet in `one_in` to the divert interface.
    Sample {
        /// At least 1.
        one_in: u32,
    },
    /// Charges a limit.
    Limit {
        /// Which limit.
        by: LimitBy,
        /// The table that the address of a packet is added to that exceeds it.
        add: Option<Add>,
        /// What happens to packets that exceed it.
        exceed: Exceed,
    },
    /// Adds an address to a table.
    Add(Add),
    /// Tracks the TCP connection.
    Track,
    /// Tracks the TCP connection, and answers SYNs.
    Synproxy,
    /// Drops packets as the rules of a slot say.
    Slot(RuleSlotId),
    /// Decides the packet.
    Verdict(Action),
}

/// The settings of `observe { ... }`. They hold for all postures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observe {
    /// Number of prefixes that have room, of each direction.
    pub size: u32,
    /// Lengths of the prefixes of IPv4 and IPv6 that are counted together.
    pub lengths: [u8; 2],
    /// The protected addresses, of IPv4 and of IPv6. If there are none, all addresses are.
    pub inside: [ValueSet; 2],
}

impl Observe {
    /// What compiled code counts by.
    pub fn shape(&self) -> FeatureShape {
        FeatureShape::new(self.size, self.lengths, self.inside.each_ref().map(ValueSet::ranges))
    }

    /// Whether every address is protected.
    pub fn is_all(&self) -> bool {
        self.inside.iter().all(|set| set.ranges().is_empty())
    }

    /// Whether an address is protected.
    pub fn contains(&self, is_ipv6: bool, address: u128) -> bool {
        self.is_all() || self.inside[usize::from(is_ipv6)].contains(address)
    }
}

impl Default for Observe {
    fn default() -> Self {
        Observe { size: SIZE_DEFAULT, lengths: [32, 128], inside: [0, 1].map(|_| ValueSet::new([])) }
    }
}
