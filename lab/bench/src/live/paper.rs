//! The figures of the RFPF paper: section IV, measured on a Ryzen 7 3700X of 3.6 GHz with eight ports of 10 Gbps.

use crate::row::Row;

/// Engine, ruleset, cores, and millions of packets per second.
const FIGURES: [(&str, &str, &str, f64); 10] = [
    // Fig. 4 according to the text: one core, and the smallest number of cores with the maximum rate.
    ("paper-rfpf", "forward", "1", 28.0),
    ("paper-rfpf", "forward", "4", 74.0),
    ("paper-rfpf", "drop", "1", 29.8),
    ("paper-rfpf", "drop", "5", 84.0),
    ("paper-xdp", "forward", "1", 7.3),
    ("paper-xdp", "forward", "5", 19.1),
    ("paper-xdp", "drop", "1", 11.5),
    ("paper-xdp", "drop", "8", 48.6),
    // Fig. 5 (random sources) and 6 (botnet), both with D16X4R.
    ("paper-rfpf", "three-tables-random", "6", 67.2),
    ("paper-rfpf", "three-tables", "8", 62.6),
];

/// Rows of the paper's figures.
pub fn rows() -> Vec<Row> {
    let row = |(engine, ruleset, workers, mpps)| {
        Row::default().of("engine", engine).of("ruleset", ruleset).of("workers", workers).number("mpps", mpps)
    };
    FIGURES.into_iter().map(row).collect()
}
