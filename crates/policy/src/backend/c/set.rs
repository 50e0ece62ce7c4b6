//! Sets of many ranges, and their declarations before the rules of a chain.

use super::column::Width;
use super::scale::Scale;
use crate::field::Subject;
use crate::ir::{ValueSet, print};

/// Most ranges that are compared inline.
const INLINE_RANGES: usize = 6;
/// Most ranges that a column is compared with one after the other, at about a tenth of a cycle per packet and range. A
/// set with more ranges is searched packet by packet.
const COMPARED_RANGES: usize = 64;

/// The form in which a large set is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An array of ranges. A column is compared with every one.
    Ranges,
    /// A function with a `switch`. The compiler turns it into a search tree or a bit map.
    Switch,
}

/// The form of a set; `None` if it is compared inline. `compares` says whether a column can be compared with it.
pub(super) fn form(subject: Subject, set: &ValueSet, compares: bool) -> Option<Form> {
    let ranges = set.ranges().len();
    if ranges <= INLINE_RANGES || subject.bits() > 64 {
        None
    } else if compares && subject.bits() <= 32 && ranges <= COMPARED_RANGES {
        Some(Form::Ranges)
    } else {
        Some(Form::Switch)
    }
}

/// A declared set.
pub(super) struct LargeSet<'a> {
    /// The first subject that uses it. Others of the same width share it.
    pub(super) subject: Subject,
    pub(super) set: &'a ValueSet,
    pub(super) form: Form,
    /// The C name.
    pub(super) name: String,
}

impl LargeSet<'_> {
    /// The declaration, line by line. `function` is the start of a function's declaration.
    pub(super) fn define(&self, function: &str) -> Vec<String> {
        let LargeSet { subject, set, form, name } = self;
        let cited = format!("/* {} in {} ranges */", print::subject_name(*subject), set.ranges().len());
        let mut lines = vec![String::new(), cited];
        lines.extend(match form {
            Form::Ranges => ranges(name, *subject, set),
            Form::Switch => switch(&format!("{function} {name}"), *subject, set),
        });
        lines
    }
}

fn ranges(name: &str, subject: Subject, set: &ValueSet) -> Vec<String> {
    let scale = Scale::of(subject, None);
    let width = Width::of_bits(subject.bits());
    let mut lines = vec![format!("static const {} {name}[][2] = {{", width.value())];
    for &(start, end) in set.ranges() {
        lines.push(format!("\t{{{}, {}}},", scale.constant(start), scale.constant(end)));
    }
    lines.push("};".to_owned());
    lines
}

fn switch(head: &str, subject: Subject, set: &ValueSet) -> Vec<String> {
    let scale = Scale::of(subject, None);
    let kind = if subject.bits() > 32 { "uint64_t" } else { "uint32_t" };
    let mut lines = vec![format!("{head}({kind} value)"), "{".to_owned(), "\tswitch (value) {".to_owned()];
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
