//! The syntax of `tracking { ... }`.

use super::{Atom, Name};
use crate::source::Span;

/// `tracking { ... }`
#[derive(Clone, Debug)]
pub struct Tracking {
    /// The whole item.
    pub span: Span,
    /// Its settings, in order.
    pub settings: Vec<TrackingSetting>,
}

/// A setting of `tracking`.
#[derive(Clone, Debug)]
pub enum TrackingSetting {
    /// `size 1000000`
    Size(Atom),
    /// `embryonic 25%`; the span includes the `%`.
    Embryonic(Atom),
    /// `timeout established 5d`
    Timeout(Name, Atom),
    /// `pickup off`
    Pickup(Name),
    /// `one-way`
    OneWay(Span),
    /// `invalid drop`
    Invalid(Name),
}

impl TrackingSetting {
    /// Where it is written; the value, if it has one.
    pub fn span(&self) -> Span {
        match self {
            TrackingSetting::Size(atom) | TrackingSetting::Embryonic(atom) => atom.span,
            TrackingSetting::Timeout(of, _) => of.span,
            TrackingSetting::Pickup(word) | TrackingSetting::Invalid(word) => word.span,
            TrackingSetting::OneWay(span) => *span,
        }
    }

    /// What may be set once.
    pub fn name(&self) -> String {
        match self {
            TrackingSetting::Size(_) => "size".to_owned(),
            TrackingSetting::Embryonic(_) => "embryonic".to_owned(),
            TrackingSetting::Timeout(of, _) => format!("timeout {}", of.text),
            TrackingSetting::Pickup(_) => "pickup".to_owned(),
            TrackingSetting::OneWay(_) => "one-way".to_owned(),
            TrackingSetting::Invalid(_) => "invalid".to_owned(),
        }
    }
}
