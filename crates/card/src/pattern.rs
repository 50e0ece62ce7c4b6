//! The patterns of a rule, and what a card can do with each.
//!
//! A pattern is one match of a rule, with the header that it implies. A header that no other match of the rule implies
//! is a pattern of its own.

use crate::TableSizes;
use crate::category::Kind;
use crate::field::CardField;
use crate::profile::Profile;
use weir_policy::field::{Field, Guard, Subject};
use weir_policy::ir::print::subject_name;
use weir_policy::ir::{Chain, FindId, Program, SlotContents, SlotId, Test, ValueSet, Wanted};

/// A pattern with what the card can do with it, and why.
#[derive(Clone, Debug)]
pub(crate) struct Pattern<'a> {
    pub what: What<'a>,
    pub kind: Kind,
    /// `tcp dport` is compared on the card.
    pub why: String,
}

/// A match of a rule.
#[derive(Clone, Debug)]
pub(crate) enum What<'a> {
    /// The packet has a header.
    Header(Guard),
    /// A field, whose header is implied.
    Value { field: CardField, of: Field, mask: Option<u128>, set: &'a ValueSet, negated: bool },
    /// A lookup of an IPv4 address in a table.
    Found { table: TableKey, wanted: &'a Wanted, negated: bool },
    /// What a card cannot do; only the software needs the test.
    Other,
}

/// A lookup on the card: one table and one address of the packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableKey {
    /// The name of the table.
    pub name: String,
    /// The slot that holds it.
    pub slot: SlotId,
    /// Its index among the tables of the slot.
    pub index: usize,
    /// The address: `ip saddr` or `ip daddr`.
    pub key: Field,
}

/// What a pattern depends on.
pub(crate) struct Reader<'a> {
    pub program: &'a Program,
    pub chain: &'a Chain,
    pub profile: &'a Profile,
    pub sizes: &'a dyn TableSizes,
}

impl<'a> Reader<'a> {
    /// The patterns of a rule's tests, each with the index of its test.
    pub fn patterns(&self, tests: &[&'a Test]) -> Vec<(usize, Pattern<'a>)> {
        let implied: Vec<Guard> = tests.iter().filter_map(|test| self.implies(test)).collect();
        let is_own = |test: &Test| match test {
            Test::Guard(guard) => *guard != Guard::Any && !implied.iter().any(|held| held.implies(*guard)),
            _ => true,
        };
        let own = tests.iter().enumerate().filter(|(_, test)| is_own(test));
        own.map(|(index, test)| (index, self.pattern(test))).collect()
    }

    /// The header that a match implies.
    fn implies(&self, test: &Test) -> Option<Guard> {
        match test {
            Test::Guard(_) => None,
            Test::Value { subject, .. } => Some(subject.guard()),
            Test::Found { find, .. } => Some(self.chain.finds[usize::from(find.0)].key.guard()),
        }
    }

    fn pattern(&self, test: &'a Test) -> Pattern<'a> {
        match test {
            Test::Guard(guard) => Pattern {
                what: What::Header(*guard),
                kind: Kind::Complete,
                why: format!("the card's parser knows `{}`", guard.name()),
            },
            Test::Value { subject, mask, set, negated } => self.value(*subject, *mask, set, *negated),
            Test::Found { find, wanted, negated } => self.found(*find, wanted, *negated),
        }
    }

    fn value(&self, subject: Subject, mask: Option<u128>, set: &'a ValueSet, negated: bool) -> Pattern<'a> {
        let name = subject_name(subject);
        let other = |why: String| Pattern { what: What::Other, kind: Kind::Not, why };
        let of = match subject {
            Subject::Field(Field::CtState) => return other("a flow's state is the software's".to_owned()),
            Subject::Field(Field::MetaExceeded) => return other("limits are the software's".to_owned()),
            Subject::Field(field) => field,
            Subject::Raw(_) | Subject::Card(_) => return other(format!("the card does not parse `{name}`")),
        };
        let Some(field) = CardField::of(of) else { return other(format!("the card does not parse `{name}`")) };
        let what = What::Value { field, of, mask, set, negated };
        let ranges = set.ranges().len();
        let is_compared = self.profile.matches.contains(&field);
        if is_compared && ranges <= self.profile.ranges {
            return Pattern { what, kind: Kind::Complete, why: format!("the card compares `{name}`") };
        }
        let lacks = match is_compared {
            true => format!("a pattern has {} ranges, `{name}` needs {ranges}", self.profile.ranges),
            false => format!("the card does not compare `{name}`"),
        };
        if self.profile.carries.contains(&field) && field.carried().is_some() {
            return Pattern { what, kind: Kind::Partial, why: format!("{lacks}, but sends it") };
        }
        other(lacks)
    }

    fn found(&self, find: FindId, wanted: &'a Wanted, negated: bool) -> Pattern<'a> {
        let find = self.chain.finds[usize::from(find.0)];
        let slot = self.program.slot(find.slot);
        let index = match wanted {
            Wanted::Table(index) => usize::from(*index),
            Wanted::Any | Wanted::Labels(_) => 0,
        };
        let other = |why: String| Pattern { what: What::Other, kind: Kind::Not, why };
        let SlotContents::Tables(names) = &slot.contents else {
            return other("limits are the software's".to_owned());
        };
        let name = names[index].clone();
        if !matches!(find.key, Field::IpSaddr | Field::IpDaddr) {
            return other(format!("the card looks up IPv4 addresses only, not `{}`", find.key.name()));
        }
        if slot.dynamic.is_some() {
            return other(format!("@{name} changes while packets pass"));
        }
        if self.profile.lookups == 0 {
            return other("the card has no lookups".to_owned());
        }
        match self.sizes.blocks(&name) {
            None => other(format!("@{name} does not fit the layout of the card's lookups")),
            Some(blocks) if blocks > self.profile.blocks => {
                other(format!("@{name} has {blocks} blocks, the card's lookups {}", self.profile.blocks))
            }
            Some(_) => {
                let why = format!("the card begins the lookup of `{}` in @{name}", find.key.name());
                let table = TableKey { name, slot: find.slot, index, key: find.key };
                Pattern { what: What::Found { table, wanted, negated }, kind: Kind::Partial, why }
            }
        }
    }
}
