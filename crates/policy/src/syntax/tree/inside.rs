//! The syntax of `inside { ... }`.

use super::{Name, Value};
use crate::source::Span;

/// `inside { 192.0.2.0/24, @customers }`
#[derive(Clone, Debug)]
pub struct Inside {
    /// The whole item.
    pub span: Span,
    /// The protected addresses, in order.
    pub members: Vec<InsideMember>,
}

/// Protected addresses.
#[derive(Clone, Debug)]
pub enum InsideMember {
    /// `192.0.2.0/24`, `$NETS`
    Addresses(Value),
    /// `@customers`; the span of the name includes the `@`.
    Table(Name),
}
