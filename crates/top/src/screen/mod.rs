//! The screen: a function of the model and of the size of the terminal.

mod attacks;
mod foot;
mod head;
mod notices;
mod overlay;
mod page;
mod room;
mod theme;
mod traffic;

use crate::Model;
use page::Page;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use theme::{Role, Theme};

/// The smallest screen, columns and lines.
const SMALLEST: (u16, u16) = (60, 20);

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    render(model, area, frame.buffer_mut());
}

/// The screen as text, without colours and without blanks at the ends of lines.
pub fn frame(model: &Model, columns: u16, lines: u16) -> String {
    let area = Rect::new(0, 0, columns, lines);
    let mut buffer = Buffer::empty(area);
    render(model, area, &mut buffer);
    let line = |y: u16| {
        let symbols: String = (0..columns).filter_map(|x| buffer.cell((x, y)).map(|cell| cell.symbol())).collect();
        symbols.trim_end().to_owned() + "\n"
    };
    (0..lines).map(line).collect()
}

/// Draws the screen into a part of a buffer.
pub(crate) fn render(model: &Model, area: Rect, buffer: &mut Buffer) {
    let theme = Theme { has_colour: model.setup.has_colour };
    let mut page = Page { buffer, area, theme, y: area.y };
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (columns, lines) = SMALLEST;
        let needs =
            format!("weir top needs {columns} columns and {lines} lines; here are {}x{}", area.width, area.height);
        for part in crate::text::wrapped(&needs, area.width.into()) {
            page.line(vec![page.span(Role::Warn, part)]);
        }
        return;
    }
    let is_low = area.height < 24;
    head::draw(&mut page, model);
    notices::draw(&mut page, model, if area.height < 30 { 2 } else { 5 });
    head::draw_rates(&mut page, model, !is_low);
    let room = room::lines(&page, model, if is_low { 2 } else { 3 }, area.height >= 30);
    let free = page.left().saturating_sub(1 + room.len() as u16);
    let attacks = attacks::height(model).clamp(4, free.div_ceil(2).max(4));
    attacks::draw(&mut page, model, attacks);
    traffic::draw(&mut page, model, free.saturating_sub(attacks));
    room.into_iter().for_each(|line| page.line(line));
    page.y = area.bottom() - 1;
    foot::draw(&mut page, model);
    overlay::draw(&mut page, model);
}
