//! Draws the scenario: the rate that passes and its variation, by offered rate, next to the models.

use crate::plot::grouped::{Cell, Chart, Panel};
use crate::plot::{Drawing, names};
use crate::row::Row;

/// Draws the rows.
pub fn draw(title: &str, rows: &[Row]) -> Drawing {
    let (groups, workers) = (names(rows, "offered"), names(rows, "workers"));
    let cell = |pattern: &str, offered: &str, workers: &str, field: &str| {
        let wanted = [("pattern", pattern), ("offered", offered), ("workers", workers)];
        let found = rows.iter().find(|row| wanted.iter().all(|(field, name)| row.text(field) == Some(name)));
        found.and_then(|row| row.get(field)).map_or(Cell::Nothing, Cell::Bar)
    };
    let panel = |pattern: &str, title: &str, field: &str| {
        let cells = |offered: &&str| {
            let of = |workers: &str, start: &str| cell(pattern, offered, workers, &format!("{start}{field}"));
            let own_and_exact = workers.iter().flat_map(|workers| [of(workers, ""), of(workers, "exact_")]);
            own_and_exact.chain(workers.first().map(|workers| of(workers, "refilled_"))).collect()
        };
        Panel { title: format!("{pattern}: {title}"), cells: groups.iter().map(cells).collect() }
    };
    let panels = names(rows, "pattern").into_iter().flat_map(|pattern| {
        [
            panel(pattern, "passed packets in thousands per second", "kpps"),
            panel(pattern, "standard deviation of passed packets in 10 ms", "deviation_10ms"),
        ]
    });
    let panels = panels.collect();
    let bars = workers.iter().flat_map(|workers| [format!("{workers} workers"), format!("exact, {workers}")]);
    Drawing::Charts(vec![Chart {
        title: format!("{title}: by offered rate in multiples of the limit"),
        bars: bars.chain(workers.first().map(|_| "refill (paper)".to_owned())).collect(),
        groups: groups.into_iter().map(str::to_owned).collect(),
        panels,
        cut: f64::INFINITY,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_stand_beside_each_number_of_workers() {
        let row = |workers, kpps| {
            let row = Row::default().of("pattern", "even").of("offered", "2 x").of("workers", workers);
            row.number("kpps", kpps).number("exact_kpps", 100.5).number("refilled_kpps", 12.5)
        };
        let svg = draw("rate-accuracy", &[row("1", 99.5), row("2", 98.5)]).svg();
        for wanted in ["even", "2 x", "2 workers", "exact, 2", "99.5", "98.5", "100.5", "12.5"] {
            assert!(svg.contains(wanted), "{wanted} is missing");
        }
    }
}
