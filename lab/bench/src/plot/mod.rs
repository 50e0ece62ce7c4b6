//! Draws rows as horizontal bars or in groups, as SVG or as tables of Markdown.

pub mod by_fields;
pub mod grouped;
mod markdown;

use crate::row::Row;
use grouped::Chart;
use plotters::prelude::*;

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 34;
const HEAD_HEIGHT: u32 = 60;
const TITLE_WIDTH: i32 = 380;

/// The different texts in a field, in the order of rows.
pub fn names<'a>(rows: impl IntoIterator<Item = &'a Row>, field: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in rows.into_iter().filter_map(|row| row.text(field)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What a scenario shows of its rows.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Named numbers.
    Bars {
        /// The scenario and the field.
        title: String,
        /// Name and number of each bar.
        bars: Vec<(String, f64)>,
    },
    /// Charts of grouped bars.
    Charts(Vec<Chart>),
}

/// One bar for each row that has the field.
pub fn bars(title: &str, field: &str, rows: &[Row]) -> Drawing {
    let bars = rows.iter().filter_map(|row| Some((row.title(), row.get(field)?))).collect();
    Drawing::Bars { title: format!("{title}: {field}"), bars }
}

impl Drawing {
    /// The drawing as one SVG.
    pub fn svg(&self) -> String {
        match self {
            Drawing::Charts(charts) => grouped::svg_of_all(charts),
            Drawing::Bars { title, bars } => {
                let mut svg = String::new();
                let height = HEAD_HEIGHT + ROW_HEIGHT * bars.len() as u32;
                draw(&mut svg, height, title, bars).expect("drawing into a string does not fail");
                svg
            }
        }
    }

    /// Tables of Markdown with the numbers of the plots, each below its title.
    pub fn markdown(&self) -> String {
        match self {
            Drawing::Charts(charts) => charts.iter().map(markdown::of_chart).collect(),
            Drawing::Bars { title, bars } => markdown::of_bars(title, bars),
        }
    }
}

fn draw(svg: &mut String, height: u32, title: &str, bars: &[(String, f64)]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font();
    area.draw(&Text::new(title.to_owned(), (16, 16), text(20)))?;
    let longest = bars.iter().map(|&(_, value)| value).fold(f64::MIN_POSITIVE, f64::max);
    let room = f64::from(WIDTH as i32 - TITLE_WIDTH - 90);
    for (index, (name, value)) in bars.iter().enumerate() {
        let top = (HEAD_HEIGHT + ROW_HEIGHT * index as u32) as i32;
        let end = TITLE_WIDTH + (value / longest * room) as i32;
        area.draw(&Text::new(name.clone(), (16, top + 6), text(14)))?;
        area.draw(&Rectangle::new([(TITLE_WIDTH, top), (end, top + 24)], RGBColor(58, 110, 165).filled()))?;
        area.draw(&Text::new(format!("{value:.1}"), (end + 8, top + 6), text(14)))?;
    }
    area.present()?;
    Ok(())
}
