//! What collectors are told about packets: sFlow version 5 and IPFIX. Values in, datagrams out.
//!
//! The way of a sampled packet: [`sflow`] writes it as a flow sample, and as a notification if it was dropped.
//! [`flows`] adds it to the flow that it belongs to, and [`ipfix`] writes the flows that have ended. [`pace`] bounds
//! the notifications of a second.
//!
//! The crate has no clock, no socket and no threads: each call says which time it is, and datagrams go to a function of
//! the caller. What the fields contain is in `docs/reference/export.md`.
#![forbid(unsafe_code)]

pub mod flows;
pub mod ipfix;
mod octets;
pub mod pace;
pub mod sflow;

/// The longest datagram, in bytes of UDP payload. With the headers of IPv6 and UDP it fits into an Ethernet frame, also
/// through a tunnel.
pub const DATAGRAM_BYTES_MAX: usize = 1400;
