//! What covers a part of the screen: the help, and the explanation of an attack.

use super::page::Page;
use super::theme::Role;
use crate::model::{Model, Overlay};
use crate::text::{cut, printable, wrapped};
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

const HELP: &[(&str, &str)] = &[
    ("Keys", ""),
    ("up down", "select an attack"),
    ("e, Enter", "explain it"),
    ("a", "accept: carry out what waits (asks)"),
    ("d", "dismiss: end its actions (asks)"),
    ("c", "confirm the policy on trial (asks)"),
    ("r", "roll back (asks)"),
    ("/", "filter by victim, kind or state"),
    ("s", "sort: now, peak, dropped, latest"),
    ("p", "pause the screen; Weir goes on"),
    ("q", "quit; Weir goes on"),
    ("Fields", ""),
    ("-", "not known; never 0"),
    ("in", "packets from the lower side"),
    ("down", "packets from the upper side"),
    ("lost", "what Weir did not receive or send"),
    ("samples", "copies for detection that were lost"),
    ("additions", "lost additions of rules to tables"),
    ("now/s", "with what actions hold back"),
    ("held", "share of it that actions drop"),
    ("proven", "share of proven sources in that"),
];

/// Draws what covers the screen, if something does.
pub fn draw(page: &mut Page<'_>, model: &Model) {
    match &model.overlay {
        Some(Overlay::Help) => {
            let lines: Vec<(Role, String)> = HELP.iter().map(|&(key, what)| help_line(key, what)).collect();
            panel(page, "weir top", &lines, 0);
        }
        Some(Overlay::Explain { attack, scroll }) => {
            let text = match model.attack(*attack) {
                Some(entry) => (model.setup.explain)(entry),
                None => format!("attack {attack} is not listed any more"),
            };
            let width = page.width().saturating_sub(6);
            let lines = text.lines().flat_map(|line| wrapped(&printable(line), width));
            let lines: Vec<(Role, String)> = lines.map(|line| (Role::Plain, line)).collect();
            panel(page, "Explained", &lines, *scroll);
        }
        Some(Overlay::Filter | Overlay::Ask(_)) | None => {}
    }
}

fn help_line(key: &str, what: &str) -> (Role, String) {
    if what.is_empty() { (Role::Bold, key.to_owned()) } else { (Role::Plain, format!("  {key:<10} {what}")) }
}

/// A panel in the middle of the screen, above the last line, with the lines from `scroll` on.
fn panel(page: &mut Page<'_>, title: &str, lines: &[(Role, String)], scroll: usize) {
    let most = usize::from(page.area.height.saturating_sub(3));
    let rows = lines.len().min(most.saturating_sub(2));
    let scroll = scroll.min(lines.len() - rows);
    let longest = lines.iter().map(|(_, line)| line.chars().count()).max().unwrap_or(0);
    let width = (longest.max(30) + 4).min(page.width());
    let height = rows + 2;
    let area = Rect {
        x: page.area.x + ((page.width() - width) / 2) as u16,
        y: page.area.y + ((most + 1 - height.min(most)) / 2) as u16 + 1,
        width: width as u16,
        height: height as u16,
    };
    Clear.render(area, page.buffer);
    let more = if lines.len() > rows {
        format!(" {}-{} of {}", scroll + 1, scroll + rows, lines.len())
    } else {
        String::new()
    };
    page.y = area.y;
    let inner = width - 2;
    let title = cut(&format!("─ {title}{more} "), inner);
    let rest = inner - title.chars().count();
    page.put(area.x, area.width, vec![page.span(Role::Bold, format!("┌{title}{}┐", "─".repeat(rest)))]);
    for (role, line) in lines.iter().skip(scroll).take(rows) {
        page.y += 1;
        let (text, width) = (cut(line, inner - 2), inner - 2);
        let spans =
            vec![page.span(Role::Bold, "│ "), page.span(*role, format!("{text:<width$}")), page.span(Role::Bold, " │")];
        page.put(area.x, area.width, spans);
    }
    page.y += 1;
    page.put(area.x, area.width, vec![page.span(Role::Bold, format!("└{}┘", "─".repeat(inner)))]);
}
