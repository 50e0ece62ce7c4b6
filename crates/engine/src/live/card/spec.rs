//! What the card is like.

use std::path::PathBuf;
use std::time::Duration;

/// The interfaces of a card and its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardSpec {
    /// The network namespace of its interfaces: a name as in `ip netns`, or a path. `None`: Weir's own.
    pub namespace: Option<PathBuf>,
    /// The interface to the wire.
    pub outer: String,
    /// The interface to Weir.
    pub inner: String,
    /// Entries of the hardware table; 0 if there is none.
    pub entries: usize,
    /// Time that a change of the hardware table takes.
    pub update: Duration,
    /// Entries that the card's CPU matches; 0 if it drops nothing.
    pub cpu_entries: usize,
    /// How much longer the card's CPU takes for each packet.
    pub cpu_slowdown: Duration,
}
