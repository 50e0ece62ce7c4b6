//! Loads compiled policies, moves packets through them and hands back verdicts.
//!
//! A packet's way: a source ([`capture`] files, [`memory`]) gives a [`FrameBurst`]; a [`Filter`] (the native one, the
//! kernel's [`xdp`], or a caller's own) turns it into verdicts and counts; the caller acts on them. An [`Artifact`] is
//! what the compiler hands over, [`clang`] makes code of it, a [`bundle`] carries both to a box without a compiler.
//!
//! This crate never looks into a packet header and knows nothing of the policy's text.

pub mod artifact;
pub mod bundle;
pub mod capture;
pub mod clang;
pub mod counters;
pub mod cpu;
pub mod descriptors;
pub mod elf;
pub mod error;
pub mod filter;
pub mod frames;
pub mod image;
pub mod limits;
pub mod live;
pub mod lookup;
pub mod memory;
pub mod native;
pub mod output;
pub mod program;
pub mod scratch;
pub mod traffic;
pub mod tsc;
pub mod xdp;

pub use artifact::{Artifact, Source};
pub use bundle::Bundle;
pub use error::EngineError;
pub use filter::Filter;
pub use frames::FrameBurst;
pub use image::Image;
pub use native::{NativeCode, NativeFilter};
pub use program::{Program, TableSlot};
pub use xdp::XdpFilter;
