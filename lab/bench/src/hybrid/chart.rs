//! Draws the scenario: Fig. 7 and 8 as cycles alone and behind the card, Fig. 9 with the paper's values next to ours.
//! Frames of the RTL have bars of their own.

use super::Maker;
use crate::plot::Drawing;
use crate::plot::by_fields::{self, Plan};
use crate::row::Row;

/// Draws the rows.
pub fn draw(title: &str, rows: &[Row]) -> Drawing {
    let bars = |row: &Row| {
        let is_of_rtl = row.text("frames") == Some(Maker::Rtl.name());
        let name = |bar: &str| if is_of_rtl { format!("{bar}, RTL") } else { bar.to_owned() };
        let group = row.text("group").unwrap_or_default();
        let own = row.clone().of("part", "saved").of("bar", &name(group));
        let cycles = |bar: &str, field: &str| {
            let cycles = row.get(field)?;
            Some(row.clone().of("part", group).of("bar", &name(bar)).number("cycles", cycles))
        };
        let paper = (row.text("part") == Some("paper")).then(|| own.clone().of("bar", "paper"));
        let ours = cycles("alone", "alone_cycles_per_packet").map(|_| own);
        let ways = ["alone", "card", "planned"].map(|way| {
            // The policy alone has no frames of a card: it is the same in both rows.
            let is_drawn = way != "alone" || !is_of_rtl;
            is_drawn.then(|| cycles(way, &format!("{way}_cycles_per_packet"))).flatten()
        });
        ways.into_iter().chain([paper, ours]).flatten().collect::<Vec<_>>()
    };
    let rows: Vec<Row> = rows.iter().flat_map(bars).collect();
    let plans = [
        (", Fig. 7: rulesets without terminating rules", &COUNTING),
        (", Fig. 8: rulesets with terminating rules", &TERMINATING),
        (", Fig. 9: fewer cycles behind the card", &SAVED),
    ];
    by_fields::draw(title, &plans, &rows)
}

const COUNTING: Plan = Plan {
    part: "counting",
    panels: ["card", "traffic"],
    group: "ruleset",
    bar: "bar",
    field: "cycles",
    unit: "cycles per packet",
};
const TERMINATING: Plan = Plan { part: "terminating", ..COUNTING };
const SAVED: Plan = Plan { part: "saved", field: "saved_percent", unit: "per cent of the cycles", ..COUNTING };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_values_stand_beside_ours() {
        let row = Row::default().of("part", "cycles").of("card", "netfpga-sume").of("traffic", "random");
        let row = row.of("group", "terminating").of("ruleset", "lists-then-ports");
        let row = row.number("alone_cycles_per_packet", 41.5).number("card_cycles_per_packet", 30.25);
        let mut rows = super::super::paper_rows();
        rows.push(row.clone().of("frames", "generator").number("saved_percent", 27.1));
        rows.push(row.of("frames", "rtl").number("saved_percent", 26.3));
        let svg = draw("hybrid", &rows).svg();
        for wanted in ["Fig. 8", "Fig. 9", "41.5", "30.2", "27.1", "paper", "20.2", "lists-then-ports"] {
            assert!(svg.contains(wanted), "{wanted} is missing");
        }
        for wanted in ["card, RTL", "terminating, RTL", "26.3"] {
            assert!(svg.contains(wanted), "{wanted} is missing");
        }
        assert!(!svg.contains("alone, RTL"), "the policy alone is drawn twice");
        assert!(!svg.contains("Fig. 7"), "there are no such rows");
    }
}
