//! The control protocol of a running Weir: its messages, its limits and a client.
//!
//! The transport is a Unix socket. A request is a line, an answer is a line, and both are JSON.
//!
//! ```text
//! {"load":{"policy":"/etc/weir/new.weir"}}        {"ok":{"generation":2}}
//! {"activate":{"generation":2,"confirm_s":60}}    {"ok":{...status...}}
//! {"activate":{"generation":9}}                   {"error":"weir: there is no generation 9; ready generations: 1, 2"}
//! "features"                                      {"nothing":"the active policy does not observe"}
//! ```
//! After the answer to `capture` the connection carries a pcapng file, until the client ends its half.
//!
//! Only root and the owner of the process may connect. The socket has mode 0600, and the server checks each client's
//! credentials. The server answers other clients with an error.
//!
//! A client may stay connected and send more requests. The server disconnects it after five minutes without a request,
//! or after ten seconds if another client needs its slot.
//!
//! This crate never prints and never runs a policy. The server is part of `weir run`.
#![forbid(unsafe_code)]

mod attacks;
mod baseline;
mod captures;
mod card;
mod client;
mod comparison;
mod export;
mod features;
mod figures;
mod flows;
mod limits;
mod message;
mod reply;
mod room;
mod shadow;
mod slots;
mod stats;
mod status;
mod tables;
mod updates;
mod upgrade;

pub use attacks::{
    AttackAction, AttackEntry, AttackEvidence, AttackIdle, AttackOperation, AttackProfile, AttackVector,
    AttacksChanged, AttacksListed, AttacksMode, EventsStatus, SamplesStatus,
};
pub use baseline::{BaselineBounds, BaselineChanged, BaselineListed, PrefixBaseline};
pub use captures::{CaptureFilter, CaptureStarted};
pub use card::{
    CardCost, CardEntry, CardFrames, CardPlace, CardReport, CardStatus, CardTableStatus, FollowChange, FollowStatus,
    FollowWindow, FramesShare, HybridRule, HybridStatus,
};
pub use client::{Client, Error, ask, read};
pub use comparison::{Comparison, Decision, RuleChange, SourceChange};
pub use export::{CollectorStatus, ExportStatus, FlowExportStatus, SampleExportStatus};
pub use features::{
    AddressFeatures, DirectionFeatures, FEATURES_MAX, FeatureCounts, FeaturesShown, SampledFeatures, Share,
};
pub use figures::grouped;
pub use flows::{FLOWS_MAX, FlowEntry, FlowOperation, FlowsCounted, FlowsKilled, FlowsListed};
pub use limits::{CountedLimit, Limited, LimitsStatus, LimitsTotal, TOP_MAX};
pub use message::{Answer, Changes, Ready, Reconfigured, Request};
pub use reply::Reply;
pub use room::{Room, SlotRoom, TableRoom};
pub use shadow::{ShadowOperation, ShadowReport, ShadowShown};
pub use slots::{SlotChanged, SlotListed, SlotOperation, SlotRuleListed};
pub use stats::{
    AdditionStats, CardCounts, DirectionStats, FromCard, GONE, InterfaceStats, Outcome, OutcomeStats, RuleCount, Stats,
    TableCount, Tally, TrackedAt, TxDropped, WorkerStats,
};
pub use status::{
    Activating, Active, AutomaticPosture, FlowsStatus, GenerationStatus, InterfaceStatus, KeptStatus, LinkState,
    SavingTurns, ShadowStatus, StateStatus, Status,
};
pub use tables::{
    GivenEntries, ListOrder, Listing, TABLE_ENTRIES_MAX, TableChanged, TableEntries, TableEntry, TableFound,
    TableOperation,
};
pub use updates::{AppliedUpdate, ListChanged, ListName, RefusedUpdate, Reloaded, UpdatesStatus};
pub use upgrade::{Carried, UpgradeStatus};

use std::time::Duration;

/// Path of the socket without `--control`.
pub const DEFAULT_PATH: &str = "/run/weir/weir.sock";
/// Maximum length of a request in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Maximum length of an answer in bytes. A client reads no more.
pub const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of simultaneous clients.
pub const CLIENTS_MAX: usize = 32;
/// The server disconnects a client that sends nothing for this time.
pub const SILENCE_MAX: Duration = Duration::from_secs(300);
/// The server disconnects a client that sends nothing for this time, if another client needs its slot.
pub const GIVE_WAY: Duration = Duration::from_secs(10);
/// Maximum time from the first to the last byte of a request.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time for a client to read an answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
