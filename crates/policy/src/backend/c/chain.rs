//! One chain as C: what its rules look at, its rules, its entry.

use super::column::{Column, L3, Width, fields};
use super::condition::Conditions;
use super::defaults::Defaulted;
use super::dialect::Dialect;
use super::raw::raw_name;
use super::rules;
use super::writer::Writer;
use crate::field::{Field, Guard, Subject};
use crate::ir::{Chain, FindId, Holds, Node, Program, RuleId, SlotId, Test};
use std::collections::BTreeSet;
use weir_abi::{Action, Family, Layout};

/// Writes one chain.
pub(super) struct ChainEmitter<'a> {
    pub(super) program: &'a Program,
    pub(super) chain: &'a Chain,
    pub(super) dialect: Dialect,
    /// The chain's name in C.
    pub(super) name: String,
    pub(super) conditions: Conditions<'a>,
    /// What native code keeps of each packet of a burst.
    pub(super) columns: BTreeSet<Column>,
    /// Whether any rule samples.
    pub(super) samples: bool,
}

impl<'a> ChainEmitter<'a> {
    pub(super) fn new(program: &'a Program, chain: &'a Chain, name: String, dialect: Dialect) -> Self {
        let conditions = Conditions::new(program, chain, &name, dialect);
        let samples = rules::samples(program, &chain.tree.nodes);
        let columns = columns(program, chain, &conditions);
        ChainEmitter { program, chain, dialect, name, conditions, columns, samples }
    }

    /// The rules of `part`, some of the chain's. What one part leaves behind, such as marks, others may look at.
    pub(super) fn part(&self, program: &'a Program, part: &'a Chain, name: String) -> Self {
        let conditions = Conditions::new(program, part, &name, self.dialect);
        let (columns, samples) = (self.columns.clone(), self.samples);
        ChainEmitter { program, chain: part, dialect: self.dialect, name, conditions, columns, samples }
    }

    /// Sets that are not compared in place.
    pub(super) fn sets(&self, out: &mut Writer) {
        self.conditions.sets().iter().for_each(|line| out.line(line));
    }

    /// Whether tables are asked before the rules.
    pub(super) fn is_staged(&self) -> bool {
        !self.chain.tree.staged.is_empty()
    }

    /// Whether rules need what a burst is called with.
    pub(super) fn needs_burst(&self) -> bool {
        self.conditions.uses_raw() || rules::limits(self.program, &self.chain.tree.nodes)
    }

    /// Whether rules ask whether a limit was exceeded.
    pub(super) fn marks(&self) -> bool {
        self.columns.contains(&Column::of(Field::MetaExceeded))
    }

    /// Counts what the limits of a rule ended with a verdict, beside the rule's own counter.
    pub(super) fn limited_counter(&self, rule: RuleId, verdict: Action) -> String {
        let place = self.program.limited().iter().position(|&known| known == (rule, verdict));
        let place = place.expect("compiler bug: a limit that ends a packet's way is not among them");
        format!("REASON_RULE + {}", self.program.rules.len() + place)
    }

    /// Whether rules look at anything at all.
    pub(super) fn has_columns(&self) -> bool {
        !self.columns.is_empty() || !self.conditions.raw_columns().is_empty() || self.is_staged()
    }

    pub(super) fn packets_struct(&self, out: &mut Writer) {
        if !self.has_columns() {
            return;
        }
        out.blank();
        out.line(&format!("/* A burst in {}: what the rules look at, a column each. */", self.described()));
        out.open(&format!("struct {}_packets", self.name));
        for column in &self.columns {
            out.line(&column.width.declare(column.name));
        }
        for &raw in self.conditions.raw_columns() {
            let name = raw_name(raw);
            out.line(&Width::of_raw(raw).declare(&name));
            out.line(&Width::U8.declare(&format!("{name}_there")));
        }
        for &id in &self.chain.tree.staged {
            let find = self.chain.finds[usize::from(id.0)];
            let (slot, key) = (self.program.slot(find.slot), find.key.name());
            let said = match (&slot.holds, slot.tables()) {
                (Holds::Limits(list), _) => format!("ticket of {key} in @{list}, 0 for none"),
                (_, [table]) => format!("label of {key} in @{table}, 0 for none"),
                (_, tables) => format!("a bit for each of @{} that holds {key}", tables.join(", @")),
            };
            out.line(&format!("uint32_t {}[WEIR_BURST_MAX]; /* {said} */", self.conditions.find_name(id)));
        }
        out.close_with(" WEIR_COLUMNS;");
    }

    fn described(&self) -> String {
        match &self.chain.posture {
            None => self.chain.direction.name().to_owned(),
            Some(posture) => format!("{} in posture {posture}", self.chain.direction.name()),
        }
    }

    /// The fields of a packet that are looked at, in BPF: by rules, for tables, by `defaults`.
    pub(super) fn kept_fields(&self, defaults: &Defaulted) -> BTreeSet<&'static str> {
        let keys = self.chain.finds.iter().map(|find| Column::of(find.key));
        let columns = self.columns.iter().copied().chain(keys);
        let mut kept: BTreeSet<_> = columns.flat_map(|column| fields(column.expression)).collect();
        kept.extend(defaults.fields());
        kept.insert("len");
        // Of two that share memory the longer has the other in it.
        for (part, whole) in [("saddr", "saddr6"), ("daddr", "daddr6")] {
            if kept.contains(whole) {
                kept.remove(part);
            }
        }
        kept
    }

    /// The statement that asks a table about all packets of a burst, if the layout has a way to.
    pub(super) fn find_burst_call(&self, id: FindId) -> Option<String> {
        let find = self.chain.finds[usize::from(id.0)];
        let key = Column::of(find.key).name;
        let table = format!("WEIR_TABLE(env, {})", find.slot.0);
        let keys = match self.program.slot(find.slot).layout {
            Layout::ExactSet => format!("exact_set_find_burst({table}, packets->{key}"),
            Layout::ExactSets => format!("exact_sets_find_burst({table}, packets->{key}"),
            Layout::ExactSet6 => format!("exact_set6_find_burst({table}, packets->{key}.hi, packets->{key}.lo"),
            Layout::RankLeaf => format!("rank_leaf_find_burst({table}, packets->{key}"),
            Layout::RankLeaf6 => format!("rank_leaf6_find_burst({table}, packets->{key}.hi, packets->{key}.lo"),
            Layout::CountedLeaf => format!("counted_leaf_find_burst({table}, packets->{key}"),
            Layout::Dxr16x4 | Layout::Range6 => return None,
        };
        Some(format!("{keys}, packets->{}, count);", self.conditions.find_name(id)))
    }

    /// The call that asks a table about a packet.
    pub(super) fn find_call(&self, id: FindId) -> String {
        let find = self.chain.finds[usize::from(id.0)];
        let key = Column::of(find.key);
        let [whole, hi, lo] = match self.dialect {
            Dialect::Native => ["[i]", ".hi[i]", ".lo[i]"].map(|part| format!("packets->{}{part}", key.name)),
            Dialect::Bpf | Dialect::BpfParts { .. } => {
                ["", ".hi", ".lo"].map(|part| format!("{}{part}", key.expression))
            }
        };
        let slot = self.program.slot(find.slot);
        if matches!(self.dialect, Dialect::BpfParts { .. }) {
            let function = find_name(find.slot);
            return match slot.family {
                Family::Ipv4 => format!("{function}({whole})"),
                Family::Ipv6 => format!("{function}({hi}, {lo})"),
            };
        }
        lookup(slot.layout, &format!("WEIR_TABLE(env, {})", find.slot.0), [&whole, &hi, &lo])
    }
}

/// The call that asks a table of a layout about a key: the address, or the halves of it if it is IPv6.
pub(super) fn lookup(layout: Layout, table: &str, [whole, hi, lo]: [&str; 3]) -> String {
    match layout {
        Layout::Dxr16x4 => format!("dxr16x4_find({table}, {whole})"),
        Layout::ExactSet => format!("exact_set_find({table}, {whole})"),
        Layout::ExactSets => format!("exact_sets_find({table}, {whole})"),
        Layout::ExactSet6 => format!("exact_set6_find({table}, {hi}, {lo})"),
        Layout::Range6 => format!("range6_find({table}, {hi}, {lo})"),
        Layout::RankLeaf => format!("rank_leaf_find({table}, {whole})"),
        Layout::RankLeaf6 => format!("rank_leaf6_find({table}, {hi}, {lo})"),
        Layout::CountedLeaf => format!("counted_leaf_find({table}, {whole})"),
    }
}

/// What the function is called that asks a slot's table, where the kernel has a chain in parts.
pub(super) fn find_name(slot: SlotId) -> String {
    format!("weir_find_{}", slot.0)
}

/// Every column but those of raw bits that the chain's rules and staged finds look at.
fn columns(program: &Program, chain: &Chain, conditions: &Conditions<'_>) -> BTreeSet<Column> {
    let mut columns = BTreeSet::new();
    for id in &chain.tree.staged {
        let key = chain.finds[usize::from(id.0)].key;
        columns.insert(Column::of(key));
        // An IPv4 table may be asked about any packet, an IPv6 table is asked about IPv6 only.
        columns.extend((key.guard() == Guard::Ipv6).then_some(L3));
    }
    collect_columns(program, &chain.tree.nodes, conditions, &mut columns);
    columns
}

fn collect_columns(program: &Program, nodes: &[Node], conditions: &Conditions<'_>, columns: &mut BTreeSet<Column>) {
    for node in nodes {
        let (test, body) = match node {
            Node::When { test, body } => (test, body),
            Node::Rule(id) => {
                columns.extend(program.limited_addresses(*id).map(Column::of));
                continue;
            }
            Node::Find(_) => continue,
        };
        columns.extend(match test {
            Test::Guard(guard) => Column::of_guard(*guard),
            Test::Value { subject: Subject::Raw(raw), .. } if conditions.asks_each(test) => Column::of_raw(*raw),
            Test::Value { subject: Subject::Field(field), .. } => Some(Column::of(*field)),
            Test::Value { subject: Subject::Raw(_), .. } | Test::Found { .. } => None,
        });
        collect_columns(program, body, conditions, columns);
    }
}
