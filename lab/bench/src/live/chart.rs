//! Draws the scenario: the cost of a dropped packet, and Fig. 4 with the paper's figures next to ours.

use super::dropped::{DROP_ALL, WEIR};
use crate::plot::grouped::{Cell, Chart, Panel};
use crate::plot::{Drawing, names};
use crate::row::Row;

/// Maximum length of bars, in millions of packets per second. Longer bars are cut.
const CUT_MPPS: f64 = 250.0;

/// Draws the rows.
pub fn draw(title: &str, rows: &[Row]) -> Drawing {
    Drawing::Charts(vec![costs(title, rows), rates(title, rows)])
}

/// The costs of a dropped packet, by contender.
fn costs(title: &str, rows: &[Row]) -> Chart {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.text("table").is_some()).collect();
    let cell = |row: &Row, field: &str| row.get(field).map_or(Cell::Nothing, Cell::Bar);
    let cells = |field: &str| rows.iter().map(|row| vec![cell(row, field)]).collect();
    let panel = |title: &str, field: &str| Panel { title: title.to_owned(), cells: cells(field) };
    Chart {
        title: format!("{title}: what a dropped packet costs on a veth pair"),
        groups: rows.iter().map(|row| row.text("engine").unwrap_or_default().to_owned()).collect(),
        bars: vec!["median".to_owned()],
        panels: vec![
            panel("ns of CPU time per packet, including the generator", "cpu_ns_per_packet"),
            panel(&format!("times {DROP_ALL}"), "times_drop_all"),
            panel(&format!("times {WEIR}"), "times_weir"),
        ],
        cut: f64::INFINITY,
    }
}

/// One panel for each ruleset, one group for each engine, one bar for each number of workers.
fn rates(title: &str, rows: &[Row]) -> Chart {
    let is_rate = |row: &&Row| row.text("ruleset").is_some() && row.text("watched").is_none();
    let rows: Vec<&Row> = rows.iter().filter(is_rate).collect();
    let names = |field: &str| names(rows.iter().copied(), field);
    let (groups, mut bars) = (names("engine"), names("workers"));
    bars.sort_by_key(|workers| workers.parse::<usize>().unwrap_or_default());
    let cell = |ruleset: &str, engine: &str, workers: &str| {
        let wanted = [("ruleset", ruleset), ("engine", engine), ("workers", workers)];
        let found = rows.iter().find(|row| wanted.iter().all(|(field, name)| row.text(field) == Some(name)));
        found.and_then(|row| row.get("mpps")).map_or(Cell::Nothing, Cell::Bar)
    };
    let panel = |ruleset: &&str| {
        let cells = |engine: &&str| bars.iter().map(|workers| cell(ruleset, engine, workers)).collect();
        Panel { title: format!("{ruleset}: millions of packets per second"), cells: groups.iter().map(cells).collect() }
    };
    Chart {
        title: format!("{title}: by engine and workers (paper: cores)"),
        panels: names("ruleset").iter().map(panel).collect(),
        groups: groups.iter().map(|&name| name.to_owned()).collect(),
        bars: bars.iter().map(|&name| name.to_owned()).collect(),
        cut: CUT_MPPS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_charts_are_drawn() {
        let cost = |engine, ns| Row::default().of("table", "t").of("engine", engine).number("cpu_ns_per_packet", ns);
        let rate = |workers, mpps| {
            Row::default().of("engine", "memory").of("ruleset", "forward").of("workers", workers).number("mpps", mpps)
        };
        let svg = draw("live", &[cost("one", 61.5), cost("two", 80.5), rate("1", 99.5), rate("2", 190.5)]).svg();
        for wanted in ["one", "two", "61.5", "80.5", "memory", "forward", "99.5", "190.5"] {
            assert!(svg.contains(wanted), "{wanted} is missing");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }
}
