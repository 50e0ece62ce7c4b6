//! The figures of the paper, measured on one core of 3.2 GHz, including reception and sending.

use crate::row::Row;

/// The cases of Table I.
pub const SOME_COUNTRIES: &str = "russia+china";
pub const ALL_COUNTRIES: &str = "all-countries";
/// The engine in the paper's rows.
pub const ENGINE: &str = "paper";

const CLOCK_GHZ: f64 = 3.2;
/// Subnets, and millions of packets per second: the ends of Fig. 3 (section V-A), and the values that section VI reads
/// from it.
const BY_SUBNETS: [(f64, f64); 4] = [(2.0, 7.4), (16_384.0, 7.3), (262_144.0, 7.0), (1_048_576.0, 6.5)];
/// Fig. 6: packet length in bytes and millions of packets per second, with 1,048,576 subnets; and the length from which
/// the link was full.
const SMALL_PACKETS: (usize, f64) = (64, 6.5);
const LINE_FULL_BYTES: usize = 170;
/// Table I: case, subnets, millions of packets per second, and MB.
const COUNTRIES: [(&str, f64, f64, f64); 2] =
    [(SOME_COUNTRIES, 15_000.0, 9.22, 83.0), (ALL_COUNTRIES, 250_000.0, 6.69, 186.0)];
/// Preamble, start of frame and inter-frame gap, in bytes.
const LINE_OVERHEAD_BYTES: usize = 20;

/// Packet rate that fills the paper's link of 10 Gbit/s, in millions per second.
pub fn line_mpps(packet_bytes: usize) -> f64 {
    10e3 / (8 * (packet_bytes + LINE_OVERHEAD_BYTES)) as f64
}

/// The paper's figures as rows.
pub fn rows() -> Vec<Row> {
    let row = |mpps: f64| {
        let row = Row::default().of("engine", ENGINE);
        row.number("mpps", mpps).number("cycles_per_packet", 1e3 * CLOCK_GHZ / mpps)
    };
    let subnets = |(subnets, mpps)| row(mpps).of("figure", "3").number("subnets", subnets);
    let bytes = |(bytes, mpps): (usize, f64)| {
        let row = row(mpps).of("figure", "6").of("packet", &format!("{bytes} bytes"));
        row.number("packet_bytes", bytes as f64).number("times_10gbit_line", mpps / line_mpps(bytes))
    };
    let country = |(of, subnets, mpps, mb)| {
        row(mpps).of("table", "I").of("of", of).number("subnets", subnets).number("bytes", mb * 1e6)
    };
    let by_bytes = [SMALL_PACKETS, (LINE_FULL_BYTES, line_mpps(LINE_FULL_BYTES))].map(bytes);
    BY_SUBNETS.map(subnets).into_iter().chain(by_bytes).chain(COUNTRIES.map(country)).collect()
}
