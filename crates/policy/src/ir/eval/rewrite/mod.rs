//! What leaves in place of a received packet: pure functions of its bytes.
//!
//! `docs/decisions/0037-synproxy.md` says which packets are rewritten. Nothing is read that was not captured.

mod build;
mod checksum;
mod patch;
mod translate;

pub use build::{Built, Way, build};
pub use translate::{from_client, from_server, quote_from_client};
