//! The part of the screen that is being drawn.

use super::theme::{Role, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// The part of the screen that is not drawn yet, from the top.
pub struct Page<'a> {
    /// The whole screen.
    pub buffer: &'a mut Buffer,
    /// Its place.
    pub area: Rect,
    /// The styles.
    pub theme: Theme,
    /// The current line.
    pub y: u16,
}

impl Page<'_> {
    /// Columns.
    pub fn width(&self) -> usize {
        self.area.width.into()
    }

    /// Lines that are left.
    pub fn left(&self) -> u16 {
        self.area.bottom().saturating_sub(self.y)
    }

    /// A text in the style of a role.
    pub fn span(&self, role: Role, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.theme.style(role))
    }

    /// Draws the next line.
    pub fn line(&mut self, spans: Vec<Span<'static>>) {
        self.put(self.area.x, self.area.width, spans);
        self.y += 1;
    }

    /// Draws a part of the current line.
    pub fn put(&mut self, x: u16, width: u16, spans: Vec<Span<'static>>) {
        if self.y < self.area.bottom() {
            self.buffer.set_line(x, self.y, &Line::from(spans), width);
        }
    }

    /// Draws a part of the current line as the heading of what is below it.
    pub fn heading(&mut self, x: u16, width: u16, text: &str) {
        let text = crate::text::cut(text, usize::from(width).saturating_sub(4));
        let rest = usize::from(width).saturating_sub(text.chars().count() + 3);
        let spans = vec![
            self.span(Role::Dim, "─ "),
            self.span(Role::Bold, text),
            self.span(Role::Dim, format!(" {}", "─".repeat(rest))),
        ];
        self.put(x, width, spans);
    }
}
