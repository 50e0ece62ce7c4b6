//! The attacks.

use super::page::Page;
use super::theme::Role;
use crate::model::Model;
use crate::rows::{Row, State};
use crate::text::{UNKNOWN, cut, duration, grouped, known, share, short};
use ratatui::style::Stylize;

/// Lines that all attacks need, with heading and names of columns.
pub fn height(model: &Model) -> u16 {
    u16::try_from(model.rows().len()).unwrap_or(u16::MAX).saturating_add(2)
}

/// A column: its name, its width, whether it is aligned to the right, and its text.
struct Column {
    name: &'static str,
    width: usize,
    is_number: bool,
    text: fn(&Row) -> String,
}

const fn column(name: &'static str, width: usize, is_number: bool, text: fn(&Row) -> String) -> Column {
    Column { name, width, is_number, text }
}

/// The columns that fit. Victim and kind get what is left.
fn columns(width: usize) -> Vec<Column> {
    let number = column("#", 4, true, |row| row.attack.to_string());
    let victim = |width| column("victim", width, false, |row| row.victim.clone());
    let kind = |width| column("kind", width, false, |row| row.kinds.clone());
    let now = column("now/s", 6, true, |row| known(row.now));
    let peak = column("peak/s", 6, true, |row| short(row.peak));
    let held = column("held", 6, true, |row| row.held.map_or(UNKNOWN.to_owned(), share));
    let dropped = column("dropped", 7, true, |row| row.dropped.map_or(UNKNOWN.to_owned(), |count| short(count as f64)));
    let proven = column("proven", 6, true, |row| row.proven.map_or(UNKNOWN.to_owned(), share));
    let since = column("since", 7, true, |row| duration(row.age_s));
    let state = column("state", 10, false, Row::state_text);
    let mut fixed = vec![now];
    if width >= 72 {
        fixed.push(peak);
    }
    if width >= 90 {
        fixed.push(held);
    }
    fixed.push(dropped);
    if width >= 72 {
        fixed.push(proven);
    }
    if width >= 100 {
        fixed.push(since);
    }
    fixed.push(state);
    let used: usize = fixed.iter().map(|column| column.width + 1).sum();
    let rest = width.saturating_sub(used + number.width + 4);
    // An IPv4 address has up to 15 characters, and most kinds have up to 14.
    let for_kind = (rest / 2).max(14).min(rest.saturating_sub(15)).clamp(8, 40);
    let mut columns = vec![number, victim(rest.saturating_sub(for_kind).min(44)), kind(for_kind)];
    columns.extend(fixed);
    columns
}

/// Draws the attacks in `height` lines.
pub fn draw(page: &mut Page<'_>, model: &Model, height: u16) {
    let rows = model.rows();
    let all = model.snapshot.as_ref().and_then(|snapshot| snapshot.attacks.as_ref());
    let (x, width) = (page.area.x, page.area.width);
    page.heading(x, width, &heading(model, rows.len()));
    page.y += 1;
    let end = page.y + height - 1;
    let columns = columns(page.width());
    if rows.is_empty() {
        let text = match all {
            None => format!(" {UNKNOWN}"),
            Some(all) if all.attacks.is_empty() => " none".to_owned(),
            Some(all) => format!(" none of {} matches the filter; Esc removes it", all.attacks.len()),
        };
        page.line(vec![page.span(Role::Dim, text)]);
        page.y = end;
        return;
    }
    let names: Vec<String> = columns.iter().map(|column| aligned(column, column.name)).collect();
    page.line(vec![page.span(Role::Dim, format!(" {}", names.join(" ")))]);
    let selected = model.selected_attack();
    let room = usize::from(end.saturating_sub(page.y));
    let at = rows.iter().position(|row| Some(row.attack) == selected).unwrap_or(0);
    let first = (at + 1).saturating_sub(room);
    for row in rows.iter().skip(first).take(room) {
        let texts: Vec<String> = columns.iter().map(|column| aligned(column, &(column.text)(row))).collect();
        let is_selected = Some(row.attack) == selected;
        let mark = if is_selected { ">" } else { " " };
        let (text, width) = (format!("{mark}{}", texts.join(" ")), page.width());
        let mut span = page.span(role(row), format!("{text:<width$}"));
        if is_selected {
            span = span.reversed();
        }
        page.line(vec![span]);
    }
    page.y = end;
}

fn heading(model: &Model, shown: usize) -> String {
    let Some(all) = model.snapshot.as_ref().and_then(|snapshot| snapshot.attacks.as_ref()) else {
        return "Attacks: not measured".to_owned();
    };
    let samples = &all.samples;
    let filter = if model.filter.is_empty() { String::new() } else { format!(", filter {:?}", model.filter) };
    let count = match shown == all.attacks.len() {
        true => shown.to_string(),
        false => format!("{shown} of {}", all.attacks.len()),
    };
    let blind = if samples.blind_windows > 0 {
        format!(", {} of {} windows blind", grouped(samples.blind_windows), grouped(samples.windows))
    } else {
        String::new()
    };
    let mode = crate::text::printable(&all.mode);
    format!(
        "Attacks: {count}, mode {mode}, samples 1/{}{blind}, sorted by {}{filter}",
        samples.one_in,
        model.order.name()
    )
}

fn aligned(column: &Column, text: &str) -> String {
    let (text, width) = (cut(text, column.width), column.width);
    if column.is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn role(row: &Row) -> Role {
    match row.state {
        State::Over => Role::Dim,
        State::Acting(_) => Role::Warn,
        State::Waiting(_) | State::Watched(_) | State::Failed(_) | State::NoAction => Role::Bad,
    }
}
