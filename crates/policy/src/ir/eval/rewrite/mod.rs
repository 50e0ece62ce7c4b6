//! What leaves in place of a received packet: pure functions of its bytes.
//!
//! `docs/decisions/0037-synproxy.md` says which packets are rewritten. Only captured bytes are read.

mod build;
mod checksum;
mod patch;
mod translate;

pub use build::{Built, Way, build};
/// A packet that leaves in place of a received one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Its bytes, as far as the bytes of the received packet were captured.
    pub bytes: Vec<u8>,
    /// Its length on the wire, bytes.
    pub wire_len: u32,
}

pub use translate::{from_client, from_server, quote_from_client};
