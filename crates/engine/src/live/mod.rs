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
pub mod attach;
mod bond;
pub mod bypass;
pub mod card;
mod cards;
mod carrier;
mod checksum;
pub mod control_socket;
pub mod datapath;
mod descriptor;
mod device;
mod divert;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod engines;
pub mod gate;
pub mod lane;
pub mod link;
pub mod memory_lane;
mod netlink;
mod packet_socket;
pub mod paths;
mod promiscuous;
mod redirect;
mod resident;
mod rss;
pub mod sample;
pub mod sample_queue;
pub mod sample_ring;
pub mod samples;
pub mod tap;
mod worker;
mod workers;
pub mod xdp;

pub use datapath::{Counts, Datapath, Loaded, PortStatus, Reading, Readings, Stray};
pub use lane::{Interfaces, Lane, PortCounters, PortReading, Role, Side, facing_interface};
pub use workers::Workers;
