//! Statements that add addresses to tables.

use super::{Atom, Name, Subject};
use crate::source::Span;

/// `add @suspects { ip saddr/24 timeout 10m }`
#[derive(Clone, Debug)]
pub struct Add {
    /// `add` or `update`.
    pub kind: AddKind,
    /// The table; the span includes the `@`.
    pub table: Name,
    /// The address field.
    pub subject: Subject,
    /// The prefix length `24`; `None` for single addresses.
    pub length: Option<Atom>,
    /// The timeout of the entry; `None` if not written.
    pub timeout: Option<Atom>,
    /// The whole statement.
    pub span: Span,
}

/// What happens to an entry that is in the table already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddKind {
    /// The entry stays as it is.
    Add,
    /// Its timeout begins again.
    Update,
}

impl AddKind {
    /// All of them.
    pub const ALL: [AddKind; 2] = [AddKind::Add, AddKind::Update];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            AddKind::Add => "add",
            AddKind::Update => "update",
        }
    }
}

/// `add @suspects timeout 10m` after `exceed`.
#[derive(Clone, Debug)]
pub struct ExceedAdd {
    /// The table; the span includes the `@`.
    pub table: Name,
    /// The timeout of the entry; `None` if not written.
    pub timeout: Option<Atom>,
    /// From `add` on.
    pub span: Span,
}
