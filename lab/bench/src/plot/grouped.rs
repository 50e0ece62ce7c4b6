//! Draws panels of grouped bars, for instance one group for each table, one bar for each layout and one panel for each
//! key mix.

use plotters::prelude::*;
use plotters::style::{FontTransform, TextStyle};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const HEAD_HEIGHT: i32 = 72;
const PANEL_HEIGHT: i32 = 300;
/// Space in a panel above the bars, and below them for the names of groups.
const ABOVE: i32 = 64;
const BELOW: i32 = 34;
const LEFT: i32 = 56;
const BAR_WIDTH: i32 = 13;
const GROUP_GAP: i32 = 22;
const LEGEND_WIDTH: i32 = 110;
const WIDTH_MIN: i32 = 700;
/// Width of a letter in a group's name.
const LETTER_WIDTH: i32 = 7;
/// Number of horizontal lines in a panel.
const LINES: i32 = 4;

/// Colours of the bars in a group, repeated if there are more bars.
const COLOURS: [RGBColor; 14] = [
    RGBColor(198, 219, 239),
    RGBColor(158, 202, 225),
    RGBColor(107, 174, 214),
    RGBColor(199, 199, 199),
    RGBColor(166, 166, 166),
    RGBColor(130, 130, 130),
    RGBColor(95, 95, 95),
    RGBColor(44, 140, 80),
    RGBColor(120, 190, 100),
    RGBColor(188, 170, 210),
    RGBColor(130, 100, 175),
    RGBColor(240, 160, 75),
    RGBColor(205, 60, 50),
    RGBColor(120, 70, 40),
];

/// The content of a bar's position.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A value.
    Bar(f64),
    /// A word that explains why there is no value.
    Word(&'static str),
    /// The combination was not measured.
    Nothing,
}

/// The bars of all groups: `cells[group][bar]`.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title above the panel.
    pub title: String,
    /// One vector for each group.
    pub cells: Vec<Vec<Cell>>,
}

/// Panels with the same groups and bars.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title of the chart.
    pub title: String,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Names of the bars in a group.
    pub bars: Vec<String>,
    /// The panels from top to bottom.
    pub panels: Vec<Panel>,
    /// Maximum value that is drawn. Longer bars are cut but labelled with their value.
    pub cut: f64,
}

/// Draws charts below each other as one SVG.
pub fn svg_of_all(charts: &[Chart]) -> String {
    let mut svg = String::new();
    draw(&mut svg, charts).expect("drawing into a string does not fail");
    svg
}

fn draw(svg: &mut String, charts: &[Chart]) -> Drawn {
    let width = charts.iter().map(width_of).max().unwrap_or(WIDTH_MIN);
    let height: i32 = charts.iter().map(|chart| height_of(chart, width)).sum();
    let area = SVGBackend::with_string(svg, (width as u32, height.max(1) as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut top = 0;
    for chart in charts {
        draw_chart(&area, chart, top, width)?;
        top += height_of(chart, width);
    }
    area.present()?;
    Ok(())
}

fn width_of(chart: &Chart) -> i32 {
    let groups: i32 = (0..chart.groups.len()).map(|group| group_width(chart, group) + GROUP_GAP).sum();
    (LEFT + groups + GROUP_GAP).max(WIDTH_MIN)
}

/// Number of bar names in a line of the legend.
fn names_per_line(width: i32) -> i32 {
    ((width - LEFT) / LEGEND_WIDTH).max(1)
}

fn legend_height(chart: &Chart, width: i32) -> i32 {
    let per_line = names_per_line(width);
    (chart.bars.len() as i32 + per_line - 1) / per_line * 20
}

fn height_of(chart: &Chart, width: i32) -> i32 {
    HEAD_HEIGHT + legend_height(chart, width) + PANEL_HEIGHT * chart.panels.len() as i32
}

fn draw_chart(area: &Area<'_>, chart: &Chart, top: i32, width: i32) -> Drawn {
    area.draw(&Text::new(chart.title.clone(), (16, top + 16), ("sans-serif", 20).into_font()))?;
    let per_line = names_per_line(width);
    for (index, name) in (0..).zip(&chart.bars) {
        let at = (LEFT + index % per_line * LEGEND_WIDTH, top + 52 + index / per_line * 20);
        area.draw(&Rectangle::new([at, (at.0 + 12, at.1 + 12)], colour(index as usize).filled()))?;
        area.draw(&Text::new(name.clone(), (at.0 + 18, at.1), ("sans-serif", 13).into_font()))?;
    }
    for (index, panel) in (0..).zip(&chart.panels) {
        let top = top + HEAD_HEIGHT + legend_height(chart, width) + index * PANEL_HEIGHT;
        draw_panel(area, chart, panel, top, width)?;
    }
    Ok(())
}

/// The bars that a group has in at least one panel. Only they take space.
fn bars_of(chart: &Chart, group: usize) -> Vec<usize> {
    let there = |bar: &usize| chart.panels.iter().any(|panel| panel.cells[group][*bar] != Cell::Nothing);
    (0..chart.bars.len()).filter(there).collect()
}

fn group_width(chart: &Chart, group: usize) -> i32 {
    let name = chart.groups[group].len() as i32 * LETTER_WIDTH;
    name.max(bars_of(chart, group).len() as i32 * BAR_WIDTH)
}

fn draw_panel(area: &Area<'_>, chart: &Chart, panel: &Panel, top: i32, width: i32) -> Drawn {
    let figures = panel.cells.iter().flatten().filter_map(|cell| match cell {
        Cell::Bar(figure) => Some(*figure),
        _ => None,
    });
    let most = figures.fold(f64::MIN_POSITIVE, f64::max).min(chart.cut);
    let (base, room) = (top + PANEL_HEIGHT - BELOW, PANEL_HEIGHT - ABOVE - BELOW);
    area.draw(&Text::new(panel.title.clone(), (16, top + 4), ("sans-serif", 16).into_font()))?;
    for line in 0..=LINES {
        let y = base - room * line / LINES;
        area.draw(&PathElement::new([(LEFT - 6, y), (width - GROUP_GAP, y)], RGBColor(225, 225, 225)))?;
        let figure = format!("{:.0}", most * f64::from(line) / f64::from(LINES));
        area.draw(&Text::new(figure, (16, y - 7), ("sans-serif", 12).into_font()))?;
    }
    let upright = TextStyle::from(("sans-serif", 11).into_font()).transform(FontTransform::Rotate270);
    let mut left = LEFT;
    for (group, name) in chart.groups.iter().enumerate() {
        area.draw(&Text::new(name.clone(), (left, base + 8), ("sans-serif", 13).into_font()))?;
        for (place, bar) in (0..).zip(bars_of(chart, group)) {
            let left = left + place * BAR_WIDTH;
            let (tall, text) = match panel.cells[group][bar] {
                Cell::Bar(figure) => ((figure.min(most) / most * f64::from(room)) as i32, format!("{figure:.1}")),
                Cell::Word(word) => (0, word.to_owned()),
                Cell::Nothing => (0, String::new()),
            };
            let right = left + BAR_WIDTH - 2;
            area.draw(&Rectangle::new([(left, base - tall), (right, base)], colour(bar).filled()))?;
            area.draw(&Text::new(text, (left - 1, base - tall - 4), upright.clone()))?;
        }
        left += group_width(chart, group) + GROUP_GAP;
    }
    Ok(())
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::{Cell, Chart, Panel, svg_of_all};

    #[test]
    fn figures_and_reasons_are_written() {
        let cells = vec![vec![Cell::Bar(12.34), Cell::Word("NC")], vec![Cell::Nothing, Cell::Bar(900.0)]];
        let text = svg_of_all(&[Chart {
            title: "a title".to_owned(),
            groups: vec!["one".to_owned(), "two".to_owned()],
            bars: vec!["first".to_owned(), "second".to_owned()],
            panels: vec![Panel { title: "above".to_owned(), cells }],
            cut: 100.0,
        }]);
        for wanted in ["a title", "one", "two", "first", "second", "above", "12.3", "NC", "900.0"] {
            assert!(text.contains(wanted), "{wanted} is missing");
        }
    }
}
