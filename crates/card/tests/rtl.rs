//! The card as RTL (`hw/`), simulated by Verilator, equals the card as an interpreter bit for bit
//! (`docs/internals/hw.md`).
//!
//! `WEIR_RTL_PACKETS=1000000` tests with as many random packets.

#[path = "rtl/bench.rs"]
mod bench;
#[path = "rtl/configure.rs"]
mod configure;
#[path = "rtl/equal.rs"]
mod equal;
#[path = "rtl/programs.rs"]
mod programs;
#[path = "rtl/recorded.rs"]
mod recorded;
#[path = "rtl/session.rs"]
mod session;
#[path = "rtl/streams.rs"]
mod streams;
