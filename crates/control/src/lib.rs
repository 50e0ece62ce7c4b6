//! The control protocol of a running Weir: its messages, its limits and a client.
//!
//! The transport is a Unix socket. A request is a line, an answer is a line, and both are JSON.
//!
//! ```text
//! {"load":{"policy":"/etc/weir/new.weir"}}        {"ok":{"generation":2}}
//! {"activate":{"generation":2,"confirm_s":60}}    {"ok":{...status...}}
//! {"activate":{"generation":9}}                   {"error":"weir: there is no generation 9; ready generations: 1, 2"}
//! ```
//! Only the owner of the process and root may connect: the socket has mode 0600, and the server checks each client's credentials. It tells
//! other clients that they are refused.
//!
//! A client may stay connected and ask again. The server disconnects it after five minutes of silence, or after ten seconds if another client
//! needs its slot.
//!
//! This crate never prints and never runs a policy. The server is a part of `weir run`.
#![forbid(unsafe_code)]

mod client;
mod limits;
mod message;
mod stats;
mod status;

pub use client::{Error, ask, read};
pub use limits::{CountedLimit, Limited, LimitsStatus, LimitsTotal, TOP_MAX};
pub use message::{Answer, Ready, Request};
pub use stats::{
    DirectionStats, GONE, InterfaceStats, Outcome, OutcomeStats, RuleCount, Stats, TableCount, Tally, TxDropped,
    WorkerStats,
};
pub use status::{Activating, Active, GenerationStatus, Status};

use std::time::Duration;

/// Where the socket is unless `--control` says otherwise.
pub const DEFAULT_PATH: &str = "/run/weir.sock";
/// Bytes of a request at most.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes of an answer that a client reads at most.
pub const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Clients at a time.
pub const CLIENTS_MAX: usize = 32;
/// The server disconnects a client that says nothing for so long.
pub const SILENCE_MAX: Duration = Duration::from_secs(300);
/// The server disconnects a client that says nothing for so long if another needs its slot.
pub const GIVE_WAY: Duration = Duration::from_secs(10);
/// A request's bytes come within this time from the first on.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// A client takes an answer within this time.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
