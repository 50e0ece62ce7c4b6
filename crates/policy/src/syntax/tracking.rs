//! Parses `tracking { ... }`.

use super::cursor::{Cursor, Parse, Reported};
use super::token::TokenKind;
use super::tree::{Atom, Tracking, TrackingSetting};
use super::value;
use crate::diag::{Diagnostic, nearest};

/// The settings.
const WORDS: [&str; 6] = ["size", "embryonic", "timeout", "pickup", "one-way", "invalid"];

/// Parses `tracking { ... }`.
pub(super) fn tracking(cursor: &mut Cursor) -> Parse<Tracking> {
    let keyword = cursor.bump();
    let open = cursor.open_block("`tracking`")?;
    let settings = cursor.settings(open, setting);
    Ok(Tracking { span: keyword.to(cursor.last_span()), settings })
}

fn setting(cursor: &mut Cursor) -> Parse<TrackingSetting> {
    let Some(word) = cursor.word() else { return Err(cursor.unexpected("a setting of `tracking`")) };
    if !WORDS.contains(&word) {
        return Err(unknown_setting(cursor, word));
    }
    let keyword = cursor.bump();
    Ok(match word {
        "size" => TrackingSetting::Size(value::number(cursor, "a number of flows after `size`")?),
        "embryonic" => {
            let number = value::number(cursor, "a share such as `25%` after `embryonic`")?;
            let percent = cursor.expect(TokenKind::Percent, "`%` after the number")?;
            TrackingSetting::Embryonic(Atom { span: number.span.to(percent), ..number })
        }
        "timeout" => {
            let of = cursor.name("the name of a timeout such as `established`")?;
            let expected = format!("a time such as `10m` after `timeout {}`", of.text);
            TrackingSetting::Timeout(of, value::number(cursor, &expected)?)
        }
        "pickup" => TrackingSetting::Pickup(cursor.name("`on` or `off` after `pickup`")?),
        "invalid" => TrackingSetting::Invalid(cursor.name("accept, drop, divert or rules after `invalid`")?),
        _ => TrackingSetting::OneWay(keyword),
    })
}

fn unknown_setting(cursor: &mut Cursor, word: &str) -> Reported {
    let diagnostic = Diagnostic::error("E0113", cursor.span(), format!("`tracking` has no setting `{word}`"));
    cursor.report(match nearest(word, WORDS) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(format!("the settings are {}", WORDS.join(", "))),
    })
}
