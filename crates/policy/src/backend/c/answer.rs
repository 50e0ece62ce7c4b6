//! Answers of a card as C: columns of a burst, or bytes of one packet's body.

use super::column::Width;
use super::dialect::Dialect;
use super::scale::{ALL, Scale, in_set};
use crate::field::{Answer, Field, Subject};
use crate::ir::answers::{Answering, Carried, header_of};
use crate::ir::{Effect, Node, Program, RuleId, Test, ValueSet};
use std::collections::BTreeSet;
use weir_abi::Action;

/// What native code keeps of the bodies of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnswerColumn {
    /// The label of a lookup, and whether the packet has the address.
    Label(u8),
    /// A value, or the headers of the packet.
    Value(Carried),
    /// A byte of the flags.
    Flags(u8),
}

impl AnswerColumn {
    /// The column that an answer is in.
    fn of(card: &Answering, answer: Answer) -> Self {
        let flags = |bit: usize| AnswerColumn::Flags((bit / 8) as u8);
        match answer {
            Answer::First => flags(0),
            Answer::Counted(index) => flags(card.body.counted_bit(index)),
            Answer::Pattern(index) => flags(card.body.pattern_bit(index)),
            Answer::Label(lookup) => AnswerColumn::Label(lookup),
            Answer::Field(field) => AnswerColumn::Value(carried(field)),
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            AnswerColumn::Label(lookup) => format!("card_label_{lookup}"),
            AnswerColumn::Value(value) => format!("card_{}", value.name()),
            AnswerColumn::Flags(byte) => format!("card_flags_{byte}"),
        }
    }

    pub(super) fn width(self) -> Width {
        match self {
            AnswerColumn::Label(_) => Width::U32,
            AnswerColumn::Value(value) => Width::of_bits(8 * value.source().1 as u8),
            AnswerColumn::Flags(_) => Width::U8,
        }
    }

    /// The declarations in the struct of a burst.
    pub(super) fn declare(self) -> Vec<String> {
        let mut lines = vec![self.width().declare(&self.name())];
        if let AnswerColumn::Label(_) = self {
            lines.push(Width::U8.declare(&format!("{}_there", self.name())));
        }
        lines
    }

    /// Offset in the body.
    pub(super) fn offset(self, card: &Answering) -> usize {
        match self {
            AnswerColumn::Label(lookup) => card.body.offset_of_lookup(lookup.into()),
            AnswerColumn::Value(value) => card.body.offset_of(value).expect("`verify` requires the value"),
            AnswerColumn::Flags(byte) => byte.into(),
        }
    }

    /// The expression for the value, in the body of one packet. A label is found by a search.
    fn read(self, card: &Answering, body: &str) -> String {
        let offset = self.offset(card);
        match (self, self.width()) {
            (AnswerColumn::Label(lookup), _) => {
                let slot = card.lookups[usize::from(lookup)].0;
                format!("answer_label(WEIR_TABLE(env, {slot}), {body} + {offset})")
            }
            (_, Width::U8) => format!("{body}[{offset}]"),
            (_, Width::U16) => format!("answer_u16({body} + {offset})"),
            (_, Width::U32 | Width::Wide) => format!("answer_u32({body} + {offset})"),
        }
    }

    /// The statement that sets it for packet `i` of a burst. `None` for labels, which are found for all packets.
    pub(super) fn fill(self, card: &Answering) -> Option<String> {
        match self {
            AnswerColumn::Label(_) => None,
            _ => {
                let cast = if self.width() == Width::U16 { "(uint16_t)" } else { "" };
                Some(format!("packets->{}[i] = {cast}{};", self.name(), self.read(card, "answers")))
            }
        }
    }
}

/// The columns that the tests of some nodes read.
pub(super) fn columns(card: Option<&Answering>, nodes: &[Node], found: &mut BTreeSet<AnswerColumn>) {
    for node in nodes {
        let Node::When { test, body } = node else { continue };
        if let (Some(card), Test::Value { subject: Subject::Card(answer), .. }) = (card, test) {
            found.insert(AnswerColumn::of(card, *answer));
            if let Answer::Field(_) = answer {
                found.insert(AnswerColumn::Value(Carried::Headers));
            }
        }
        columns(card, body, found);
    }
}

/// What carries a field.
fn carried(field: Field) -> Carried {
    Carried::of(field).expect("`verify` requires that a body has the field")
}

/// The rule and the number of `first` of a node that does nothing but decide where the card says that its rule is the
/// first.
pub(super) fn decided_by_first(program: &Program, node: &Node) -> Option<(RuleId, usize, Action)> {
    let Node::When { test, body } = node else { return None };
    let (Test::Value { subject: Subject::Card(Answer::First), mask: None, set, negated: false }, [Node::Rule(rule)]) =
        (test, &body[..])
    else {
        return None;
    };
    match (set.ranges(), &program.rule(*rule).effects[..]) {
        (&[(number, last)], [Effect::Verdict(action)]) if number == last && number > 0 => {
            Some((*rule, number as usize, *action))
        }
        _ => None,
    }
}

/// Bits of one byte of the flags, as the mask of the byte.
fn flags(card: &Answering, answer: Answer) -> Option<u128> {
    match answer {
        Answer::First => Some((1 << card.body.first_bits()) - 1),
        Answer::Counted(index) => Some(1 << (card.body.counted_bit(index) % 8)),
        Answer::Pattern(index) => Some(1 << (card.body.pattern_bit(index) % 8)),
        Answer::Label(_) | Answer::Field(_) => None,
    }
}

/// Whether an answer is a bit or number among the flags, which no declared set is compared with.
pub(super) fn is_flag(subject: Subject) -> bool {
    matches!(subject, Subject::Card(Answer::First | Answer::Counted(_) | Answer::Pattern(_)))
}

/// A set of values of one bit as values of the byte that it is in.
fn of_bit(mask: u128, set: &ValueSet, negated: bool) -> Option<bool> {
    match [0, 1].map(|value| set.contains(value & mask.min(1)) != negated) {
        [false, true] => Some(true),
        [true, false] => Some(false),
        _ => None,
    }
}

/// How a dialect tests answers.
pub(super) struct Answers<'a> {
    pub(super) card: &'a Answering,
    pub(super) dialect: Dialect,
}

impl Answers<'_> {
    /// The column of an answer.
    pub(super) fn column(&self, answer: Answer) -> (Width, String) {
        let column = AnswerColumn::of(self.card, answer);
        (column.width(), column.name())
    }

    /// The expression that reads an answer of one packet.
    pub(super) fn value(&self, answer: Answer) -> String {
        let column = AnswerColumn::of(self.card, answer);
        match self.dialect.is_bpf() {
            true => column.read(self.card, "env->answers"),
            false => format!("packets->{}[i]", column.name()),
        }
    }

    /// The masks of the packets whose answer passes a test of a whole burst. `value` is the mask of those whose value
    /// does, whether the packet has it or not.
    pub(super) fn masks(
        &self,
        answer: Answer,
        (set, negated): (&ValueSet, bool),
        value: impl FnOnce() -> String,
        masks: &mut Vec<String>,
    ) {
        let column = AnswerColumn::of(self.card, answer).name();
        if let Some(mask) = flags(self.card, answer) {
            masks.push(match answer {
                Answer::First if mask == 0xff => {
                    in_set(set, negated, |first, last| format!("u8_between(packets->{column}, {first}, {last})"))
                }
                Answer::First => in_set(set, negated, |first, last| {
                    format!("u8_masked(packets->{column}, {mask:#x}, {first}, {last})")
                }),
                _ => match of_bit(mask, set, negated) {
                    Some(wanted) => {
                        let wanted = if wanted { mask } else { 0 };
                        format!("u8_masked(packets->{column}, {mask:#x}, {wanted:#x}, {wanted:#x})")
                    }
                    None if set.contains(0) != negated => ALL.to_owned(),
                    None => "0".to_owned(),
                },
            });
            return;
        }
        match answer {
            Answer::Field(field) => {
                let bit = 1u16 << header_of(field.guard());
                masks.push(format!("u16_masked(packets->card_headers, {bit:#x}, {bit:#x}, {bit:#x})"));
            }
            // A packet without the address has label 0.
            Answer::Label(_) if set.contains(0) == negated => {}
            _ => masks.push(format!("u8_is(packets->{column}_there, true)")),
        }
        masks.push(value());
    }

    /// The terms of an `&&` for one packet, like [`Answers::masks`].
    pub(super) fn terms(
        &self,
        answer: Answer,
        (set, negated): (&ValueSet, bool),
        value: impl FnOnce() -> String,
        terms: &mut Vec<String>,
    ) {
        let (card, read) = (self.card, self.value(answer));
        if let Some(mask) = flags(card, answer) {
            terms.push(match answer {
                Answer::First => {
                    let scale = Scale { highest: mask, hexadecimal: false };
                    scale.compare(&format!("({read} & {mask:#x})"), set, negated)
                }
                _ => match of_bit(mask, set, negated) {
                    Some(true) => format!("({read} & {mask:#x})"),
                    Some(false) => format!("!({read} & {mask:#x})"),
                    None => (set.contains(0) != negated).to_string(),
                },
            });
            return;
        }
        match answer {
            Answer::Field(field) => {
                let bit = 1u16 << header_of(field.guard());
                let headers = match self.dialect.is_bpf() {
                    true => AnswerColumn::Value(Carried::Headers).read(card, "env->answers"),
                    false => "packets->card_headers[i]".to_owned(),
                };
                terms.push(format!("({headers} & {bit:#x})"));
            }
            Answer::Label(_) if set.contains(0) == negated => {}
            _ => terms.push(match self.dialect.is_bpf() {
                true => format!("answer_has_key(env->answers + {})", AnswerColumn::of(card, answer).offset(card)),
                false => format!("packets->{}_there[i]", AnswerColumn::of(card, answer).name()),
            }),
        }
        terms.push(value());
    }
}
