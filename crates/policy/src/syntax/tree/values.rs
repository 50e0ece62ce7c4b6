//! Values as they are written: atoms, ranges, prefixes, sets and masks.

use super::Name;
use crate::source::Span;

/// What an atom looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomKind {
    /// `ssh`
    Word,
    /// `22`, `0x16`, `10m`: starts with a digit.
    Number,
    /// `192.0.2.1`
    Ipv4,
    /// `2001:db8::1`
    Ipv6,
    /// `"United States"`; the text is without the quotes.
    String,
}

/// The smallest value.
#[derive(Clone, Debug)]
pub struct Atom {
    /// What it looks like.
    pub kind: AtomKind,
    /// Its text.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// An atom or what stands for one.
#[derive(Clone, Debug)]
pub enum Operand {
    /// Itself.
    Atom(Atom),
    /// `$NAME`; the span covers the `$`.
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
    /// `syn | ack`, two operands at least.
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

/// What a field is compared with.
#[derive(Clone, Debug)]
pub enum Values {
    /// `22`
    One(Value),
    /// `syn,ack`: two values at least, without braces.
    List(Vec<Value>),
    /// `{ 22, 80-90 }`
    Set {
        /// The elements.
        elements: Vec<Value>,
        /// With the braces.
        span: Span,
    },
    /// `syn / syn,ack`
    Masked {
        /// The values, bits to be or-ed.
        value: Vec<Value>,
        /// The mask, bits to be or-ed.
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
