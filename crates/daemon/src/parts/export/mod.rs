//! Samples, dropped packets, flows and counters for collectors: sFlow and IPFIX (docs/reference/export.md).

pub mod collector;
pub mod exporter;
pub mod feed;
pub mod key;
pub mod packets;
pub mod ports;
