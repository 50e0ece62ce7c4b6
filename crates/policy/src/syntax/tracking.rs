//! Parses `tracking { ... }`.

use super::cursor::{Cursor, Parse, Reported};
use super::token::TokenKind;
use super::tree::{Atom, SynproxyOffer, SynproxyThreshold, Tracking, TrackingSetting};
use super::{limit, value};
use crate::diag::{Diagnostic, nearest};
use crate::source::Span;

/// The settings.
const WORDS: [&str; 9] =
    ["size", "embryonic", "unproven", "timeout", "pickup", "one-way", "vlan", "invalid", "synproxy"];

/// Parses `tracking { ... }`.
pub(super) fn tracking(cursor: &mut Cursor) -> Parse<Tracking> {
    let keyword = cursor.bump();
    let open = cursor.open_block("`tracking`")?;
    let settings = cursor.settings(open, &[], setting);
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
        "embryonic" => TrackingSetting::Embryonic(share(cursor, "a share such as `25%` after `embryonic`")?),
        "unproven" => TrackingSetting::Unproven(share(cursor, "a share such as `50%` after `unproven`")?),
        "timeout" => {
            let of = cursor.name("the name of a timeout such as `established`")?;
            let expected = format!("a time such as `10m` after `timeout {}`", of.text);
            TrackingSetting::Timeout(of, value::number(cursor, &expected)?)
        }
        "pickup" => TrackingSetting::Pickup(cursor.name("`on` or `off` after `pickup`")?),
        "vlan" => TrackingSetting::Vlan(cursor.name("`match` or `ignore` after `vlan`")?),
        "invalid" => TrackingSetting::Invalid(cursor.name("accept, drop, divert or rules after `invalid`")?),
        "synproxy" if cursor.is_word("on") => threshold(cursor, keyword)?,
        "synproxy" => offer(cursor, keyword)?,
        _ => TrackingSetting::OneWay(keyword),
    })
}

/// `25%`
fn share(cursor: &mut Cursor, expected: &str) -> Parse<Atom> {
    let number = value::number(cursor, expected)?;
    let percent = cursor.expect(TokenKind::Percent, "`%` after the number")?;
    Ok(Atom { span: number.span.to(percent), ..number })
}

/// `mss 1460 wscale 7 sack-perm timestamp`, the last three in any order.
fn offer(cursor: &mut Cursor, keyword: Span) -> Parse<TrackingSetting> {
    if !cursor.is_word("mss") {
        return Err(cursor.unexpected("`mss N` or `on RATE` after `synproxy`"));
    }
    cursor.bump();
    let mss = value::number(cursor, "the largest segment of the servers after `mss`, such as `1460`")?;
    let (mut wscale, mut sack_perm, mut timestamp) = (None, None, None);
    loop {
        match cursor.word() {
            Some("wscale") if wscale.is_none() => {
                cursor.bump();
                wscale = Some(value::number(cursor, "the shift of the servers' windows after `wscale`")?);
            }
            Some("sack-perm") if sack_perm.is_none() => sack_perm = Some(cursor.bump()),
            Some("timestamp") if timestamp.is_none() => timestamp = Some(cursor.bump()),
            _ => break,
        }
    }
    let span = keyword.to(cursor.last_span());
    Ok(TrackingSetting::SynproxyOffer(SynproxyOffer { span, mss, wscale, sack_perm, timestamp }))
}

/// `on 10000/second off 1000/second for 30s`
fn threshold(cursor: &mut Cursor, keyword: Span) -> Parse<TrackingSetting> {
    cursor.bump();
    let on = limit::rate(cursor, "a rate such as `10000/second` after `on`")?;
    word(cursor, "off", "`off` and a rate such as `1000/second`")?;
    let off = limit::rate(cursor, "a rate such as `1000/second` after `off`")?;
    word(cursor, "for", "`for` and a time such as `30s`")?;
    let calm = value::number(cursor, "a time such as `30s` after `for`")?;
    let span = keyword.to(cursor.last_span());
    Ok(TrackingSetting::SynproxyThreshold(SynproxyThreshold { span, on, off, calm }))
}

fn word(cursor: &mut Cursor, word: &str, expected: &str) -> Parse<()> {
    if !cursor.is_word(word) {
        return Err(cursor.unexpected(expected));
    }
    cursor.bump();
    Ok(())
}

fn unknown_setting(cursor: &mut Cursor, word: &str) -> Reported {
    let diagnostic = Diagnostic::error("E0113", cursor.span(), format!("`tracking` has no setting `{word}`"));
    cursor.report(match nearest(word, WORDS) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(format!("the settings are {}", WORDS.join(", "))),
    })
}
