//! Policies on interfaces: workers that move packets between two sides, and the generations that they decide by.
//!
//! ```text
//!            lower side                                    upper side
//!   wire --- queue 0 ---+                             +--- queue 0 --- wire
//!                       +--- lane 0 --- worker 0 -----+
//!                                          |
//!                                       handover  <--- the controller: generation 7, then 8, ...
//! ```
//! A [`Lane`] is a queue pair of each interface on both sides. A worker drives one lane and owns everything that it
//! writes. Workers share only a word with the number of the latest generation. A worker reads it between bursts. So no
//! burst is decided by two policies, and no packet waits or is lost while the policy changes.

pub mod afpacket;
pub mod afxdp;
pub mod card;
mod cards;
mod checksum;
pub mod datapath;
mod divert;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod engines;
pub mod lane;
pub mod memory_lane;
pub mod os;
pub mod paths;
pub mod programs;
mod ring;
pub mod samples;
pub mod tap;
mod worker;
mod workers;
pub mod xdp;

pub use datapath::{Counts, Datapath, HandedLink, HandedPath, Loaded, PortStatus, Reading, Readings, Stray};
pub use lane::{Interfaces, LINK_BYTES, Lane, PortCounters, PortNature, PortReading, Role, Side, facing_interface};
pub use workers::Workers;
