//! The figures of a running Weir, as a scrape finds them.
//!
//! They come through the door, as a client's do. So a scrape never waits for the main loop, and neither the main loop
//! nor a worker ever waits for a scrape.

use super::growing::Growing;
use super::process::Process;
use crate::requests::occupancy::Occupancy;
use weir_control::{AttacksListed, CardReport, ListName, ShadowReport, Stats, Status};
use weir_engine::live::tap::TapCounts;

/// All figures of one moment.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The engine.
    pub engine: &'static str,
    /// Whether its workers poll.
    pub polls: bool,
    /// Unix time.
    pub now_s: f64,
    /// The generations, interfaces and updates.
    pub status: Status,
    /// All counters.
    pub stats: Stats,
    /// How full the state is.
    pub occupancy: Occupancy,
    /// The rules of the active generation in each direction, as citations.
    pub rules: [Vec<String>; 2],
    /// The lists of the active generation that have files.
    pub lists: Vec<ListFiles>,
    /// Attacks, with mitigation.
    pub attacks: Option<AttacksListed>,
    /// What the card does, if there is one.
    pub card: Option<CardReport>,
    /// Number of open taps, and what became of the packets that taps wanted.
    pub taps: (usize, TapCounts),
    /// The shadow, if there is one.
    pub shadow: Option<ShadowReport>,
    /// What the system knows of this process.
    pub process: Process,
    /// What the metrics themselves cost.
    pub own: Own,
}

/// The files of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListFiles {
    /// The list.
    pub list: ListName,
    /// Unix time of the last change of its oldest file.
    pub modified_s: Option<f64>,
    /// Number of its files that are missing.
    pub missing: usize,
}

/// The main loop, and what the metrics themselves cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Own {
    /// Seconds since the main loop began its last turn.
    pub main_loop_age_s: f64,
    /// Pages that were made.
    pub pages: u64,
    /// Seconds that the last one took.
    pub page_s: f64,
    /// Connections that were closed to make room for others.
    pub crowded_out: u64,
}

/// What is kept from page to page, so that counters never fall.
#[derive(Debug, Default)]
pub struct Memory {
    /// Packets and bytes of rules, by direction and citation.
    pub rules: [Growing<(usize, String)>; 2],
    /// Dropped packets, sampled packets, and sampled packets of proven sources, by action.
    pub actions: [Growing<u32>; 3],
    /// The highest number of an attack.
    pub last_attack: u32,
}
