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
use crate::options::Options;
use crate::row::Row;
use contest::Contest;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use weir::failure::Failure;
use weir_engine::traffic;

pub use chart::svg as plot;

/// Prefix lengths of the subnets in Fig. 3.
const LENGTHS: RangeInclusive<u8> = 1..=20;
/// Packet lengths of Fig. 6 in bytes, with the frame check sequence.
const PACKET_BYTES: [usize; 7] = [64, 128, 170, 256, 512, 1024, 1518];
/// Size of the frame check sequence, which the card adds.
const CHECK_SEQUENCE_BYTES: usize = 4;
/// Table sizes for `limit each`: the default and the maximum.
const EACH_SIZES: [u32; 2] = [1 << 19, 1 << 24];
const EACH_WIDE: &str = "250mpps burst 1000000000";
/// A limit that is never exceeded here, and one that always is.
const WIDE: &str = "250mpps,1000000000";
const CLOSED: &str = "0";

/// Selects the limited countries.
type Countries<'a> = &'a dyn Fn(&str) -> bool;

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, or there is no clang.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut rows = by_subnets(options)?;
    rows.extend(by_packet_bytes()?);
    rows.extend(paper::rows());
    Ok(rows)
}

/// Measures Fig. 3 and Table I.
fn by_subnets(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut contest = Contest::new(traffic::SMALL_FRAME_BYTES)?;
    let figure = |limits| Row::default().of("figure", "3").of("limits", limits);
    for length in LENGTHS {
        contest.enter(figure("wide"), &subnets(length, WIDE))?;
    }
    contest.enter(figure("over"), &subnets(*LENGTHS.end(), CLOSED))?;
    let countries = Dataset::COUNTRY.load(&options.data)?;
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
    for size in EACH_SIZES {
        contest.enter_each(figure("wide").of("figure", "limit each"), EACH_WIDE, size)?;
    }
    contest.rows()
}

/// Measures Fig. 6.
fn by_packet_bytes() -> Result<Vec<Row>, Failure> {
    let list = subnets(*LENGTHS.end(), WIDE);
    let mut rows = Vec::new();
    for bytes in PACKET_BYTES {
        let mut contest = Contest::new(bytes - CHECK_SEQUENCE_BYTES)?;
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
