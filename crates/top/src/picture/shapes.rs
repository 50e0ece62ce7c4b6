//! Lines of a screen as shapes and text of SVG.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

/// The width of a character, pixels.
pub const CELL_WIDTH: u16 = 8;
/// The height of a line, pixels: each eighth of a bar has whole pixels.
pub const CELL_HEIGHT: u16 = 16;
/// The base line of text, pixels below the top of its line.
const BASE_LINE: u16 = 12;
/// More blanks than this between two words divide a text, so that no font moves what follows.
const BLANKS_MAX: usize = 1;

const BARS: &str = "▁▂▃▄▅▆▇█";
const RULE: &str = "─";

/// The colours of a dark terminal. They are readable on light and on dark pages.
pub const STYLE: &str = "\
text{font:13.3px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;white-space:pre}
.screen{fill:#0d1117;stroke:#30363d}
.p{fill:#d5dbe1}.d{fill:#868f99}.g{fill:#56d364}.y{fill:#e3b341}.r{fill:#ff7b72}.w{fill:#fff}.bar{fill:#1f4e9e}
.b{font-weight:bold}
.caption{font:bold 15px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#fff}
";

/// What is drawn alike.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    class: &'static str,
    is_bold: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    Bar,
    Rule,
    Text,
}

/// A line of the screen.
pub fn row(buffer: &Buffer, y: u16) -> String {
    let area = buffer.area();
    let cells: Vec<&Cell> = (area.left()..area.right()).filter_map(|x| buffer.cell((x, y))).collect();
    let mut shapes = String::new();
    let mut at = 0;
    while at < cells.len() {
        let ground = is_coloured(cells[at]);
        let end = run(&cells, at, |cell| is_coloured(cell) == ground);
        if ground {
            let (x, width) = (at as u16 * CELL_WIDTH, (end - at) as u16 * CELL_WIDTH);
            let _ = write!(shapes, "<rect class=\"bar\" x=\"{x}\" width=\"{width}\" height=\"{CELL_HEIGHT}\"/>");
        }
        at = end;
    }
    at = 0;
    while at < cells.len() {
        let (kind, look) = (kind(cells[at]), look(cells[at]));
        let end = match kind {
            Kind::Blank => run(&cells, at, |cell| self::kind(cell) == kind),
            Kind::Bar | Kind::Rule => run(&cells, at, |cell| (self::kind(cell), self::look(cell)) == (kind, look)),
            Kind::Text => end_of_text(&cells, at, look),
        };
        match kind {
            Kind::Blank => {}
            Kind::Bar => bars(&mut shapes, &cells[at..end], at, look),
            Kind::Rule => {
                let (x, y, width) = (at as u16 * CELL_WIDTH, CELL_HEIGHT / 2, (end - at) as u16 * CELL_WIDTH);
                let class = look.class;
                let _ = write!(shapes, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"1\"/>");
            }
            Kind::Text => text(&mut shapes, &cells[at..end], at, look),
        }
        at = end;
    }
    shapes
}

/// The text above the screen.
pub fn caption(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("<text class=\"caption\" y=\"23\">{}</text>", escaped(text))
}

/// Where cells that are alike end.
fn run(cells: &[&Cell], from: usize, is_alike: impl Fn(&Cell) -> bool) -> usize {
    cells[from..].iter().position(|cell| !is_alike(cell)).map_or(cells.len(), |length| from + length)
}

/// Where a text ends: before other looks and shapes, and before many blanks.
fn end_of_text(cells: &[&Cell], from: usize, look: Look) -> usize {
    let mut end = from;
    let mut at = from;
    while at < cells.len() {
        match kind(cells[at]) {
            Kind::Text if self::look(cells[at]) == look => end = at + 1,
            Kind::Blank if at - end < BLANKS_MAX => {}
            _ => break,
        }
        at += 1;
    }
    end
}

fn kind(cell: &Cell) -> Kind {
    match cell.symbol() {
        "" | " " => Kind::Blank,
        RULE => Kind::Rule,
        symbol if BARS.contains(symbol) => Kind::Bar,
        _ => Kind::Text,
    }
}

/// Whether a cell has a background.
fn is_coloured(cell: &Cell) -> bool {
    cell.bg != Color::Reset || cell.modifier.contains(Modifier::REVERSED)
}

fn look(cell: &Cell) -> Look {
    let class = match cell.fg {
        _ if is_coloured(cell) => "w",
        Color::DarkGray => "d",
        Color::Green => "g",
        Color::Yellow => "y",
        Color::Red => "r",
        _ => "p",
    };
    Look { class, is_bold: cell.modifier.contains(Modifier::BOLD) }
}

fn text(shapes: &mut String, cells: &[&Cell], at: usize, Look { class, is_bold }: Look) {
    let (x, width) = (at as u16 * CELL_WIDTH, cells.len() as u16 * CELL_WIDTH);
    let words: String = cells.iter().map(|cell| cell.symbol()).collect();
    let bold = if is_bold { " b" } else { "" };
    let _ = write!(
        shapes,
        "<text class=\"{class}{bold}\" x=\"{x}\" y=\"{BASE_LINE}\" textLength=\"{width}\">{}</text>",
        escaped(&words)
    );
}

/// Bars beside each other are one shape: up to the top of each bar, along it, and down at the end.
fn bars(shapes: &mut String, cells: &[&Cell], at: usize, Look { class, .. }: Look) {
    let mut path = format!("M{} {CELL_HEIGHT}", at as u16 * CELL_WIDTH);
    let mut from = 0;
    while from < cells.len() {
        let symbol = cells[from].symbol();
        let end = run(cells, from, |cell| cell.symbol() == symbol);
        let eighths = BARS.chars().position(|bar| symbol.starts_with(bar)).unwrap_or(0) as u16 + 1;
        let _ = write!(path, "V{}h{}", CELL_HEIGHT - eighths * CELL_HEIGHT / 8, (end - from) as u16 * CELL_WIDTH);
        from = end;
    }
    let _ = write!(shapes, "<path class=\"{class}\" d=\"{path}V{CELL_HEIGHT}z\"/>");
}

/// A text of XML. What XML cannot contain is `U+FFFD` (XML 1.0, section 2.2).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
