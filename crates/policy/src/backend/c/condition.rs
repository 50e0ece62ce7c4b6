//! Tests of one packet as C expressions.

use super::Target;
use super::column::Column;
use crate::field::{Guard, Notation, Raw, Subject};
use crate::ir::{Chain, FindId, LabelId, Node, Program, Test, ValueSet, print, symbol};

/// Up to so many ranges are compared in place; more get a function with a `switch`.
const INLINE_RANGES: usize = 6;

/// The expressions of one chain, and what has to be declared for them.
pub struct Conditions<'a> {
    /// C name of each find, by id.
    find_names: Vec<String>,
    /// Sets that have a function, with its name.
    sets: Vec<(&'a ValueSet, u8, String)>,
    /// Their definitions.
    definitions: Vec<String>,
    uses_raw: bool,
    target: Target,
}

impl<'a> Conditions<'a> {
    /// Looks through a chain.
    pub fn new(program: &Program, chain: &'a Chain, name: &str, target: Target) -> Self {
        let mut find_names: Vec<String> = Vec::new();
        for find in &chain.finds {
            let key = find.key.name().replace("ip6 ", "").replace("ip ", "");
            let mut base = format!("{}_{key}", symbol(&program.slot(find.slot).name));
            while base.starts_with(|c: char| c.is_ascii_digit()) || find_names.contains(&base) {
                base = format!("t{}_{base}", find.slot.0);
            }
            find_names.push(base);
        }
        let mut conditions = Conditions { find_names, sets: vec![], definitions: vec![], uses_raw: false, target };
        conditions.collect(&chain.body, name);
        conditions
    }

    /// The functions of large sets, line by line.
    pub fn sets(&self) -> &[String] {
        &self.definitions
    }

    /// Whether the chain reads raw bits.
    pub fn uses_raw(&self) -> bool {
        self.uses_raw
    }

    /// The C name of what a find found.
    pub fn find_name(&self, id: FindId) -> &str {
        &self.find_names[usize::from(id.0)]
    }

    /// Adds the test of one packet to the terms of an `&&`.
    pub fn terms(&self, test: &Test, terms: &mut Vec<String>) {
        match test {
            Test::Guard(guard) => terms.push(guard_expression(*guard).to_owned()),
            Test::Found { find, labels, negated } => terms.push(self.found(*find, labels.as_deref(), *negated)),
            Test::Value { subject, mask, set, negated } => {
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
            if let Test::Value { subject, set, .. } = test {
                self.uses_raw |= matches!(subject, Subject::Raw(_));
                let known = self.sets.iter().any(|(known, bits, _)| *known == set && *bits == subject.bits());
                if set.ranges().len() > INLINE_RANGES && subject.bits() <= 64 && !known {
                    let function = format!("{name}_set_{}", self.sets.len());
                    self.definitions.extend(define_set(&function, *subject, set));
                    self.sets.push((set, subject.bits(), function));
                }
            }
            self.collect(body, name);
        }
    }

    fn found(&self, find: FindId, labels: Option<&[LabelId]>, negated: bool) -> String {
        let label = format!("forget({})", self.find_name(find));
        match labels {
            None if negated => format!("!{label}"),
            None => label,
            Some(labels) => {
                let set = ValueSet::new(labels.iter().map(|l| (u128::from(l.0), u128::from(l.0))));
                Scale { highest: u128::from(u32::MAX), hexadecimal: false }.compare(&label, &set, negated)
            }
        }
    }

    /// Where a field of the packet, or of packet `i` of a burst, is read.
    fn read(&self, column: Column) -> String {
        match self.target {
            Target::Native => format!("packets->{}[i]", column.name),
            Target::Bpf => column.expression.to_owned(),
        }
    }

    /// Reads raw bits into `raw`; false if the frame ends before them.
    fn raw_read(&self, raw: Raw) -> String {
        let base = Column::of_raw(raw).map_or("0".to_owned(), |offset| self.read(offset));
        let frame = match self.target {
            Target::Native => "&frame",
            Target::Bpf => "frame",
        };
        let (byte, bit) = (raw.offset_bits / 8, raw.offset_bits % 8);
        format!("raw_bits({frame}, {base} + {byte}, {bit}, {}, &raw)", raw.bits)
    }

    /// The function of a set that is too large to be compared in place.
    pub(super) fn set_function(&self, subject: Subject, set: &ValueSet) -> Option<&str> {
        let known = self.sets.iter().find(|(known, bits, _)| *known == set && *bits == subject.bits());
        known.map(|(_, _, function)| function.as_str())
    }

    fn value(&self, subject: Subject, mask: Option<u128>, set: &ValueSet, negated: bool) -> String {
        if subject.bits() > 64 {
            let wide = match subject {
                Subject::Raw(_) => "raw".to_owned(),
                Subject::Field(field) => self.read(Column::of(field)),
            };
            return compare_wide(&wide, mask, set, negated);
        }
        let mut value = match subject {
            Subject::Raw(_) => "raw.lo".to_owned(),
            Subject::Field(field) => self.read(Column::of(field)),
        };
        if let Some(mask) = mask {
            value = format!("({value} & {})", number(mask, true));
        }
        match self.set_function(subject, set) {
            Some(function) => format!("{}{function}({value})", if negated { "!" } else { "" }),
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

/// A constant: hexadecimal where bits or addresses are meant, with a suffix where C needs one.
pub(super) fn number(value: u128, hexadecimal: bool) -> String {
    let suffix = match value {
        0..=0x7fff_ffff => "",
        0x8000_0000..=0xffff_ffff => "U",
        _ => "ULL",
    };
    if hexadecimal { format!("{value:#x}{suffix}") } else { format!("{value}{suffix}") }
}

/// How constants that a value is compared with are written.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// The highest value there is.
    pub(super) highest: u128,
    /// Bits and addresses are read in hexadecimal.
    pub(super) hexadecimal: bool,
}

impl Scale {
    pub(super) fn of(subject: Subject, mask: Option<u128>) -> Self {
        let bits = match subject {
            Subject::Raw(_) => true,
            Subject::Field(field) => field.notation() == Notation::Ipv4Address,
        };
        Scale { highest: u128::MAX >> (128 - subject.bits()), hexadecimal: bits || mask.is_some() }
    }

    pub(super) fn constant(self, value: u128) -> String {
        number(value, self.hexadecimal)
    }

    /// `x == 22`, `x >= 80 && x <= 90`.
    fn inside(self, value: &str, start: u128, end: u128) -> String {
        let (low, high) = (self.constant(start), self.constant(end));
        match (start, end) {
            _ if start == end => format!("{value} == {low}"),
            (0, _) if end >= self.highest => "true".to_owned(),
            (0, _) => format!("{value} <= {high}"),
            _ if end >= self.highest => format!("{value} >= {low}"),
            _ => format!("{value} >= {low} && {value} <= {high}"),
        }
    }

    fn outside(self, value: &str, start: u128, end: u128) -> String {
        let (low, high) = (self.constant(start), self.constant(end));
        match (start, end) {
            _ if start == end => format!("{value} != {low}"),
            (0, _) => format!("{value} > {high}"),
            _ if end >= self.highest => format!("{value} < {low}"),
            _ => format!("({value} < {low} || {value} > {high})"),
        }
    }

    /// Whether the value is, or negated is not, in the set: a term of an `&&`.
    fn compare(self, value: &str, set: &ValueSet, negated: bool) -> String {
        match set.ranges() {
            [] => if negated { "true" } else { "false" }.to_owned(),
            &[(start, end)] if negated => self.outside(value, start, end),
            &[(start, end)] => self.inside(value, start, end),
            ranges => {
                let tests = ranges.iter().map(|&(start, end)| match self.inside(value, start, end) {
                    test if test.contains(" && ") => format!("({test})"),
                    test => test,
                });
                let tests = tests.collect::<Vec<_>>().join(" || ");
                format!("{}({tests})", if negated { "!" } else { "" })
            }
        }
    }
}

/// The same for 128 bits.
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

/// A function that looks a value up in a large set; the compiler makes a search tree or a bit map of the `switch`.
fn define_set(function: &str, subject: Subject, set: &ValueSet) -> Vec<String> {
    let scale = Scale::of(subject, None);
    let kind = if subject.bits() > 32 { "uint64_t" } else { "uint32_t" };
    let mut lines = vec![
        String::new(),
        format!("/* {} in {} ranges */", print::subject_name(subject), set.ranges().len()),
        format!("WEIR_INLINE bool {function}({kind} value)"),
        "{".to_owned(),
        "\tswitch (value) {".to_owned(),
    ];
    for &(start, end) in set.ranges() {
        lines.push(match start == end {
            true => format!("\tcase {}:", scale.constant(start)),
            false => format!("\tcase {} ... {}:", scale.constant(start), scale.constant(end)),
        });
    }
    for line in ["\t\treturn true;", "\tdefault:", "\t\treturn false;", "\t}", "}"] {
        lines.push(line.to_owned());
    }
    lines
}
