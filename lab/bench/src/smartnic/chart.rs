//! Draws the scenario: Fig. 2 with the paper's values next to ours, Fig. 3, and Fig. 4.

use crate::plot::Drawing;
use crate::plot::by_fields::{self, Plan};
use crate::row::Row;

/// Draws the rows. Parts that were not measured are left out.
pub fn draw(title: &str, rows: &[Row]) -> Drawing {
    let mut rows = rows.to_vec();
    // The paper's values are bars of the same chart.
    let paper: Vec<Row> = rows.iter().filter(|row| row.text("part") == Some("paper")).cloned().collect();
    rows.extend(paper.into_iter().map(|row| row.of("part", "drops")));
    let plans = [
        (", Fig. 2: what a dropped packet costs the host", &COST),
        (", Fig. 2: what a core of the host drops (paper: a quarter of four cores)", &RATE),
        (", Fig. 2 with cards: the attack that fills a core of the host", &FULL),
        (": what 128K sources cost, in multiples of 1K", &GROWTH),
        (": what a packet costs the program alone, with 128K sources", &PROGRAM),
        (", Fig. 3: the host's core at a million packets a second", &LOAD),
        (", Fig. 4: requests that are completed under attack", &WEB),
    ];
    by_fields::draw(title, &plans, &rows)
}

const COST: Plan = Plan {
    part: "drops",
    panels: ["traffic", "part"],
    group: "sources",
    bar: "blocker",
    field: "cpu_ns_per_packet",
    unit: "ns of CPU time per packet",
};
const RATE: Plan = Plan { field: "mpps_per_core", unit: "millions of packets per second and core", ..COST };
const GROWTH: Plan = Plan {
    part: "growth",
    panels: ["part", "part"],
    group: "traffic",
    bar: "blocker",
    field: "times_1k",
    unit: "times the cost with 1K sources",
};
const PROGRAM: Plan = Plan { part: "program", field: "program_ns_128k", unit: "ns per packet", ..GROWTH };
const LOAD: Plan = Plan { part: "load", field: "host_cpu_percent", unit: "per cent of a core", ..COST };
const FULL: Plan = Plan { field: "mpps_per_core", unit: "millions of packets per second", ..LOAD };
const WEB: Plan = Plan {
    part: "web",
    panels: ["figure", "sources"],
    group: "attack_pps",
    bar: "blocker",
    field: "completed_requests_per_s",
    unit: "requests per second",
};

#[cfg(test)]
mod tests {
    use super::super::paper;
    use super::*;

    #[test]
    fn the_papers_values_stand_beside_ours() {
        let row = |part, field, number| {
            let row = Row::default().of("part", part).of("traffic", "uniform").of("figure", "4a");
            let row = row.of("blocker", "weir-host").of("sources", "1024").of("attack_pps", "500000");
            row.number(field, number)
        };
        let mut rows = vec![
            row("drops", "cpu_ns_per_packet", 123.5),
            row("drops", "mpps_per_core", 8.25),
            row("load", "host_cpu_percent", 17.5).number("mpps_per_core", 5.7),
            row("web", "completed_requests_per_s", 1999.0),
        ];
        rows.extend(paper::rows());
        let svg = draw("smartnic", &rows).svg();
        for wanted in
            ["Fig. 2", "Fig. 3", "Fig. 4", "123.5", "17.5", "5.7", "1999.0", "paper: xdp host", "400.0", "500000"]
        {
            assert!(svg.contains(wanted), "{wanted} is missing");
        }
    }
}
