//! Samples, dropped packets, flows and counters for collectors: sFlow and IPFIX (docs/reference/export.md).

//!
//! ```text
//!   tap of samples --> Feed --> Exporter --> flow sample -----------------> collector of sFlow
//!   tap of drops ----> Feed --> Exporter --> notification ----------------> collector of sFlow
//!                               Exporter --> flows until they end --------> collector of IPFIX
//!   counters of interfaces ---> Exporter --> counter sample --------------> collector of sFlow
//! ```
//! A thread does all of it. It takes no part in moving packets: if it is slow, copies are lost, which is counted.

mod collector;
mod exporter;
mod feed;
mod key;
pub mod options;
mod packets;
mod part;
mod ports;
mod tapped;

pub use part::ExportPart;
