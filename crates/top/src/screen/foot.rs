//! The last line: a question, the filter, a message, or the keys.

use super::page::Page;
use super::theme::Role;
use crate::model::{Model, Overlay};
use crate::text::cut;

/// Draws the line.
pub fn draw(page: &mut Page<'_>, model: &Model) {
    let (role, text) = match (&model.overlay, &model.message) {
        (Some(Overlay::Ask(question)), _) => (Role::Bar, format!(" [y/N] {}", question.text)),
        (Some(Overlay::Filter), _) => {
            let filter = crate::text::printable(&model.filter);
            (Role::Bar, format!(" filter victim, kind or state: {filter}_  Enter keeps, Esc removes it"))
        }
        (_, Some(message)) => (if message.is_problem { Role::Bad } else { Role::Bold }, format!(" {}", message.text)),
        (Some(Overlay::Help | Overlay::Explain { .. }), None) => (Role::Bold, " Esc closes".to_owned()),
        (None, None) => return keys(page, model),
    };
    let width = page.width();
    let text = cut(&text, width);
    page.line(vec![page.span(role, format!("{text:<width$}"))]);
}

fn keys(page: &mut Page<'_>, model: &Model) {
    let mut keys = vec![("q", "quit"), ("?", "help")];
    if model.is_on_trial() {
        keys.push(("c", "keep trial"));
        keys.push(("r", "roll back"));
    }
    if !model.rows().is_empty() {
        keys.extend([("e", "explain"), ("a", "accept"), ("d", "dismiss")]);
    }
    keys.extend([("/", "filter"), ("s", "sort"), ("p", "pause")]);
    let mut spans = vec![page.span(Role::Plain, " ")];
    let mut used = 1;
    for (key, what) in keys {
        used += key.len() + what.len() + 3;
        if used > page.width() {
            break;
        }
        spans.push(page.span(Role::Bold, key));
        spans.push(page.span(Role::Dim, format!(" {what}  ")));
    }
    page.line(spans);
}
