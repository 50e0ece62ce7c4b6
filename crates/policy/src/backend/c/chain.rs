//! One chain as C: the columns that its rules read, its table lookups, and the names of both.

use super::answer::{self, AnswerColumn};
use super::column::{CT_STATE, Column, L3, L4, Width, fields};
use super::condition::Conditions;
use super::defaults::DefaultVerdicts;
use super::dialect::Dialect;
use super::raw::raw_name;
use super::rules;
use super::writer::Writer;
use crate::field::{Field, Guard, Subject};
use crate::ir::{Chain, FindId, Node, Program, RuleId, SlotContents, SlotId, TableKind, Test, match_tree};
use std::collections::BTreeSet;
use weir_abi::{Action, Family, Layout, Reason};

/// Emits one chain.
pub(super) struct ChainEmitter<'a> {
    pub(super) program: &'a Program,
    pub(super) chain: &'a Chain,
    pub(super) dialect: Dialect,
    /// The chain's name in C.
    pub(super) name: String,
    pub(super) conditions: Conditions<'a>,
    /// The columns that native code keeps for the packets of a burst.
    pub(super) columns: BTreeSet<Column>,
    /// Whether packets have a card's answers. None of them must be parsed for the policy's defaults.
    pub(super) is_answered: bool,
    /// The columns of answers that native code keeps.
    pub(super) card_columns: BTreeSet<AnswerColumn>,
    /// Whether any rule samples.
    pub(super) samples: bool,
    /// The finds at whose entries rules count, each with the number of these rules, in order.
    pub(super) counts: Vec<(FindId, usize)>,
}

/// The fields of `struct packet` that `observe` reads besides [`OBSERVED_COLUMNS`]: IPv6 addresses, and the fields of
/// samples.
const OBSERVED_FIELDS: [&str; 5] = ["saddr6", "daddr6", "dport", "proto", "ttl"];

/// The fields whose columns `observe` reads.
const OBSERVED_COLUMNS: [Field; 5] =
    [Field::IpSaddr, Field::IpDaddr, Field::MetaFragment, Field::ThSport, Field::TcpFlags];

/// The fields of `struct packet` that the tracker reads.
const TRACKED_FIELDS: [&str; 18] = [
    "saddr6",
    "daddr6",
    "l4_offset",
    "vlan_id",
    "inner_vlan_id",
    "sport",
    "dport",
    "window",
    "seq",
    "ack",
    "l3",
    "l4",
    "proto",
    "fragment",
    "tcp_flags",
    "icmp_type",
    "l4_length",
    "doff",
];

/// The fields of `struct packet` that rules of slots read.
const SLOT_FIELDS: [&str; 16] = [
    "saddr6",
    "daddr6",
    "l3_offset",
    "l4_offset",
    "sport",
    "dport",
    "window",
    "l3",
    "l4",
    "proto",
    "fragment",
    "ttl",
    "tcp_flags",
    "icmp_type",
    "icmp_code",
    "doff",
];

impl<'a> ChainEmitter<'a> {
    pub(super) fn new(program: &'a Program, chain: &'a Chain, name: String, dialect: Dialect) -> Self {
        let conditions = Conditions::new(program, chain, &name, dialect);
        let samples = rules::samples(program, &chain.tree.nodes);
        let columns = columns(program, chain, &conditions);
        let counts = rules::counts(program, &chain.tree.nodes);
        let mut card_columns = BTreeSet::new();
        answer::columns(program.card.as_ref(), &chain.tree.nodes, &mut card_columns);
        let is_answered = program
            .card
            .as_ref()
            .and_then(|card| program.chains.get(card.chain))
            .is_some_and(|answered| std::ptr::eq(answered, chain));
        ChainEmitter { program, chain, dialect, name, conditions, columns, is_answered, card_columns, samples, counts }
    }

    /// An emitter for `part`, which has some of the chain's rules. It keeps the columns of the whole chain, because a
    /// part may read marks that another part set. `program` has the chain's parts. Passes leave more rules in them than
    /// in the whole chain.
    pub(super) fn part(&self, program: &'a Program, part: &'a Chain, name: String) -> Self {
        let conditions = Conditions::new(program, part, &name, self.dialect);
        let samples = program.chains.iter().any(|part| rules::samples(program, &part.tree.nodes));
        ChainEmitter {
            program,
            chain: part,
            dialect: self.dialect,
            name,
            conditions,
            columns: self.columns.clone(),
            is_answered: self.is_answered,
            card_columns: self.card_columns.clone(),
            samples,
            counts: self.counts.clone(),
        }
    }

    /// Writes the declarations of large sets.
    pub(super) fn sets(&self, out: &mut Writer) {
        self.conditions.sets().iter().for_each(|line| out.line(line));
    }

    /// Whether tables are looked up before the rules.
    pub(super) fn is_staged(&self) -> bool {
        !self.chain.tree.staged.is_empty()
    }

    /// Whether the rules read `struct weir_burst`.
    pub(super) fn needs_burst(&self) -> bool {
        let (program, nodes) = (self.program, &self.chain.tree.nodes);
        self.conditions.uses_raw()
            || rules::limits(program, nodes)
            || rules::adds(program, nodes)
            || self.answers()
            || self.asks_slots()
    }

    /// Whether any rule answers SYNs.
    pub(super) fn answers(&self) -> bool {
        match_tree::rules(&self.chain.tree.nodes).any(|id| self.program.rule(id).answers())
    }

    /// Whether any rule asks a slot.
    pub(super) fn asks_slots(&self) -> bool {
        rules::asks_slots(self.program, &self.chain.tree.nodes)
    }

    /// Whether any rule tests `meta exceeded`.
    pub(super) fn marks(&self) -> bool {
        self.columns.contains(&Column::of(Field::MetaExceeded))
    }

    /// Whether the rules of a packet read its frame.
    pub(super) fn reads_frame(&self) -> bool {
        self.conditions.uses_raw() || self.tracking_point().is_some() || self.asks_slots()
    }

    /// Whether BPF code needs a parsed packet for more than the policy's defaults.
    pub(super) fn reads_packet(&self) -> bool {
        !self.columns.is_empty()
            || self.reads_frame()
            || self.tracks()
            || self.observes()
            || self.program.rewrites()
            || finds(&self.chain.tree.nodes)
    }

    /// The index of the top node that tracks.
    pub(super) fn tracking_point(&self) -> Option<usize> {
        self.chain.tree.nodes.iter().position(|node| matches!(node, Node::Track))
    }

    /// Whether packets are tracked, by rules or when they are accepted.
    pub(super) fn tracks(&self) -> bool {
        self.program.tracking.is_some()
    }

    /// The table slots at whose entries rules count.
    pub(super) fn counted_slots(&self) -> BTreeSet<u16> {
        self.counts.iter().map(|(find, _)| self.chain.finds[usize::from(find.0)].slot.0).collect()
    }

    /// Whether features of the packets that pass are counted.
    pub(super) fn observes(&self) -> bool {
        self.program.observe.is_some()
    }

    /// Whether any rule counts at table entries.
    pub(super) fn counts_entries(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Whether lookups read or fetch what tables with counters keep for their entries.
    pub(super) fn looks_entries_up(&self) -> bool {
        self.counts_entries() || self.chain.tree.staged.iter().any(|id| self.has_labels(*id))
    }

    /// The bit of a find at whose entries several rules count. A packet must be counted once.
    pub(super) fn counted_bit(&self, id: FindId) -> Option<usize> {
        self.counts.iter().filter(|(_, rules)| *rules > 1).position(|(find, _)| *find == id)
    }

    /// The name of the result of a find in a slot with counters: the number of an entry.
    pub(super) fn number_name(&self, id: FindId) -> String {
        let name = self.conditions.find_name(id);
        match self.has_labels(id) {
            true => format!("{name}_entry"),
            false => name.to_owned(),
        }
    }

    /// Whether a find in a slot with counters has a label besides the number of the entry.
    pub(super) fn has_labels(&self, id: FindId) -> bool {
        let slot = self.program.slot(self.chain.finds[usize::from(id.0)].slot);
        slot.counted == Some(TableKind::Labels)
    }

    /// The counter of the packets that limits or slots of a rule decided with this verdict and reason.
    pub(super) fn limited_counter(&self, rule: RuleId, verdict: Action, reason: Reason) -> String {
        let index = self.program.limited().iter().position(|&known| known == (rule, verdict, reason));
        let index = index.expect("compiler bug: an effect that decides packets is not in `limited`");
        format!("REASON_RULE + {}", self.program.rules.len() + index)
    }

    /// Whether rules or lookups read columns of the burst.
    pub(super) fn has_columns(&self) -> bool {
        !self.columns.is_empty()
            || !self.conditions.raw_columns().is_empty()
            || self.is_staged()
            || !self.card_columns.is_empty()
    }

    /// Whether packets are tracked before all rules.
    pub(super) fn tracks_first(&self) -> bool {
        self.tracks() && self.tracking_point() == Some(0)
    }

    /// Whether the parser fills columns. The state of a packet is not known before it is tracked.
    pub(super) fn parses_columns(&self) -> bool {
        self.columns.iter().any(|&column| column != CT_STATE) || !self.conditions.raw_columns().is_empty()
    }

    /// Whether the parser fills columns or fetches lines of flows.
    pub(super) fn parses_packets(&self) -> bool {
        self.tracks_first() || self.parses_columns()
    }

    /// Whether anything is kept for the packets of a burst.
    pub(super) fn keeps_packets(&self) -> bool {
        self.has_columns() || self.tracks()
    }

    pub(super) fn packets_struct(&self, out: &mut Writer) {
        if !self.keeps_packets() {
            return;
        }
        out.blank();
        out.line(&format!("/* A burst in {}: one column for each field that the rules read. */", self.title()));
        out.open(&format!("struct {}_packets", self.name));
        for column in &self.columns {
            out.line(&column.width.declare(column.name));
        }
        for line in self.card_columns.iter().flat_map(|answer| answer.declare()) {
            out.line(&line);
        }
        for &raw in self.conditions.raw_columns() {
            let name = raw_name(raw);
            out.line(&Width::of_raw(raw).declare(&name));
            out.line(&Width::U8.declare(&format!("{name}_there")));
        }
        for &id in &self.chain.tree.staged {
            let find = self.chain.finds[usize::from(id.0)];
            let (slot, key) = (self.program.slot(find.slot), find.key.name());
            if self.has_labels(id) {
                let name = self.number_name(id);
                out.line(&format!("uint32_t {name}[WEIR_BURST_MAX]; /* number of the entry for {key}, 0 for none */"));
            }
            let comment = match (&slot.contents, slot.tables()) {
                (SlotContents::Limits(list), _) => format!("ticket of {key} in @{list}, 0 for none"),
                (_, [table]) if slot.counted == Some(TableKind::Set) => {
                    format!("number of the entry for {key} in @{table}, 0 for none")
                }
                (_, [table]) => format!("label of {key} in @{table}, 0 for none"),
                (_, tables) => format!("one bit for each of @{} that contains {key}", tables.join(", @")),
            };
            out.line(&format!("uint32_t {}[WEIR_BURST_MAX]; /* {comment} */", self.conditions.find_name(id)));
        }
        for (id, _) in &self.counts {
            let name = self.conditions.find_name(*id);
            out.line(&format!("uint64_t {name}_hits; /* packets that rules matched by it */"));
        }
        if self.tracks() {
            out.line("struct track_burst tracked;");
        }
        if self.observes() {
            out.line("struct observed observed;");
        }
        out.close_with(" WEIR_COLUMNS;");
    }

    fn title(&self) -> String {
        match &self.chain.posture {
            None => self.chain.direction.name().to_owned(),
            Some(posture) => format!("{} in posture {posture}", self.chain.direction.name()),
        }
    }

    /// The fields of `struct packet` that BPF code reads: in rules, for table lookups, and for `defaults`.
    pub(super) fn kept_fields(&self, defaults: &DefaultVerdicts) -> BTreeSet<&'static str> {
        let keys = self.chain.finds.iter().map(|find| Column::of(find.key));
        let columns = self.columns.iter().copied().chain(keys);
        let mut kept: BTreeSet<_> = columns.flat_map(|column| fields(column.expression)).collect();
        kept.extend(defaults.fields());
        if self.tracks() {
            kept.extend(TRACKED_FIELDS);
        }
        if self.asks_slots() {
            kept.extend(SLOT_FIELDS);
        }
        if self.observes() {
            kept.extend(OBSERVED_FIELDS);
        }
        if self.program.rewrites() {
            kept.insert("l3_offset");
        }
        kept.insert("len");
        // The two are a union, so copying the longer one copies both.
        for (part, whole) in [("saddr", "saddr6"), ("daddr", "daddr6")] {
            if kept.contains(whole) {
                kept.remove(part);
            }
        }
        kept
    }

    /// The statement that looks up all packets of a burst in a table, if the layout has a burst function.
    pub(super) fn find_burst_call(&self, id: FindId) -> Option<String> {
        let find = self.chain.finds[usize::from(id.0)];
        let key = Column::of(find.key).name;
        let table = format!("WEIR_TABLE(env, {})", find.slot.0);
        let keys = match self.program.slot(find.slot).layout {
            Layout::ExactSet => format!("exact_set_find_burst({table}, packets->{key}"),
            Layout::ExactSets => format!("exact_sets_find_burst({table}, packets->{key}"),
            Layout::ExactSet6 => format!("exact_set6_find_burst({table}, packets->{key}.hi, packets->{key}.lo"),
            Layout::ExactSets6 => format!("exact_sets6_find_burst({table}, packets->{key}.hi, packets->{key}.lo"),
            Layout::RankLeaf => format!("rank_leaf_find_burst({table}, packets->{key}"),
            Layout::RankLeaf6 => format!("rank_leaf6_find_burst({table}, packets->{key}.hi, packets->{key}.lo"),
            Layout::CountedLeaf => format!("counted_leaf_find_burst({table}, packets->{key}"),
            Layout::ExactLeaf => format!("exact_leaf_find_burst({table}, packets->{key}"),
            Layout::ExactLeaf6 => format!("exact_leaf6_find_burst({table}, packets->{key}.hi, packets->{key}.lo"),
            Layout::Dxr16x4 | Layout::Range6 => return None,
        };
        Some(format!("{keys}, packets->{}, count);", self.number_name(id)))
    }

    /// The call that looks up one packet in a table.
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
                Family::Ipv4 => format!("{function}(env->halves, {whole})"),
                Family::Ipv6 => format!("{function}(env->halves, {hi}, {lo})"),
            };
        }
        lookup(slot.layout, &format!("WEIR_TABLE(env, {})", find.slot.0), [&whole, &hi, &lo])
    }
}

/// The call that looks up a key in a table: the whole IPv4 address, or the two halves of an IPv6 address.
pub(super) fn lookup(layout: Layout, table: &str, [whole, hi, lo]: [&str; 3]) -> String {
    match layout {
        Layout::Dxr16x4 => format!("dxr16x4_find({table}, {whole})"),
        Layout::ExactSet => format!("exact_set_find({table}, {whole})"),
        Layout::ExactSets => format!("exact_sets_find({table}, {whole})"),
        Layout::ExactSet6 => format!("exact_set6_find({table}, {hi}, {lo})"),
        Layout::ExactSets6 => format!("exact_sets6_find({table}, {hi}, {lo})"),
        Layout::Range6 => format!("range6_find({table}, {hi}, {lo})"),
        Layout::RankLeaf => format!("rank_leaf_find({table}, {whole})"),
        Layout::RankLeaf6 => format!("rank_leaf6_find({table}, {hi}, {lo})"),
        Layout::CountedLeaf => format!("counted_leaf_find({table}, {whole})"),
        Layout::ExactLeaf => format!("exact_leaf_find({table}, {whole})"),
        Layout::ExactLeaf6 => format!("exact_leaf6_find({table}, {hi}, {lo})"),
    }
}

/// The header with the lookups of a layout.
pub(in crate::backend) fn lookup_header(layout: Layout) -> &'static str {
    match layout {
        Layout::Dxr16x4 => "tables/dxr.h",
        Layout::ExactSet => "tables/exact_set.h",
        Layout::ExactSets => "tables/exact_sets.h",
        Layout::ExactSet6 => "tables/exact_set6.h",
        Layout::ExactSets6 => "tables/exact_sets6.h",
        Layout::Range6 => "tables/range6.h",
        Layout::RankLeaf | Layout::RankLeaf6 => "tables/rank_leaf_burst.h",
        Layout::CountedLeaf => "tables/counted_leaf.h",
        Layout::ExactLeaf | Layout::ExactLeaf6 => "tables/exact_leaf.h",
    }
}

/// The name of the global lookup function of a slot, for a chain in parts.
pub(super) fn find_name(slot: SlotId) -> String {
    format!("weir_find_{}", slot.0)
}

/// Whether nodes look anything up.
fn finds(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Find(_) => true,
        Node::When { body, .. } => finds(body),
        Node::Rule(_) | Node::Track => false,
    })
}

/// The columns that rules and staged finds of the chain read, except columns of raw bits.
fn columns(program: &Program, chain: &Chain, conditions: &Conditions<'_>) -> BTreeSet<Column> {
    let mut columns = BTreeSet::new();
    for id in &chain.tree.staged {
        let key = chain.finds[usize::from(id.0)].key;
        columns.insert(Column::of(key));
        // IPv4 tables are looked up for all packets, IPv6 tables only for IPv6 packets.
        columns.extend((key.guard() == Guard::Ipv6).then_some(L3));
    }
    collect_columns(program, &chain.tree.nodes, conditions, &mut columns);
    if program.observe.is_some() {
        columns.extend(OBSERVED_COLUMNS.map(Column::of));
        columns.extend([L3, L4]);
    }
    columns
}

fn collect_columns(program: &Program, nodes: &[Node], conditions: &Conditions<'_>, columns: &mut BTreeSet<Column>) {
    for node in nodes {
        let (test, body) = match node {
            Node::When { test, body } => (test, body),
            Node::Rule(id) => {
                columns.extend(program.addresses_read(*id).map(Column::of));
                continue;
            }
            Node::Track => {
                columns.insert(CT_STATE);
                continue;
            }
            Node::Find(_) => continue,
        };
        columns.extend(match test {
            Test::Guard(guard) => Column::of_guard(*guard),
            Test::Value { subject: Subject::Raw(raw), .. } if conditions.is_per_packet(test) => Column::of_raw(*raw),
            Test::Value { subject: Subject::Field(field), .. } => Some(Column::of(*field)),
            Test::Value { subject: Subject::Raw(_) | Subject::Card(_), .. } | Test::Found { .. } => None,
        });
        collect_columns(program, body, conditions, columns);
    }
}
