//! The figures of the paper: section 4.1 and Fig. 9. It gives numbers for the best rulesets of each kind of traffic.

use super::rulesets::Kind;

/// How many percent fewer cycles the paper measured with metadata, where it says so.
pub fn fewer_percent(kind: Kind, ends: &str, traffic: &str) -> Option<f64> {
    match (kind, ends, traffic) {
        (Kind::LookupsAndPorts, "terminating", "random") => Some(20.2),
        (Kind::Ports, "terminating", "botnet") => Some(28.9),
        (Kind::Realistic, "terminating", "random") => Some(17.8),
        (Kind::Realistic, "terminating", "botnet") => Some(23.6),
        _ => None,
    }
}
