//! Loads compiled policies, runs packets through them and returns verdicts.
//!
//! The path of a packet: a source ([`capture`] files, a [`frame_set`], interfaces in [`live`]) gives a [`FrameBurst`].
//! A [`Filter`] (native code, the kernel's [`xdp`], or one of the caller) decides and counts it. The caller acts on the
//! verdicts.
//!
//! An [`Artifact`] is the output of the policy compiler. [`clang`] compiles it to machine code. A [`bundle`] carries
//! both to a machine without a compiler.
//!
//! This crate never reads packet headers or policy text.

mod additions;
pub mod artifact;
pub mod bound;
pub mod bundle;
pub mod capture;
pub mod clang;
pub mod counters;
pub mod cpu;
pub mod descriptors;
pub mod elf;
pub mod error;
pub mod filter;
pub mod frame_set;
pub mod frames;
pub mod image;
pub mod kernels;
pub mod live;
pub mod measure;
pub mod native;
pub mod output;
pub mod program_shape;
pub mod scratch;
pub mod sealed;
pub mod traffic;
pub mod tsc;
pub mod xdp;

pub use artifact::{Artifact, Source};
pub use bound::Bound;
pub use bundle::Bundle;
pub use error::EngineError;
pub use filter::Filter;
pub use frames::FrameBurst;
pub use image::Image;
pub use native::{Controller, NativeCode, NativeFilter};
pub use program_shape::{ProgramShape, TableSlot};
pub use sealed::{Answered, CardPort, Configured, WithoutSeal};
pub use weir_state::tracked::TrackedBy;
pub use xdp::XdpFilter;
