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
    /// `unproven 50%`; the span includes the `%`.
    Unproven(Atom),
    /// `timeout established 5d`
    Timeout(Name, Atom),
    /// `pickup off`
    Pickup(Name),
    /// `one-way`
    OneWay(Span),
    /// `vlan ignore`
    Vlan(Name),
    /// `invalid drop`
    Invalid(Name),
    /// `synproxy mss 1460 wscale 7 sack-perm timestamp`
    SynproxyOffer(SynproxyOffer),
    /// `synproxy on 10000/second off 1000/second for 30s`
    SynproxyThreshold(SynproxyThreshold),
}

/// What the servers behind `synproxy` offer.
#[derive(Clone, Debug)]
pub struct SynproxyOffer {
    /// The whole setting.
    pub span: Span,
    /// The largest segment.
    pub mss: Atom,
    /// The shift of windows.
    pub wscale: Option<Atom>,
    /// `sack-perm`
    pub sack_perm: Option<Span>,
    /// `timestamp`
    pub timestamp: Option<Span>,
}

/// When `synproxy` answers SYNs.
#[derive(Clone, Debug)]
pub struct SynproxyThreshold {
    /// The whole setting.
    pub span: Span,
    /// More SYNs than this switch it on.
    pub on: Name,
    /// Fewer SYNs than this switch it off.
    pub off: Name,
    /// For how long.
    pub calm: Atom,
}

impl TrackingSetting {
    /// Where it is written; the value, if it has one.
    pub fn span(&self) -> Span {
        match self {
            TrackingSetting::Size(atom) | TrackingSetting::Embryonic(atom) | TrackingSetting::Unproven(atom) => {
                atom.span
            }
            TrackingSetting::Timeout(of, _) => of.span,
            TrackingSetting::Pickup(word) | TrackingSetting::Vlan(word) | TrackingSetting::Invalid(word) => word.span,
            TrackingSetting::OneWay(span) => *span,
            TrackingSetting::SynproxyOffer(offer) => offer.span,
            TrackingSetting::SynproxyThreshold(threshold) => threshold.span,
        }
    }

    /// What may be set once.
    pub fn name(&self) -> String {
        match self {
            TrackingSetting::Size(_) => "size".to_owned(),
            TrackingSetting::Embryonic(_) => "embryonic".to_owned(),
            TrackingSetting::Unproven(_) => "unproven".to_owned(),
            TrackingSetting::Timeout(of, _) => format!("timeout {}", of.text),
            TrackingSetting::Pickup(_) => "pickup".to_owned(),
            TrackingSetting::OneWay(_) => "one-way".to_owned(),
            TrackingSetting::Vlan(_) => "vlan".to_owned(),
            TrackingSetting::Invalid(_) => "invalid".to_owned(),
            TrackingSetting::SynproxyOffer(_) => "synproxy mss".to_owned(),
            TrackingSetting::SynproxyThreshold(_) => "synproxy on".to_owned(),
        }
    }
}
