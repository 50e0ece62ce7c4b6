//! Values as they are written: atoms, ranges, prefixes, sets and masks.

use super::Name;
use crate::source::Span;

/// The form of an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomKind {
    /// `ssh`
    Word,
    /// `22`, `0x16`, `10m`: a word that starts with a digit.
    Number,
    /// `192.0.2.1`
    Ipv4,
    /// `2001:db8::1`
    Ipv6,
    /// `"United States"`; the text excludes the quotes.
    String,
}

/// A single token of a value.
#[derive(Clone, Debug)]
pub struct Atom {
    /// Its form.
    pub kind: AtomKind,
    /// Its text.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// An atom or a variable.
#[derive(Clone, Debug)]
pub enum Operand {
    /// An atom.
    Atom(Atom),
    /// `$NAME`; the span includes the `$`.
    Variable(Name),
}

impl Operand {
    /// Where.
    pub fn span(&self) -> Span {
        match self {
            Operand::Atom(atom) => atom.span,
            Operand::Variable(name) => name.span,
        }
    }
}

/// One value, prefix or range.
#[derive(Clone, Debug)]
pub enum Value {
    /// `22`, `$SSH`
    Single(Operand),
    /// `192.0.2.0/24`
    Prefix {
        /// The address.
        address: Atom,
        /// The length.
        length: Atom,
    },
    /// `1024-65535`
    Range {
        /// The first.
        start: Operand,
        /// The last.
        end: Operand,
    },
    /// `syn | ack`: at least two operands.
    Bits(Vec<Operand>),
}

impl Value {
    /// Where.
    pub fn span(&self) -> Span {
        match self {
            Value::Single(operand) => operand.span(),
            Value::Prefix { address, length } => address.span.to(length.span),
            Value::Range { start, end } => start.span().to(end.span()),
            Value::Bits(operands) => {
                let (first, last) = (&operands[0], &operands[operands.len() - 1]);
                first.span().to(last.span())
            }
        }
    }
}

/// The right side of a match.
#[derive(Clone, Debug)]
pub enum Values {
    /// `22`
    One(Value),
    /// `syn,ack`: at least two values, without braces.
    List(Vec<Value>),
    /// `{ 22, 80-90 }`
    Set {
        /// The elements.
        elements: Vec<Value>,
        /// The set with its braces.
        span: Span,
    },
    /// `syn / syn,ack`
    Masked {
        /// The values; their bits are combined by OR.
        value: Vec<Value>,
        /// The masks; their bits are combined by OR.
        mask: Vec<Value>,
    },
}

impl Values {
    /// Where.
    pub fn span(&self) -> Span {
        let across = |first: &[Value], last: &[Value]| first[0].span().to(last[last.len() - 1].span());
        match self {
            Values::One(value) => value.span(),
            Values::List(values) => across(values, values),
            Values::Set { span, .. } => *span,
            Values::Masked { value, mask } => across(value, mask),
        }
    }
}
