//! Parses `observe { ... }`.

use super::cursor::{Cursor, Parse, Reported};
use super::token::TokenKind;
use super::tree::{Observe, ObserveSetting};
use super::value;
use crate::diag::{Diagnostic, nearest};

/// The settings.
const WORDS: [&str; 3] = ["size", "each", "inside"];

/// Parses `observe { ... }`.
pub(super) fn observe(cursor: &mut Cursor) -> Parse<Observe> {
    let keyword = cursor.bump();
    let open = cursor.open_block("`observe`")?;
    let settings = cursor.settings(open, &["inside"], setting);
    Ok(Observe { span: keyword.to(cursor.last_span()), settings })
}

fn setting(cursor: &mut Cursor) -> Parse<ObserveSetting> {
    let Some(word) = cursor.word() else { return Err(cursor.unexpected("a setting of `observe`")) };
    if !WORDS.contains(&word) {
        return Err(unknown_setting(cursor, word));
    }
    let keyword = cursor.bump();
    Ok(match word {
        "size" => ObserveSetting::Size(value::number(cursor, "a number of addresses after `size`")?),
        "each" => {
            let of = cursor.name("`address`, `ip` or `ip6` after `each`")?;
            let length = match cursor.eat(TokenKind::Slash) {
                true => Some(value::number(cursor, "the length of a prefix after `/`")?),
                false => None,
            };
            ObserveSetting::Each(of, length)
        }
        _ if cursor.is(TokenKind::OpenBrace) => {
            let element = &mut |cursor: &mut Cursor| value::value(cursor, "an address or prefix");
            let (elements, span) = value::set(cursor, "an address or prefix", element)?;
            ObserveSetting::Inside(elements, keyword.to(span))
        }
        _ => {
            let value = value::value(cursor, "an address or prefix, or a set of them, after `inside`")?;
            let span = keyword.to(value.span());
            ObserveSetting::Inside(vec![value], span)
        }
    })
}

fn unknown_setting(cursor: &mut Cursor, word: &str) -> Reported {
    let diagnostic = Diagnostic::error("E0113", cursor.span(), format!("`observe` has no setting `{word}`"));
    cursor.report(match nearest(word, WORDS) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(format!("the settings are {}", WORDS.join(", "))),
    })
}
