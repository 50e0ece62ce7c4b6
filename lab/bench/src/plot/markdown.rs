//! Drawings as tables of Markdown.

use super::grouped::{Cell, Chart, Panel};
use std::fmt::Write;

/// A table with a line for each bar.
pub fn of_bars(title: &str, bars: &[(String, f64)]) -> String {
    let lines = bars.iter().map(|(name, value)| vec![name.clone(), number(*value)]);
    table(title, &[String::new(), "value".to_owned()], lines)
}

/// A table for each panel: a line for each bar, a column for each group. A chart with one kind of bar has a line for
/// each group.
pub fn of_chart(chart: &Chart) -> String {
    chart.panels.iter().map(|panel| of_panel(chart, panel)).collect()
}

fn of_panel(chart: &Chart, panel: &Panel) -> String {
    let title = format!("{}; {}", chart.title, panel.title);
    if let [bar] = &chart.bars[..] {
        let lines = chart.groups.iter().zip(&panel.cells).map(|(group, cells)| vec![group.clone(), text(&cells[0])]);
        return table(&title, &[String::new(), bar.clone()], lines);
    }
    // Bars and groups that this panel lacks take no space.
    let has = |group: usize, bar: usize| panel.cells[group][bar] != Cell::Nothing;
    let (all_groups, all_bars) = (0..chart.groups.len(), 0..chart.bars.len());
    let groups: Vec<usize> = all_groups.clone().filter(|&group| all_bars.clone().any(|bar| has(group, bar))).collect();
    let bars = all_bars.filter(|&bar| all_groups.clone().any(|group| has(group, bar)));
    let head: Vec<String> =
        [String::new()].into_iter().chain(groups.iter().map(|&group| chart.groups[group].clone())).collect();
    let lines = bars.map(|bar| {
        let cells = groups.iter().map(|&group| text(&panel.cells[group][bar]));
        [chart.bars[bar].clone()].into_iter().chain(cells).collect()
    });
    table(&title, &head, lines)
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Bar(value) => number(*value),
        Cell::Word(word) => (*word).to_owned(),
        Cell::Nothing => String::new(),
    }
}

/// Three digits or all whole ones, which exceeds the precision of most measurements.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A table without lines is left out.
fn table(title: &str, head: &[String], lines: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let body: String = lines.map(|cells| line(&cells)).collect();
    let mut text = String::new();
    if !body.is_empty() {
        let rule = vec!["---".to_owned(); head.len()];
        let _infallible = writeln!(text, "{title}:\n\n{}{}{body}", line(head), line(&rule));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_is_a_table_of_what_it_has() {
        let cells = vec![
            vec![Cell::Bar(1234.56), Cell::Word("NC"), Cell::Nothing],
            vec![Cell::Nothing, Cell::Nothing, Cell::Nothing],
            vec![Cell::Bar(7.004), Cell::Nothing, Cell::Nothing],
        ];
        let owned = |names: [&str; 3]| names.map(str::to_owned).to_vec();
        let chart = Chart {
            title: "tables".to_owned(),
            groups: owned(["small", "none", "large"]),
            bars: owned(["first", "second", "third"]),
            panels: vec![Panel { title: "random keys".to_owned(), cells }],
            cut: 1.0,
        };
        assert_eq!(
            of_chart(&chart),
            "tables; random keys:\n\n|  | small | large |\n| --- | --- | --- |\n\
             | first | 1235 | 7.00 |\n| second | NC |  |\n\n"
        );
    }

    #[test]
    fn one_kind_of_bar_makes_lines_of_groups() {
        let panel = Panel { title: "ns".to_owned(), cells: vec![vec![Cell::Bar(12.34)], vec![Cell::Bar(0.5)]] };
        let groups = ["a", "b"].map(str::to_owned).to_vec();
        let (title, bars) = ("live".to_owned(), vec!["median".to_owned()]);
        let text = of_chart(&Chart { title, groups, bars, panels: vec![panel], cut: 1.0 });
        assert_eq!(text, "live; ns:\n\n|  | median |\n| --- | --- |\n| a | 12.3 |\n| b | 0.50 |\n\n");
    }
}
