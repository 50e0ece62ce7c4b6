//! The figures of *Moving down the stack* for P4, from its text: Xeon Silver 4114 of 2.2 GHz, ports of 100 Gbit/s, and a
//! Tofino switch with a controller in C. Its pipeline does not check sequence numbers.

use crate::row::Row;

/// Fig. 5: bytes of frames, and Gbit/s. P4 forwards all that the traffic generator offers.
const THROUGHPUTS: [(&str, f64); 2] = [("88", 4.217), ("1500", 70.715)];
/// Fig. 6, pages of 1 KB: Mbit/s at best.
const TRANSFERS: [(&str, f64); 2] = [("paper: p4", 0.5), ("paper: software", 300.0)];

/// Rows of the paper's figures.
pub fn rows() -> Vec<Row> {
    let row = |figure: &str, device: &str| Row::default().of("part", "paper").of("figure", figure).of("device", device);
    let throughput = |(bytes, gbit)| row("5", "paper: p4").of("frame_bytes", bytes).number("gbit_per_s", gbit);
    let transfers = |(device, mbit)| row("6", device).of("page", "1 KB").number("mbit_per_s", mbit);
    THROUGHPUTS.into_iter().map(throughput).chain(TRANSFERS.into_iter().map(transfers)).collect()
}

/// Gives a row of the paper the fields of the measured rows that its figure belongs to. Others stay as they are.
pub fn beside_measured(row: Row) -> Row {
    match (row.text("part"), row.text("figure")) {
        (Some("paper"), Some("5")) => row.of("part", "throughput").of("tracking", "yes"),
        (Some("paper"), _) => row.of("part", "http").of("flood", "none").of("connections", "best"),
        _ => row,
    }
}
