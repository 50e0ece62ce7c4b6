//! Draws the scenario: the CPU time of a packet, and the paper's Fig. 5 (throughput by packet size) and Fig. 6 (HTTP
//! transfers by page and number of connections).

use super::paper;
use crate::plot::Drawing;
use crate::plot::by_fields::{self, Plan};
use crate::row::Row;

/// Draws the rows. Parts that were not measured are left out. The paper's figures are beside those that were measured.
pub fn draw(title: &str, rows: &[Row]) -> Drawing {
    let plans = [
        (": a packet in memory", &MEMORY),
        (": what a forwarded packet of established flows costs on a veth pair", &FORWARDED),
        (": throughput by packet size (paper: Fig. 5, with its hardware)", &THROUGHPUT),
        (": HTTP transfers by number of connections (paper: Fig. 6, with its hardware)", &HTTP),
        (": requests that are answered under a flood", &DEMAND),
    ];
    let is_measured = |row: &Row| rows.iter().any(|measured| measured.text("part") == row.text("part"));
    let rows: Vec<Row> = rows.iter().cloned().map(paper::beside_measured).filter(is_measured).collect();
    by_fields::draw(title, &plans, &rows)
}

const MEMORY: Plan = Plan {
    part: "memory",
    panels: ["traffic", "engine"],
    group: "connections",
    bar: "policy",
    field: "cycles_per_packet",
    unit: "cycles per packet",
};
const FORWARDED: Plan = Plan {
    part: "forwarded",
    panels: ["connections", "part"],
    group: "forwarder",
    bar: "part",
    field: "cpu_ns_per_packet",
    unit: "ns of CPU time per packet, including the generator",
};
const THROUGHPUT: Plan = Plan {
    part: "throughput",
    panels: ["frame_bytes", "part"],
    group: "device",
    bar: "tracking",
    field: "gbit_per_s",
    unit: "Gbit/s",
};
const DEMAND: Plan = Plan {
    part: "demand",
    panels: ["part", "part"],
    group: "flood",
    bar: "device",
    field: "answered_percent",
    unit: "per cent",
};
const HTTP: Plan = Plan {
    part: "http",
    panels: ["page", "flood"],
    group: "device",
    bar: "connections",
    field: "mbit_per_s",
    unit: "Mbit/s",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_chart() {
        let part = |part| Row::default().of("part", part);
        let measured = [
            part("throughput")
                .of("device", "xdp")
                .of("tracking", "yes")
                .of("frame_bytes", "88")
                .number("gbit_per_s", 1.5),
            part("http")
                .of("device", "synproxy")
                .of("flood", "SYN")
                .of("page", "1 KB")
                .of("connections", "256")
                .number("mbit_per_s", 77.5),
        ];
        let text = draw("stateful", &measured).svg();
        for wanted in ["Fig. 5", "xdp", "frame_bytes 88", "1.5", "Fig. 6", "synproxy", "page 1 KB, flood SYN", "77.5"] {
            assert!(text.contains(wanted), "{wanted} is missing");
        }
        assert!(!text.contains("a packet in memory") && !text.contains("paper: p4"));
        assert!(!draw("stateful", &paper::rows()).svg().contains("paper: p4"));
        let text = draw("stateful", &[measured.to_vec(), paper::rows()].concat()).svg();
        for wanted in
            ["frame_bytes 88", "frame_bytes 1500", "70.7", "page 1 KB, flood none", "paper: software", "best", "300"]
        {
            assert!(text.contains(wanted), "{wanted} is missing");
        }
    }
}
