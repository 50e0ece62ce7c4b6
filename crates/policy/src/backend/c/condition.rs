//! Tests of one packet as C expressions.

use super::answer::{self, Answers};
use super::column::{Column, Width};
use super::dialect::Dialect;
use super::raw::{raw_bits, raw_columns, raw_name};
use super::scale::{Scale, number};
use super::set::{self, Form, LargeSet};
use crate::field::{Guard, Raw, Subject};
use crate::ir::answers::Answering;
use crate::ir::{Chain, FindId, Node, Program, Test, ValueSet, Wanted, symbol};

/// The expressions of one chain, and the declarations that they need.
pub struct Conditions<'a> {
    /// C name of each find, indexed by id.
    find_names: Vec<String>,
    /// Sets that need a declaration.
    sets: Vec<LargeSet<'a>>,
    /// Raw bits that native code reads once per packet.
    raw_columns: Vec<Raw>,
    /// Whether rules read raw bits of frames.
    uses_raw: bool,
    dialect: Dialect,
    /// Where answers of a card are.
    card: Option<&'a Answering>,
}

impl<'a> Conditions<'a> {
    /// Collects the sets and raw bits of a chain.
    pub fn new(program: &'a Program, chain: &'a Chain, name: &str, dialect: Dialect) -> Self {
        let mut find_names: Vec<String> = Vec::new();
        for find in &chain.finds {
            let key = find.key.name().replace("ip6 ", "").replace("ip ", "");
            let mut base = format!("{}_{key}", symbol(&program.slot(find.slot).name()));
            while base.starts_with(|c: char| c.is_ascii_digit()) || find_names.contains(&base) {
                base = format!("t{}_{base}", find.slot.0);
            }
            find_names.push(base);
        }
        let raw_columns = if dialect == Dialect::Native { raw_columns(chain) } else { vec![] };
        let card = program.card.as_ref();
        let mut conditions = Conditions { find_names, sets: vec![], raw_columns, uses_raw: false, dialect, card };
        conditions.collect(&chain.tree.nodes, name);
        conditions
    }

    /// The declarations of large sets, line by line.
    pub fn sets(&self) -> Vec<String> {
        let function = match self.dialect {
            Dialect::Native | Dialect::Bpf => "WEIR_INLINE bool",
            Dialect::BpfParts { .. } => "WEIR_GLOBAL uint32_t",
        };
        self.sets.iter().flat_map(|set| set.define(function)).collect()
    }

    /// Whether rules read raw bits of frames.
    pub fn uses_raw(&self) -> bool {
        self.uses_raw
    }

    /// Raw bits that native code reads once per packet, into columns.
    pub(super) fn raw_columns(&self) -> &[Raw] {
        &self.raw_columns
    }

    /// The C name of the result of a find.
    pub fn find_name(&self, id: FindId) -> &str {
        &self.find_names[usize::from(id.0)]
    }

    /// Appends a test of one packet to the terms of an `&&`.
    pub fn terms(&self, test: &Test, terms: &mut Vec<String>) {
        match test {
            Test::Guard(guard) => terms.push(guard_expression(*guard).to_owned()),
            Test::Found { find, wanted, negated } => terms.push(self.found(*find, wanted, *negated)),
            Test::Value { subject, mask, set, negated } => {
                if let Subject::Card(answer) = subject {
                    let value = || self.value(*subject, *mask, set, *negated);
                    return self.answers().terms(*answer, (set, *negated), value, terms);
                }
                if let Subject::Raw(raw) = subject {
                    terms.push(self.raw_read(*raw));
                }
                terms.push(self.value(*subject, *mask, set, *negated));
            }
        }
    }

    fn collect(&mut self, nodes: &'a [Node], name: &str) {
        for node in nodes {
            let Node::When { test, body } = node else { continue };
            if let Test::Value { subject, mask, set, .. } = test {
                self.uses_raw |= matches!(subject, Subject::Raw(_)) && self.is_per_packet(test);
                if let Some(form) = self.form(*subject, *mask, set)
                    && self.large_set(*subject, *mask, set).is_none()
                {
                    let name = format!("{name}_set_{}", self.sets.len());
                    self.sets.push(LargeSet { subject: *subject, set, form, name });
                }
            }
            self.collect(body, name);
        }
    }

    fn found(&self, find: FindId, wanted: &Wanted, negated: bool) -> String {
        let label = format!("forget({})", self.find_name(find));
        match wanted {
            Wanted::Any if negated => format!("!{label}"),
            Wanted::Any => label,
            Wanted::Table(index) if negated => format!("!({label} & {:#x})", 1u32 << index),
            Wanted::Table(index) => format!("({label} & {:#x})", 1u32 << index),
            Wanted::Labels(labels) => {
                let set = ValueSet::new(labels.iter().map(|l| (u128::from(l.0), u128::from(l.0))));
                Scale { highest: u128::from(u32::MAX), hexadecimal: false }.compare(&label, &set, negated)
            }
        }
    }

    /// The expression that reads a column: from `packet`, or for packet `i` of a burst.
    fn read(&self, column: Column) -> String {
        match self.dialect {
            Dialect::Native => format!("packets->{}[i]", column.name),
            Dialect::Bpf | Dialect::BpfParts { .. } => column.expression.to_owned(),
        }
    }

    fn raw_read(&self, raw: Raw) -> String {
        let offset = Column::of_raw(raw).map(|offset| self.read(offset));
        match self.dialect {
            Dialect::Native => raw_bits(raw, "&frame", offset.as_deref()),
            Dialect::Bpf | Dialect::BpfParts { .. } => raw_bits(raw, "frame", offset.as_deref()),
        }
    }

    /// How answers of a card are tested.
    pub(super) fn answers(&self) -> Answers<'_> {
        let card = self.card.expect("`verify` requires a card where answers are tested");
        Answers { card, dialect: self.dialect }
    }

    /// The column of a burst that holds the subject, if there is one.
    pub(super) fn column(&self, subject: Subject) -> Option<(Width, String)> {
        match subject {
            Subject::Field(field) => Some((Column::of(field).width, Column::of(field).name.to_owned())),
            Subject::Raw(raw) => self.raw_columns.contains(&raw).then(|| (Width::of_raw(raw), raw_name(raw))),
            Subject::Card(answer) => Some(self.answers().column(answer)),
        }
    }

    /// Whether a test is evaluated packet by packet. This is so in BPF, and where no comparison of a column can
    /// evaluate it.
    pub(super) fn is_per_packet(&self, test: &Test) -> bool {
        let Test::Value { subject, mask, set, .. } = test else { return self.dialect.is_bpf() };
        self.dialect.is_bpf()
            || self.column(*subject).is_none()
            || self.form(*subject, *mask, set) == Some(Form::Switch)
    }

    fn form(&self, subject: Subject, mask: Option<u128>, set: &ValueSet) -> Option<Form> {
        if answer::is_flag(subject) {
            return None;
        }
        let compares = self.dialect == Dialect::Native && mask.is_none() && self.column(subject).is_some();
        set::form(subject, set, compares)
    }

    /// The declared set, if the set is too large to be compared inline.
    pub(super) fn large_set(&self, subject: Subject, mask: Option<u128>, set: &ValueSet) -> Option<&LargeSet<'a>> {
        let form = self.form(subject, mask, set)?;
        self.sets.iter().find(|known| known.set == set && known.subject.bits() == subject.bits() && known.form == form)
    }

    fn value(&self, subject: Subject, mask: Option<u128>, set: &ValueSet, negated: bool) -> String {
        if subject.bits() > 64 {
            let wide = match subject {
                Subject::Raw(_) => "raw".to_owned(),
                Subject::Field(field) => self.read(Column::of(field)),
                Subject::Card(_) => unreachable!("answers have at most 32 bits"),
            };
            return compare_wide(&wide, mask, set, negated);
        }
        let mut value = match subject {
            Subject::Raw(_) => "raw.lo".to_owned(),
            Subject::Field(field) => self.read(Column::of(field)),
            Subject::Card(answer) => self.answers().value(answer),
        };
        if let Some(mask) = mask {
            value = format!("{value} & {}", number(mask, true));
        }
        match self.large_set(subject, mask, set) {
            Some(large) => format!("{}{}({value})", if negated { "!" } else { "" }, large.name),
            None if mask.is_some() => Scale::of(subject, mask).compare(&format!("({value})"), set, negated),
            None => Scale::of(subject, mask).compare(&value, set, negated),
        }
    }
}

fn guard_expression(guard: Guard) -> &'static str {
    match guard {
        Guard::Any => "true",
        Guard::Vlan => "packet->vlan_tags",
        Guard::QinQ => "packet->vlan_tags == 2",
        Guard::Ipv4 => "packet->l3 == L3_IPV4",
        Guard::Ipv6 => "packet->l3 == L3_IPV6",
        Guard::Ip => "packet->l3 >= L3_IPV4",
        Guard::Tcp => "packet->l4 == L4_TCP",
        Guard::Udp => "packet->l4 == L4_UDP",
        Guard::Icmp => "packet->l4 == L4_ICMP",
        Guard::Icmp6 => "packet->l4 == L4_ICMP6",
        Guard::Ports => "(packet->l4 == L4_TCP || packet->l4 == L4_UDP || packet->l4 == L4_PORTS)",
        Guard::Transport => "packet->l4 != L4_NONE",
    }
}

/// [`Scale::compare`] for values of more than 64 bits.
fn compare_wide(value: &str, mask: Option<u128>, set: &ValueSet, negated: bool) -> String {
    let half = |number: u128| format!("{:#x}ULL, {:#x}ULL", (number >> 64) as u64, number as u64);
    let value = match mask {
        Some(mask) => format!("wide_and({value}, {})", half(mask)),
        None => value.to_owned(),
    };
    let tests: Vec<String> = set
        .ranges()
        .iter()
        .map(|&(start, end)| match start == end {
            true => format!("wide_is({value}, {})", half(start)),
            false => format!("wide_between({value}, {}, {})", half(start), half(end)),
        })
        .collect();
    match tests.as_slice() {
        [] => if negated { "true" } else { "false" }.to_owned(),
        [one] => format!("{}{one}", if negated { "!" } else { "" }),
        many => format!("{}({})", if negated { "!" } else { "" }, many.join(" || ")),
    }
}
