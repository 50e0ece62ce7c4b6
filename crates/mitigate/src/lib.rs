//! Mitigation: measurements in, decisions out.
//!
//! The way of a measurement: [`measure`] counts packets in windows, [`victim`] finds prefixes whose traffic exceeds
//! their [`baseline`], [`signature`] separates the attack from the [`reference`] of peace, and [`mitigator`] decides on
//! an [`action`], checks it and undoes it. [`release`] frees blocked sources, and [`offload`] chooses the sources for a
//! card.
//!
//! [`defence`] joins these parts, for recordings ([`recording`]) and for a running Weir.
//!
//! The crate has no clock, no input or output and no threads. The same code runs live, on captures and in simulation.
//! The paper is "Introducing SmartNICs in Server-based Data Plane Processing: the DDoS Mitigation Use Case" (Miano et
//! al., 2019).
#![forbid(unsafe_code)]

pub mod action;
mod attack;
pub mod baseline;
mod behind_proxy;
pub mod class;
pub mod defence;
pub mod excerpt;
pub mod filter;
pub mod header;
pub mod held;
pub mod idle;
mod last_resort;
pub mod learned;
pub mod measure;
pub mod mitigator;
pub mod offload;
mod one_way;
mod peace;
pub mod prefix;
mod protected;
pub mod recording;
pub mod reference;
pub mod release;
mod retreat;
pub mod signature;
mod stored;
mod streams;
mod unanswered;
pub mod vector;
pub mod victim;
pub mod waiting;

pub use attack::{Attack, Record, State};
