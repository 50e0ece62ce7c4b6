//! A program for a pipeline: headers, a parser, a control for each chain, extern objects. All printers read it.
//!
//! Places are named as in SWX: `h.<header>.<field>`, `m.<field>` for metadata.

use super::externs::Object;
use crate::ir::{RuleId, ValueSet};
use std::borrow::Cow;
use weir_abi::Action;

/// A whole program.
pub(super) struct Pipeline {
    /// The policy's name.
    pub(super) name: String,
    /// Headers in the order in which they are emitted; [`ARRIVAL`] first.
    pub(super) headers: Vec<Header>,
    /// The metadata that the program uses.
    pub(super) metadata: Vec<Place>,
    /// Extern objects.
    pub(super) objects: Vec<Object>,
    /// States of the parser. Each leads to later ones, or to none: then the packet is parsed.
    pub(super) states: Vec<State>,
    /// What happens to parsed packets before the chain of their posture and direction.
    pub(super) ingress: Vec<Step>,
    /// What happens to packets once they are decided.
    pub(super) last: Vec<Step>,
    /// The chains, by number.
    pub(super) controls: Vec<Control>,
    /// Number of counters.
    pub(super) counters: usize,
}

/// The header in front of each frame.
pub(super) const ARRIVAL: &str = "arrival";

/// A header.
pub(super) struct Header {
    pub(super) name: Cow<'static, str>,
    /// Name of its struct.
    pub(super) kind: &'static str,
    pub(super) fields: &'static [(&'static str, u16)],
    /// Whether the last field has at most its bits.
    pub(super) varies: bool,
    /// Whether it is only looked at, and stays in front of the parser.
    pub(super) is_ahead: bool,
}

/// What can be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) path: Cow<'static, str>,
    /// A multiple of 8, at most 64.
    pub(super) bits: u16,
}

/// A value that is read: some bits of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) place: Place,
    /// The value is shifted to the right, or to the left if this is negative.
    pub(super) shift: i8,
    /// The bits that are kept, after the shift.
    pub(super) mask: Option<u64>,
}

/// The right side of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Constant(u64),
    Load(Load),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Set,
    Add,
    Subtract,
    Or,
}

/// An assignment. The source of all operators but `Set` is a constant or a whole place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assign {
    pub(super) to: Place,
    pub(super) operator: Operator,
    pub(super) from: Source,
}

/// A value that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// At most 64 bits.
    Narrow(Load),
    /// The higher and the lower 64 bits.
    Wide(Load, Load),
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// Whether the value is in the set, inverted if `negated`.
    In { value: Value, set: ValueSet, negated: bool },
    /// Whether one place is above another.
    Above(Place, Place),
}

/// A state of the parser.
pub(super) struct State {
    pub(super) name: Cow<'static, str>,
    pub(super) extract: Option<Extract>,
    pub(super) steps: Vec<Assign>,
    pub(super) next: Next,
}

/// How a state reads a header.
pub(super) enum Extract {
    /// A header of a fixed size.
    Whole(Cow<'static, str>),
    /// A header whose size is in a place, in bytes.
    Varying(Cow<'static, str>, Place),
    /// A header that stays where it is.
    Ahead(Cow<'static, str>),
}

/// The state that follows.
pub(super) enum Next {
    Accept,
    To(Cow<'static, str>),
    Select { key: Load, cases: Vec<(u64, Target)>, otherwise: Target },
    If { term: Term, then: Target, otherwise: Target },
}

/// A state by name; `accept` ends the parser.
pub(super) type Target = Cow<'static, str>;

/// The target that ends the parser.
pub(super) const ACCEPT: &str = "accept";

/// A chain.
pub(super) struct Control {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

/// A step of a control.
pub(super) enum Step {
    /// A comment.
    Note(String),
    /// Runs the body if all terms hold.
    If {
        terms: Vec<Term>,
        body: Vec<Step>,
    },
    Assign(Assign),
    /// A rule matched: it counts, and decides the packet if it has a verdict and nothing is between.
    Match {
        rule: RuleId,
        verdict: Option<Action>,
    },
    /// Counts the packet.
    Count(Source),
    /// Calls an extern object.
    Call {
        object: usize,
        inputs: Vec<Source>,
        outputs: Vec<Place>,
    },
    /// Decides the packet.
    Decide {
        action: Action,
        reason: Source,
    },
}

impl Place {
    /// A field of a header.
    pub(super) const fn header(path: &'static str, bits: u16) -> Self {
        Place { path: Cow::Borrowed(path), bits }
    }

    /// A field of the metadata, by number.
    pub(super) fn numbered(name: &str, number: u16, bits: u16) -> Self {
        Place { path: Cow::Owned(format!("m.{name}_{number}")), bits }
    }

    /// Its name, if it is metadata.
    pub(super) fn metadata(&self) -> Option<&str> {
        self.path.strip_prefix("m.")
    }

    /// The whole place as a value.
    pub(super) fn load(&self) -> Load {
        Load { place: self.clone(), shift: 0, mask: None }
    }

    /// The highest value.
    pub(super) fn highest(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

impl Load {
    pub(super) fn shifted(self, shift: i8) -> Self {
        Load { shift, ..self }
    }

    pub(super) fn masked(self, mask: u64) -> Self {
        Load { mask: Some(self.mask.unwrap_or(u64::MAX) & mask), ..self }
    }

    /// The highest value.
    pub(super) fn highest(&self) -> u64 {
        let whole = match self.shift {
            0.. => self.place.highest() >> self.shift,
            _ => self.place.highest() << -self.shift,
        };
        match self.mask {
            Some(mask) => mask.min(whole),
            None => whole,
        }
    }

    /// Whether it is a place as it is.
    pub(super) fn is_plain(&self) -> bool {
        self.shift == 0 && self.mask.is_none()
    }
}

impl Assign {
    pub(super) fn set(to: &Place, from: Source) -> Self {
        Assign { to: to.clone(), operator: Operator::Set, from }
    }
}

impl Term {
    /// Whether a value is one of some numbers.
    pub(super) fn one_of(load: Load, numbers: &[u64]) -> Self {
        let set = ValueSet::new(numbers.iter().map(|&number| (number.into(), number.into())));
        Term::In { value: Value::Narrow(load), set, negated: false }
    }

    /// Whether a value is a number.
    pub(super) fn is(load: Load, number: u64) -> Self {
        Term::one_of(load, &[number])
    }

    /// Whether a value is not a number.
    pub(super) fn is_not(load: Load, number: u64) -> Self {
        let Term::In { value, set, .. } = Term::is(load, number) else { unreachable!("a set") };
        Term::In { value, set, negated: true }
    }

    /// Whether a value is below a number, which is not 0.
    pub(super) fn below(load: Load, number: u64) -> Self {
        let set = ValueSet::new([(0, u128::from(number) - 1)]);
        Term::In { value: Value::Narrow(load), set, negated: false }
    }
}
