//! Instruments for benchmarks: they call lookups outside of policies, make packets in the kernel, and measure while a
//! core works for one thread alone.
//!
//! The product does not use this crate. It has unsafe code: it calls compiled C, writes memory that programs in the
//! kernel read, and times instructions.

pub mod generate;
pub mod lookup;
pub mod quiet;
pub mod ring;
pub mod sources;
pub mod stream;
