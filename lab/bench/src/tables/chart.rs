//! Draws the scenario: one panel for each key mix, one group for each table, and the best mode of each layout.

use crate::plot::grouped::{Cell, Chart, Panel};
use crate::plot::{Drawing, names};
use crate::row::Row;

/// Maximum length of bars in cycles. The radix tree takes hundreds.
const CUT: f64 = 120.0;

/// Draws the rows.
pub fn draw(title: &str, rows: &[Row]) -> Drawing {
    let (groups, bars) = (names(rows, "table"), names(rows, "layout"));
    let panel = |keys: &&str| {
        let cells = |table: &&str| bars.iter().map(|layout| cell(rows, table, layout, keys)).collect();
        Panel { title: format!("{keys} keys"), cells: groups.iter().map(cells).collect() }
    };
    let panels = names(rows, "keys").iter().map(panel).collect();
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    Drawing::Charts(vec![Chart {
        title: format!("{title}: TSC cycles per lookup"),
        panels,
        groups: owned(groups),
        bars: owned(bars),
        cut: CUT,
    }])
}

/// The best mode of a layout.
fn cell(rows: &[Row], table: &str, layout: &str, keys: &str) -> Cell {
    let of_cell = |row: &&Row| row.text("table") == Some(table) && row.text("layout") == Some(layout);
    let with_keys = |row: &&Row| row.text("keys") == Some(keys);
    let figures = rows.iter().filter(of_cell).filter(with_keys).filter_map(|row| row.get("cycles_per_lookup"));
    match figures.reduce(f64::min) {
        Some(figure) => Cell::Bar(figure),
        None if rows.iter().filter(of_cell).any(|row| row.text("limit").is_some()) => Cell::Word("NC"),
        None => Cell::Nothing,
    }
}
