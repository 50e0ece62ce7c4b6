//! A recording as a moving picture: an SVG file (SVG 1.1, CSS animations) without scripts, fonts or links.
//!
//! A recording always gives the same picture. Each line of the screen is an element that is visible while the line
//! stays as it is, so a line that does not change is written once. Bars and rules are shapes, because fonts draw them
//! with gaps. A viewer without animations, or for whom motion is to be reduced, sees the last screen.

mod animation;
mod captions;
mod shapes;

use crate::recording::Recording;
use crate::text::printable;
use crate::{Error, Event, Model, Setup, screen};
use animation::{Animation, Interval};
pub use captions::Captions;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use shapes::{CELL_HEIGHT, CELL_WIDTH, caption, row};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How long the last screen stays before the picture begins again, seconds.
const LAST_SECONDS: f64 = 5.0;
/// The shortest and the longest time of another screen, seconds.
const SECONDS: (f64, f64) = (0.1, 3.0);
/// Pixels between the screen and the border.
const MARGIN: u16 = 14;
/// The height of the captions, pixels.
const CAPTION_HEIGHT: u16 = 36;

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The file that is written.
    pub file: PathBuf,
    /// A file with captions.
    pub captions: Option<PathBuf>,
    /// Columns and lines of the screen.
    pub size: (u16, u16),
}

impl Picture {
    /// Draws a recording into the file.
    ///
    /// # Errors
    /// The captions cannot be read, or the file cannot be written.
    pub fn save(&self, recording: &Recording, setup: Setup) -> Result<(), Error> {
        let captions = self.captions.as_deref().map(Captions::read).transpose()?.unwrap_or_default();
        let svg = draw(recording, &captions, setup, self.size);
        std::fs::write(&self.file, svg).map_err(|source| Error::File { path: self.file.clone(), source })
    }
}

/// The picture of a recording.
pub fn draw(recording: &Recording, captions: &Captions, setup: Setup, (columns, lines): (u16, u16)) -> String {
    let ends = ends(recording);
    let mut model = Model::new(setup);
    let area = Rect::new(0, 0, columns, lines);
    let mut rows: Vec<Vec<(String, Interval)>> = vec![Vec::new(); lines.into()];
    let mut texts: Vec<(String, Interval)> = Vec::new();
    let mut start = 0.0;
    for (snapshot, &end) in recording.snapshots.iter().zip(&ends) {
        let text = captions.at(snapshot.time_s);
        model.update(Event::Snapshot(Box::new(snapshot.clone())), Duration::from_secs_f64(start));
        let mut buffer = Buffer::empty(area);
        screen::render(&model, area, &mut buffer);
        for (y, shown) in rows.iter_mut().enumerate() {
            show(shown, row(&buffer, y as u16), (start, end));
        }
        show(&mut texts, text.map(|text| caption(&printable(text))).unwrap_or_default(), (start, end));
        start = end;
    }
    let mut animation = Animation::new(start);
    let mut body = String::new();
    let top = if captions.is_empty() { MARGIN } else { CAPTION_HEIGHT };
    for (y, shown) in rows.iter().enumerate() {
        let y = top + y as u16 * CELL_HEIGHT;
        write_layer(&mut body, &mut animation, shown, (MARGIN, y));
    }
    write_layer(&mut body, &mut animation, &texts, (MARGIN, 0));
    let (width, height) = (columns * CELL_WIDTH + 2 * MARGIN, top + lines * CELL_HEIGHT + MARGIN);
    let style = shapes::STYLE.to_owned() + &animation.style();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>weir top</title>\n<style>\n{style}</style>\n\
         <rect class=\"screen\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n{body}</svg>\n"
    )
}

/// When each screen ends, seconds since the start of the picture.
fn ends(recording: &Recording) -> Vec<f64> {
    let times: Vec<f64> = recording.snapshots.iter().map(|snapshot| snapshot.time_s).collect();
    let mut end = 0.0;
    let mut ends: Vec<f64> = Vec::with_capacity(times.len());
    for pair in times.windows(2) {
        end += (pair[1] - pair[0]).clamp(SECONDS.0, SECONDS.1);
        ends.push(end);
    }
    ends.push(end + LAST_SECONDS);
    ends
}

/// Shows a content in an interval. A content that is shown already goes on.
fn show(shown: &mut Vec<(String, Interval)>, content: String, (start, end): Interval) {
    match shown.last_mut() {
        Some((last, interval)) if *last == content => interval.1 = end,
        _ => shown.push((content, (start, end))),
    }
}

/// Writes the contents of one place of the picture.
fn write_layer(body: &mut String, animation: &mut Animation, shown: &[(String, Interval)], (x, y): (u16, u16)) {
    let shown = shown.iter().filter(|(content, _)| !content.is_empty());
    for (content, interval) in shown {
        let class = animation.class(*interval).map(|class| format!(" class=\"{class}\"")).unwrap_or_default();
        let _ = writeln!(body, "<g transform=\"translate({x} {y})\"{class}>{content}</g>");
    }
}
