//! From a policy file to code that engines run. Each stage is a type that is made from the previous stage.
//!
//! ```text
//! path ── open ──> PolicyFile        text or a bundle; its first bytes tell which, nothing else is read yet
//!                      │ check, read
//!                      │    text:   syntax, lists, names and types ──> Text
//!                      │    bundle: signature, objects, images
//!                      v
//!                  Policy            a program that is right, and its tables; from here on text and bundles are alike
//!                      │ data                                 │ compile_native
//!                      v                                      v
//!                    Data            images and buckets   CompiledNative
//!                      │ Policy::compile_bpf                  │ load, filter (with Data)
//!                      v                                      v
//!                  CompiledBpf                            NativeCode, NativeFilter
//!                      │ load, filter
//!                      v
//!                  KernelCode, XdpFilter
//! ```
//!
//! BPF programs are compiled for their data, because table sizes and bucket counts are constants in them. Native code
//! works with any data of its policy. The interpreter ([`eval`]) needs no compiled code: it runs the policy's program
//! over its entries.
//!
//! The last types of each path belong to `weir-engine`. [`Policy::native`], [`Policy::xdp`] and [`Policy::filter`]
//! combine all stages.
//!
//! This crate reads files and starts compilers. It never prints: errors, warnings and notices are values for the
//! caller. It knows nothing of a command line.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod beside;
pub mod bound;
mod bundle;
mod bundle_report;
mod bundle_tables;
pub mod error;
pub mod eval;
pub mod feeds;
mod filter;
pub mod flow_match;
pub mod image_facts;
pub mod kernel;
pub mod limit_lists;
mod limits;
pub mod lists;
pub mod native;
pub mod policy;
pub mod policy_file;
mod policy_tables;
pub mod regular_file;
pub mod shape;
pub mod stamp;
mod tables;
pub mod text;

pub use beside::TablesBeside;
pub use bundle::Bundled;
pub use error::{LoadError, Rejected};
pub use feeds::{ListContents, ListId, ListRead};
pub use kernel::{CompiledBpf, PART_RULES};
pub use limit_lists::{LimitList, ListedLimits};
pub use lists::{ListOfLimits, read_table};
pub use native::CompiledNative;
pub use policy::{Policy, Unverified};
pub use policy_file::{PolicyFile, load};
pub use policy_tables::{DeclaredTable, PolicyTables};
pub use stamp::{Stamp, Stamps};
pub use text::{Text, Timing};
