//! The tree of slots.

use super::{Atom, Name};
use crate::source::Span;

/// `slot attacks { size 16 }`
#[derive(Clone, Debug)]
pub struct Slot {
    /// The whole item.
    pub span: Span,
    /// The name.
    pub name: Name,
    /// Its settings, in order.
    pub settings: Vec<SlotSetting>,
}

/// A setting of a slot.
#[derive(Clone, Debug)]
pub enum SlotSetting {
    /// `size 16`; the span is the setting's.
    Size(Atom, Span),
}
