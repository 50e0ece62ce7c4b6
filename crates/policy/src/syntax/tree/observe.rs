//! The syntax of `observe { ... }`.

use super::{Atom, Name, Value};
use crate::source::Span;

/// `observe { ... }`
#[derive(Clone, Debug)]
pub struct Observe {
    /// The whole item.
    pub span: Span,
    /// Its settings, in order.
    pub settings: Vec<ObserveSetting>,
}

/// A setting of `observe`.
#[derive(Clone, Debug)]
pub enum ObserveSetting {
    /// `size 100000`
    Size(Atom),
    /// `each address`, `each ip/24`, `each ip6/64`
    Each(Name, Option<Atom>),
    /// `inside { 192.0.2.0/24, $NETS }`
    Inside(Vec<Value>, Span),
}

impl ObserveSetting {
    /// Where it is written.
    pub fn span(&self) -> Span {
        match self {
            ObserveSetting::Size(atom) => atom.span,
            ObserveSetting::Each(of, length) => length.as_ref().map_or(of.span, |length| of.span.to(length.span)),
            ObserveSetting::Inside(_, span) => *span,
        }
    }

    /// What may be set once.
    pub fn name(&self) -> String {
        match self {
            ObserveSetting::Size(_) => "size".to_owned(),
            ObserveSetting::Each(of, _) => format!("each {}", of.text),
            ObserveSetting::Inside(..) => "inside".to_owned(),
        }
    }
}
