//! Draws the scenario with the paper's figures next to ours: Fig. 3, Fig. 6 and Table I.

use super::paper;
use crate::plot::Drawing;
use crate::plot::grouped::{Cell, Chart, Panel};
use crate::row::Row;

/// A drawn field: its name in the chart, the engine of its rows, and its name in rows.
type Bar = (&'static str, &'static str, &'static str);

const WHOLE: Bar = ("whole", "native", "cycles_per_packet");
const LIMIT: Bar = ("lookup + bucket", "native", "limit_cycles_per_packet");
const PAPER: Bar = ("paper, with I/O", paper::ENGINE, "cycles_per_packet");
const RATE: [Bar; 2] = [("whole", "native", "mpps"), ("paper, with I/O", paper::ENGINE, "mpps")];
const LINE: [Bar; 2] =
    [("whole", "native", "times_10gbit_line"), ("paper, with I/O", paper::ENGINE, "times_10gbit_line")];
const MEMORY: [Bar; 2] = [("whole", "native", "bytes"), ("paper, with I/O", paper::ENGINE, "bytes")];

/// Draws the rows.
pub fn draw(title: &str, rows: &[Row]) -> Drawing {
    let of = |field: &str, value: &str| -> Vec<&Row> {
        // Rows with limits that every packet exceeds are from another policy.
        rows.iter().filter(|row| row.text(field) == Some(value) && row.text("limits") != Some("over")).collect()
    };
    let (subnets, bytes, countries) = (of("figure", "3"), of("figure", "6"), of("table", "I"));
    let by = |field: &'static str| move |row: &Row| row.get(field).map(|number| format!("{number}"));
    let of_case = |row: &Row| row.text("of").map(str::to_owned);
    Drawing::Charts(vec![
        chart(
            &format!("{title}, Fig. 3: by limited subnets"),
            &subnets,
            &by("subnets"),
            &[("cycles per packet", &[WHOLE, LIMIT, PAPER], 1.0), ("millions of packets per second", &RATE, 1.0)],
        ),
        chart(
            &format!("{title}, Fig. 6: by bytes of a packet"),
            &bytes,
            &by("packet_bytes"),
            &[("millions of packets per second", &RATE, 1.0), ("multiples of a full link of 10 Gbit/s", &LINE, 1.0)],
        ),
        chart(
            &format!("{title}, Table I: countries"),
            &countries,
            &of_case,
            &[("millions of packets per second", &RATE, 1.0), ("MB", &MEMORY, 1e-6)],
        ),
    ])
}

/// One group for each name of rows, one panel for each field. Values are multiplied by the panel's factor.
fn chart(title: &str, rows: &[&Row], name: &dyn Fn(&Row) -> Option<String>, panels: &[(&str, &[Bar], f64)]) -> Chart {
    let mut groups: Vec<String> = Vec::new();
    for group in rows.iter().filter_map(|row| name(row)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let bars = [WHOLE.0, LIMIT.0, PAPER.0];
    let cell = |group: &str, bar: &str, drawn: &[Bar], factor: f64| {
        let Some(&(_, engine, field)) = drawn.iter().find(|(of, ..)| *of == bar) else { return Cell::Nothing };
        let found = rows.iter().find(|row| name(row).as_deref() == Some(group) && row.text("engine") == Some(engine));
        found.and_then(|row| row.get(field)).map_or(Cell::Nothing, |figure| Cell::Bar(figure * factor))
    };
    let panel = |&(title, drawn, factor): &(&str, &[Bar], f64)| {
        let cells = |group: &String| bars.iter().map(|bar| cell(group, bar, drawn, factor)).collect();
        Panel { title: title.to_owned(), cells: groups.iter().map(cells).collect() }
    };
    Chart {
        title: title.to_owned(),
        panels: panels.iter().map(panel).collect(),
        bars: bars.map(str::to_owned).to_vec(),
        groups: groups.clone(),
        cut: f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_stand_beside_ours() {
        let row = |figure, field, number: f64, cycles| {
            let row = Row::default().of("figure", figure).of("engine", "native").number(field, number);
            row.number("cycles_per_packet", cycles).number("mpps", 123.0).number("times_10gbit_line", 17.5)
        };
        let mut rows = vec![row("3", "subnets", 2.0, 35.5), row("6", "packet_bytes", 170.0, 80.5)];
        rows.push(row("3", "subnets", 2.0, 666.0).of("limits", "over"));
        rows.extend(paper::rows());
        let svg = draw("moonpol", &rows).svg();
        for wanted in ["Fig. 3", "Fig. 6", "Table I", "1048576", "all-countries", "35.5", "492.3", "17.5", "186.0"] {
            assert!(svg.contains(wanted), "{wanted} is missing");
        }
        assert!(!svg.contains("666.0"), "a flood's limits are drawn in place of wide ones");
    }
}
