//! Sets of many ranges: what is declared for them before a chain's rules.

use super::column::Width;
use super::scale::Scale;
use crate::field::Subject;
use crate::ir::{ValueSet, print};

/// Up to so many ranges are compared in place.
const INLINE_RANGES: usize = 6;
/// Up to so many ranges a column is compared with one after the other, about a tenth of a cycle a packet each; in more, each packet
/// looks for its own.
const COMPARED_RANGES: usize = 64;

/// What a large set is looked up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An array of ranges, all of which a column is compared with.
    Ranges,
    /// A function with a `switch`, of which the compiler makes a search tree or a bit map.
    Switch,
}

/// The form of a set; `None` if it is compared in place. `compares` says whether a column can be compared with it.
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

/// A set that is declared.
pub(super) struct LargeSet<'a> {
    /// What was first looked up in it; others of the same width share it.
    pub(super) subject: Subject,
    pub(super) set: &'a ValueSet,
    pub(super) form: Form,
    /// In C.
    pub(super) name: String,
}

impl LargeSet<'_> {
    /// The declaration, line by line; of a function, what begins it.
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
