//! What a card has left while rules are placed on it.

use crate::body::BodyLayout;
use crate::field::{CardField, Carried};
use crate::pattern::{Pattern, TableKey, What};
use crate::profile::Profile;
use crate::program::{Act, CardPattern, CardProgram, CardRule, Compare};
use std::collections::BTreeSet;
use weir_abi::card::{BODY_BYTES_MAX, FIRST_BITS_MAX, FLAGS_BITS_MAX};
use weir_policy::field::{Answer, Subject};
use weir_policy::ir::{RuleId, Test, ValueSet, Wanted};

/// Most rules that may end the chain on a card.
const ENDS_MAX: usize = (1 << FIRST_BITS_MAX) - 1;

/// The card's program so far. Placing a rule is tried on a copy, so a rule that does not fit leaves nothing behind.
#[derive(Clone, Debug)]
pub(crate) struct Room<'p> {
    profile: &'p Profile,
    patterns: Vec<CardPattern>,
    /// The bit in the body of each pattern that is sent.
    sent: Vec<Option<usize>>,
    rules: Vec<CardRule>,
    lookups: Vec<TableKey>,
    dropped: Vec<RuleId>,
    carried: BTreeSet<Carried>,
    ends: usize,
    counted: usize,
}

impl<'p> Room<'p> {
    pub fn new(profile: &'p Profile) -> Self {
        Room {
            profile,
            patterns: vec![],
            sent: vec![],
            rules: vec![],
            lookups: vec![],
            dropped: vec![],
            carried: BTreeSet::new(),
            ends: 0,
            counted: 0,
        }
    }

    /// Places a rule whose packets the card drops.
    pub fn drop(&mut self, rule: RuleId, patterns: &[Pattern<'_>]) -> Result<(), String> {
        self.attempt(|room| {
            if room.dropped.len() == room.profile.counters {
                return Err("the card has no counter left for what it drops".to_owned());
            }
            room.dropped.push(rule);
            let counter = room.dropped.len() - 1;
            room.rule(patterns, Act::Drop(counter as u8));
            Ok(())
        })
    }

    /// Places a rule that ends the chain. The result is the software's test.
    pub fn end(&mut self, patterns: &[Pattern<'_>]) -> Result<Vec<Test>, String> {
        self.attempt(|room| {
            if room.ends == ENDS_MAX {
                return Err(format!("`first` numbers {ENDS_MAX} rules"));
            }
            room.ends += 1;
            let number = room.ends;
            room.rule(patterns, Act::End(number as u8));
            Ok(vec![is(Answer::First, number as u128)])
        })
    }

    /// Places a rule that does not end the chain.
    pub fn count(&mut self, patterns: &[Pattern<'_>]) -> Result<Vec<Test>, String> {
        self.attempt(|room| {
            let bit = room.counted;
            room.counted += 1;
            room.rule(patterns, Act::Count(bit as u8));
            Ok(vec![is(Answer::Counted(bit as u8), 1)])
        })
    }

    /// Places the patterns of a rule that the software finishes.
    pub fn assist(&mut self, patterns: &[Pattern<'_>]) -> Result<Vec<Test>, String> {
        self.attempt(|room| Ok(patterns.iter().filter_map(|pattern| room.answer(pattern)).collect()))
    }

    fn attempt<T>(&mut self, place: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let mut room = self.clone();
        let placed = place(&mut room)?;
        room.fits()?;
        *self = room;
        Ok(placed)
    }

    fn fits(&self) -> Result<(), String> {
        let Profile { patterns, rules, lookups, metadata, .. } = self.profile;
        let body = self.body();
        let bytes = (metadata / 8).min(BODY_BYTES_MAX);
        let bounds = [
            (self.patterns.len(), *patterns, "patterns"),
            (self.rules.len(), *rules, "rules"),
            (self.lookups.len(), *lookups, "lookups"),
            (body.flags_bits(), FLAGS_BITS_MAX, "bits of flags"),
            (body.bytes(), bytes, "bytes of metadata"),
        ];
        match bounds.into_iter().find(|(taken, room, _)| taken > room) {
            Some((taken, room, what)) => Err(format!("the card has {room} {what}, this would take {taken}")),
            None => Ok(()),
        }
    }

    fn rule(&mut self, patterns: &[Pattern<'_>], act: Act) {
        let patterns = patterns.iter().map(|pattern| self.compared(pattern)).collect();
        self.rules.push(CardRule { patterns, act });
    }

    /// The index of a complete pattern, which rules share.
    fn compared(&mut self, pattern: &Pattern<'_>) -> usize {
        let wanted = match &pattern.what {
            What::Header(header) => CardPattern { header: *header, compare: None },
            What::Value { field, of, mask, set, negated } => {
                let (mask, ranges) = (mask.map_or(u32::MAX, |mask| mask as u32), ranges(set));
                let compare = Compare { field: *field, mask, ranges, negated: *negated };
                CardPattern { header: of.guard(), compare: Some(compare) }
            }
            What::Found { .. } | What::Other => panic!("compiler bug: a pattern that the card cannot compare"),
        };
        let known = self.patterns.iter().position(|known| *known == wanted);
        known.unwrap_or_else(|| {
            self.patterns.push(wanted);
            self.sent.push(None);
            self.patterns.len() - 1
        })
    }

    /// The software's test of what the card answers about a pattern. `None` if it answers nothing.
    fn answer(&mut self, pattern: &Pattern<'_>) -> Option<Test> {
        use crate::category::Kind;
        match (pattern.kind, &pattern.what) {
            (Kind::Not, _) => None,
            (Kind::Complete, _) => {
                let index = self.compared(pattern);
                let next = self.sent.iter().flatten().count();
                let bit = *self.sent[index].get_or_insert(next);
                Some(is(Answer::Pattern(bit as u8), 1))
            }
            (Kind::Partial, What::Value { field, of, mask, set, negated }) => {
                self.carried.extend([Carried::Headers, carried(*field)]);
                let (subject, set) = (Subject::Card(Answer::Field(*of)), (*set).clone());
                Some(Test::Value { subject, mask: *mask, set, negated: *negated })
            }
            (Kind::Partial, What::Found { table, wanted, negated }) => {
                let known = self.lookups.iter().position(|known| known == table);
                let lookup = known.unwrap_or_else(|| {
                    self.lookups.push(table.clone());
                    self.lookups.len() - 1
                });
                let subject = Subject::Card(Answer::Label(lookup as u8));
                Some(Test::Value { subject, mask: None, set: labels(wanted), negated: *negated })
            }
            (Kind::Partial, What::Header(_) | What::Other) => panic!("compiler bug: a pattern that cannot be partial"),
        }
    }

    fn body(&self) -> BodyLayout {
        BodyLayout {
            ends: self.ends,
            counted: self.counted,
            patterns: self.sent.iter().flatten().count(),
            carried: self.carried.iter().copied().collect(),
            lookups: self.lookups.len(),
        }
    }

    /// The whole program. Patterns that are sent come first, in the order of their bits.
    pub fn program(self, options_alone: bool) -> CardProgram {
        let body = self.body();
        let mut rest = body.patterns..;
        let number: Vec<usize> =
            self.sent.iter().map(|bit| bit.unwrap_or_else(|| rest.next().expect("without end"))).collect();
        let mut patterns: Vec<(usize, CardPattern)> = number.iter().copied().zip(self.patterns).collect();
        patterns.sort_by_key(|(number, _)| *number);
        let mut rules = self.rules;
        // Stable: rules of a kind keep their order.
        rules.sort_by_key(|rule| match rule.act {
            Act::Count(_) => 0,
            Act::Drop(_) => 1,
            Act::End(_) => 2,
        });
        rules.iter_mut().flat_map(|rule| &mut rule.patterns).for_each(|pattern| *pattern = number[*pattern]);
        CardProgram {
            patterns: patterns.into_iter().map(|(_, pattern)| pattern).collect(),
            rules,
            lookups: self.lookups,
            options_alone,
            dropped: self.dropped,
            body,
        }
    }
}

fn carried(field: CardField) -> Carried {
    field.carried().expect("a profile carries only what bodies may have")
}

/// The test that an answer is a value.
fn is(answer: Answer, value: u128) -> Test {
    Test::Value { subject: Subject::Card(answer), mask: None, set: ValueSet::new([(value, value)]), negated: false }
}

/// The labels that a lookup of one table must find.
fn labels(wanted: &Wanted) -> ValueSet {
    match wanted {
        Wanted::Any | Wanted::Table(_) => ValueSet::new([(1, u32::MAX.into())]),
        Wanted::Labels(labels) => ValueSet::new(labels.iter().map(|label| (label.0.into(), label.0.into()))),
    }
}

/// The ranges of a field of up to 32 bits. A set may name values that no field has.
fn ranges(set: &ValueSet) -> Vec<(u32, u32)> {
    let narrow = |&(first, last): &(u128, u128)| {
        let last = u32::try_from(last).unwrap_or(u32::MAX);
        u32::try_from(first).ok().map(|first| (first, last))
    };
    set.ranges().iter().filter_map(narrow).collect()
}
