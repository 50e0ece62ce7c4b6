//! The cost of limits: by the number of limited subnets (MoonPol Fig. 3: all subnets of one length, 2 to 1,048,576), by
//! packet length (Fig. 6), and for countries' prefixes (Table I: Russia and China, or all).
//!
//! Policies that limit each source take turns with one that only accepts. The difference is the cost of lookup and
//! bucket together. Sources are random. No packet exceeds its limit, as in the paper. In rows with `over`, every packet
//! does, as in a flood. The paper has no limits for addresses outside a list; rows of `limit each` add their cost.

mod chart;
mod contest;
mod paper;

use super::data::Dataset;
use crate::need::Need;
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Picks, Scenario};
use contest::{Contest, Turns};
use std::fmt::Write;
use std::net::Ipv4Addr;
use weir_command::failure::Failure;
use weir_engine::traffic;

pub use chart::draw as plot;

/// Size of the frame check sequence, which the card adds.
const CHECK_SEQUENCE_BYTES: usize = 4;
const EACH_WIDE: &str = "250mpps burst 1000000000";
/// A limit that is never exceeded here, and one that always is.
const WIDE: &str = "250mpps,1000000000";
const CLOSED: &str = "0";

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "moonpol",
    paper: "MoonPol Fig. 3, Fig. 6 and Table I: 432 cycles a packet with 2 limited subnets, 492 with 1M, I/O included (7.4 to 6.5 Mpps); 186 MB for all countries",
    needs: &[Need::Clang],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Nothing,
    seconds: Scaled { full: 240, quick: 90, smoke: 6 },
    run,
    plot,
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Prefix lengths of the subnets in Fig. 3, ascending.
    lengths: &'static [u8],
    /// Packet lengths of Fig. 6 in bytes, with the frame check sequence.
    packet_bytes: &'static [usize],
    /// Table sizes for `limit each`: the default and the maximum.
    each_sizes: &'static [u32],
    /// The turns of each policy.
    turns: Turns,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings {
        lengths: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
        packet_bytes: &[64, 128, 170, 256, 512, 1024, 1518],
        each_sizes: &[1 << 19, 1 << 24],
        turns: Turns { packets: 1 << 18, rounds: 11 },
    },
    quick: Settings {
        lengths: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
        packet_bytes: &[64, 128, 170, 256, 512, 1024, 1518],
        each_sizes: &[1 << 19, 1 << 24],
        turns: Turns { packets: 1 << 18, rounds: 3 },
    },
    smoke: Settings {
        lengths: &[1, 8],
        packet_bytes: &[64, 1518],
        each_sizes: &[1 << 10],
        turns: Turns { packets: 1 << 10, rounds: 1 },
    },
};

impl Settings {
    /// The length of most subnets.
    fn longest(&self) -> u8 {
        *self.lengths.last().expect("there are lengths")
    }
}

/// Selects the limited countries.
type Countries<'a> = &'a dyn Fn(&str) -> bool;

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, or there is no clang.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    plan.begin("by subnets");
    let mut rows = by_subnets(plan, settings)?;
    plan.begin("by packet length");
    rows.extend(by_packet_bytes(settings)?);
    rows.extend(paper::rows());
    Ok(rows)
}

/// Measures Fig. 3 and Table I.
fn by_subnets(plan: &Plan<'_>, settings: Settings) -> Result<Vec<Row>, Failure> {
    let mut contest = Contest::new(traffic::SMALL_FRAME_BYTES, settings.turns)?;
    let figure = |limits| Row::default().of("figure", "3").of("limits", limits);
    for &length in settings.lengths {
        contest.enter(figure("wide"), &subnets(length, WIDE))?;
    }
    contest.enter(figure("over"), &subnets(settings.longest(), CLOSED))?;
    let countries = plan.load(Dataset::COUNTRY)?;
    let all = |of: Countries<'_>| -> String {
        let labels = countries.table.labels();
        let prefixes = countries.table.prefixes4().iter().filter(|prefix| of(&labels[prefix.label as usize - 1]));
        prefixes.map(|prefix| format!("{prefix},{WIDE}\n")).collect()
    };
    let cases: [(&str, Countries<'_>); 2] =
        [(paper::SOME_COUNTRIES, &|label| label == "RU" || label == "CN"), (paper::ALL_COUNTRIES, &|_| true)];
    for (name, of) in cases {
        let list = all(of);
        // Synthetic lists have no countries with these names.
        if !list.is_empty() {
            let row =
                Row::default().of("table", "I").of("limits", "wide").of("of", name).of("source", countries.source);
            contest.enter(row, &list)?;
        }
    }
    for &size in settings.each_sizes {
        contest.enter_each(figure("wide").of("figure", "limit each"), EACH_WIDE, size)?;
    }
    contest.rows()
}

/// Measures Fig. 6.
fn by_packet_bytes(settings: Settings) -> Result<Vec<Row>, Failure> {
    let list = subnets(settings.longest(), WIDE);
    let mut rows = Vec::new();
    for &bytes in settings.packet_bytes {
        let mut contest = Contest::new(bytes - CHECK_SEQUENCE_BYTES, settings.turns)?;
        let row = Row::default().of("figure", "6").of("limits", "wide").of("packet", &format!("{bytes} bytes"));
        contest.enter(row, &list)?;
        for row in contest.rows()? {
            let times = row.get("mpps").unwrap_or_default() / paper::line_mpps(bytes);
            rows.push(row.number("packet_bytes", bytes as f64).number("times_10gbit_line", times));
        }
    }
    Ok(rows)
}

/// A list of limits with all subnets of a length.
fn subnets(length: u8, limit: &str) -> String {
    let mut list = String::new();
    for index in 0..1u32 << length {
        let _ = writeln!(list, "{}/{length},{limit}", Ipv4Addr::from(index << (32 - length)));
    }
    list
}
