//! Draws rows as grouped bars, by their fields.

use super::grouped::{Cell, Chart, Panel};
use super::{Drawing, names};
use crate::row::Row;

/// Which rows a chart has, and by which fields they become panels, groups and bars.
pub struct Plan {
    /// The text of the field `part` in its rows.
    pub part: &'static str,
    /// A panel for each pair of texts in these fields.
    pub panels: [&'static str; 2],
    /// A group for each text in this field, and a bar for each in the next.
    pub group: &'static str,
    /// See `group`.
    pub bar: &'static str,
    /// The number.
    pub field: &'static str,
    /// Its unit, for titles.
    pub unit: &'static str,
}

/// Draws the charts of plans, one below the other, each with its title behind the scenario's. Plans without rows are
/// left out.
pub fn draw(title: &str, plans: &[(&str, &Plan)], rows: &[Row]) -> Drawing {
    let charts = plans.iter().filter_map(|(of, plan)| chart(format!("{title}{of}"), rows, plan));
    Drawing::Charts(charts.collect())
}

/// The chart of a plan, or `None` without rows.
fn chart(title: String, rows: &[Row], plan: &Plan) -> Option<Chart> {
    let has = |row: &&Row| {
        row.text("part") == Some(plan.part) && row.text(plan.group).is_some() && row.get(plan.field).is_some()
    };
    let rows: Vec<&Row> = rows.iter().filter(has).collect();
    let names = |field: &str| names(rows.iter().copied(), field);
    let (groups, bars) = (names(plan.group), names(plan.bar));
    let cell = |wanted: [(&str, &str); 4]| {
        let found = rows.iter().find(|row| wanted.iter().all(|(field, name)| row.text(field) == Some(name)));
        found.and_then(|row| row.get(plan.field)).map_or(Cell::Nothing, Cell::Bar)
    };
    let mut panels = Vec::new();
    for first in names(plan.panels[0]) {
        for second in names(plan.panels[1]) {
            let at = [(plan.panels[0], first), (plan.panels[1], second)];
            let cells = |group: &&str| {
                bars.iter().map(|bar| cell([at[0], at[1], (plan.group, *group), (plan.bar, *bar)])).collect()
            };
            let of = |(field, name): (&str, &str)| format!("{field} {name}");
            let title = if at[0] == at[1] { of(at[0]) } else { format!("{}, {}", of(at[0]), of(at[1])) };
            let title = format!("{title}: {}", plan.unit);
            panels.push(Panel { title, cells: groups.iter().map(cells).collect() });
        }
    }
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let chart = Chart { title, groups: owned(&groups), bars: owned(&bars), panels, cut: f64::INFINITY };
    (!chart.panels.is_empty()).then_some(chart)
}
