//! Parses lists of limits.

use super::cursor::{Cursor, Parse, Reported};
use super::limit::{limit, one_of};
use super::token::TokenKind;
use super::tree::{LimitElement, Limits, LimitsSetting, Log, Operand, Value};
use super::{table, value};
use crate::diag::{Diagnostic, nearest};

/// The settings of a list of limits.
const LIMITS_WORDS: [&str; 6] = ["file", "elements", "default", "table", "nested", "log"];

/// Parses `limits NAME { ... }`.
pub(super) fn limits(cursor: &mut Cursor) -> Parse<Limits> {
    let keyword = cursor.bump();
    let name = cursor.name("a name after `limits`")?;
    let open = cursor.open_block("the name of the limits")?;
    // `table NAME` without a block is a setting. With a block it is an item, so the list was not closed.
    let settings = cursor.settings(open, &[], setting);
    Ok(Limits { span: keyword.to(cursor.last_span()), name, settings })
}

fn setting(cursor: &mut Cursor) -> Parse<LimitsSetting> {
    let keyword = cursor.span();
    Ok(match cursor.word() {
        Some("file") => LimitsSetting::File(table::list_file(cursor)?),
        Some("elements") => {
            cursor.bump();
            cursor.expect(TokenKind::Assign, "`=` after `elements`")?;
            let (elements, span) = value::set(cursor, "an element", &mut |cursor| element(cursor))?;
            LimitsSetting::Elements(elements, keyword.to(span))
        }
        Some("default") => {
            cursor.bump();
            LimitsSetting::Default(limit(cursor)?)
        }
        Some("table") => {
            cursor.bump();
            LimitsSetting::Table(cursor.name("the name of a table with labels after `table`")?)
        }
        Some("nested") => LimitsSetting::Nested(cursor.bump()),
        Some("log") => {
            cursor.bump();
            let word =
                one_of(cursor, &Log::ALL.map(|log| (log.name(), log)), "`off`, `exceeded` or `all` after `log`")?;
            LimitsSetting::Log(word, keyword.to(cursor.last_span()))
        }
        Some(word) => return Err(unknown_setting(cursor, word)),
        None => return Err(cursor.unexpected("a setting of the limits")),
    })
}

fn unknown_setting(cursor: &mut Cursor, word: &str) -> Reported {
    let diagnostic = Diagnostic::error("E0113", cursor.span(), format!("a list of limits has no setting `{word}`"));
    let diagnostic = match (word, nearest(word, LIMITS_WORDS)) {
        ("type", _) => diagnostic.help("a list of limits holds prefixes of both families: it needs no type"),
        ("rate" | "limit", _) => diagnostic.help("write `default 100pps`, or `elements = { 192.0.2.0/24 : 100pps }`"),
        (_, Some(near)) => diagnostic.help(format!("did you mean `{near}`?")),
        (_, None) => diagnostic.help(format!("the settings are {}", LIMITS_WORDS.join(", "))),
    };
    cursor.report(diagnostic)
}

/// Parses an element, such as `192.0.2.0/24 : 10mbit burst 64kbytes` or `HR : 100kpps`.
fn element(cursor: &mut Cursor) -> Parse<LimitElement> {
    let key = match cursor.kind() {
        TokenKind::Word | TokenKind::Number | TokenKind::String => {
            Value::Single(Operand::Atom(value::atom(cursor, "a prefix or a label")?))
        }
        _ => value::value(cursor, "a prefix or a label")?,
    };
    cursor.expect(TokenKind::Colon, "`:` and a rate")?;
    Ok(LimitElement { key, limit: limit(cursor)? })
}
