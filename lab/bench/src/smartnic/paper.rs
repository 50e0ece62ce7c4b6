//! The figures of the paper, measured on four cores of 3.5 GHz with a card of 25 Gbps (37.2 Mpps). Values are from the
//! text of section V, because the figures have no numbers.

use crate::row::Row;

/// Fig. 2a: blocker, number of sources, and millions of dropped packets per second.
const DROPPED: [(&str, &str, f64); 7] = [
    // "around 2.5-4.5 Mpps, even with a relatively small number of attack sources", "almost equal to zero with more
    // than 4K rules"
    ("paper: iptables", "1", 4.5),
    ("paper: iptables", "256", 2.5),
    // "~26 Mpps up to 1K sources, and still ~10 Mpps with 128K attackers, using all CPU cores"
    ("paper: xdp host", "1024", 26.0),
    ("paper: xdp host", "131072", 10.0),
    // "less than 512 ... equal to the maximum achievable rate (37.2 Mpps)"
    ("paper: card", "256", 37.2),
    ("paper: hybrid", "256", 37.2),
    // "the maximum achievable dropping rate in the SmartNIC CPU, which in our case is approximately 15 Mpps"
    ("paper: card's CPU", "1024", 15.0),
];
/// Cores of the paper's host.
const CORES: f64 = 4.0;
/// Fig. 4: blocker, and the rate of the attack in millions per second up to which requests are served.
const SERVED_UNTIL: [(&str, f64); 2] = [("paper: card's CPU", 15.0), ("paper: xdp host", 25.0)];

/// The paper's figures as rows.
pub fn rows() -> Vec<Row> {
    let dropped = |(blocker, sources, mpps): (&str, &str, f64)| {
        let row = Row::default().of("part", "paper").of("figure", "2a").of("blocker", blocker);
        let row = row.of("traffic", "uniform").of("sources", sources).number("mpps", mpps);
        // The card's own rates are none of the host's cores.
        match blocker {
            "paper: iptables" | "paper: xdp host" => {
                row.number("mpps_per_core", mpps / CORES).number("cpu_ns_per_packet", 1e3 * CORES / mpps)
            }
            _ => row,
        }
    };
    let served = |(blocker, mpps): (&str, f64)| {
        Row::default().of("part", "paper").of("figure", "4").of("blocker", blocker).number("served_until_mpps", mpps)
    };
    DROPPED.map(dropped).into_iter().chain(SERVED_UNTIL.map(served)).collect()
}
