//! Parses the limit statements of rules, and rates with their bursts.

use super::cursor::{Cursor, Parse};
use super::subject::subject;
use super::token::TokenKind;
use super::tree::{EachLimit, Exceed, Limit, LimitEach, Log, Name, OnExceed, Statement, Subject};
use super::{addition, reserved, value};
use crate::diag::Diagnostic;
use crate::source::Span;

/// `10mbit burst 64kbytes`, `400/second burst 100 packets`
pub(super) fn limit(cursor: &mut Cursor) -> Parse<Limit> {
    let rate = rate(cursor, "a rate such as `500`, `20kpps`, `400/minute` or `10mbit`")?;
    let burst = match cursor.is_word("burst") {
        true => {
            cursor.bump();
            Some(burst(cursor)?)
        }
        false => None,
    };
    Ok(Limit { rate, burst })
}

/// `500`, `20kpps`, `400/minute`
pub(super) fn rate(cursor: &mut Cursor, expected: &str) -> Parse<Name> {
    let rate = number(cursor, expected)?;
    in_bytes(cursor, &rate)?;
    if !cursor.eat(TokenKind::Slash) {
        return Ok(rate);
    }
    let per = cursor.name("`second`, `minute` or `hour` after `/`")?;
    Ok(Name { text: format!("{}/{}", rate.text, per.text), span: rate.span.to(per.span) })
}

fn number(cursor: &mut Cursor, expected: &str) -> Parse<Name> {
    let atom = value::number(cursor, expected)?;
    Ok(Name { text: atom.text, span: atom.span })
}

/// Reports `10 mbytes/second`, as in nftables.
fn in_bytes(cursor: &mut Cursor, rate: &Name) -> Parse<()> {
    let Some(word) = cursor.word().filter(|word| word.ends_with("bytes")) else { return Ok(()) };
    Err(cursor.report(
        Diagnostic::error("E0106", rate.span.to(cursor.span()), "Weir does not have rates in bytes")
            .label(format!("`{word}` is nftables syntax"))
            .help("write bits a second: `80mbit` is 10 mbytes/second"),
    ))
}

fn burst(cursor: &mut Cursor) -> Parse<Name> {
    let burst = number(cursor, "a burst such as `100`, `100 packets` or `64kbytes` after `burst`")?;
    let unit = cursor.word().filter(|word| word.ends_with("packets") || word.ends_with("bytes"));
    Ok(match unit {
        Some(unit) => Name { text: format!("{}{unit}", burst.text), span: burst.span.to(cursor.bump()) },
        None => burst,
    })
}

/// `exceed drop`, `exceed divert`, `exceed mark`, the same after `exceed add @suspects`, or nothing.
fn exceed(cursor: &mut Cursor) -> Parse<OnExceed> {
    if !cursor.is_word("exceed") {
        return Ok(OnExceed::default());
    }
    cursor.bump();
    let add = match cursor.is_word("add") {
        true => Some(addition::of_limit(cursor)?),
        false => None,
    };
    if cursor.is_word(reserved::REPLY) {
        return Err(cursor.report(reserved::reply(cursor.span())));
    }
    let words = Exceed::ALL.map(|exceed| (exceed.name(), exceed));
    if add.is_some() && !words.iter().any(|(word, _)| cursor.is_word(word)) {
        return Ok(OnExceed { add, exceed: None });
    }
    let exceed = one_of(cursor, &words, "`add`, `drop`, `divert` or `mark` after `exceed`")?;
    Ok(OnExceed { add, exceed: Some(exceed) })
}

/// Takes one of the words and returns what it stands for.
pub(super) fn one_of<T: Copy>(cursor: &mut Cursor, words: &[(&str, T)], expected: &str) -> Parse<T> {
    let Some(&(_, what)) = words.iter().find(|(word, _)| cursor.is_word(word)) else {
        return Err(cursor.unexpected(expected));
    };
    cursor.bump();
    Ok(what)
}

/// The rest after `ip saddr`: `limit @customers exceed divert`.
pub(super) fn of_list(cursor: &mut Cursor, subject: Subject) -> Parse<Statement> {
    let keyword = cursor.bump();
    if cursor.is_word("each")
        && let Subject::Named { layer, field } = &subject
    {
        return Err(cursor.report(
            Diagnostic::error("E0103", keyword.to(cursor.span()), "`limit each` comes before the address")
                .help(format!("write `limit each {} {} 50pps`", layer.text, field.text)),
        ));
    }
    let limits = cursor.referred("`@` and the name of a `limits` list")?;
    let exceed = exceed(cursor)?;
    let span = subject.span().to(cursor.last_span());
    Ok(Statement::Limit { subject, limits, exceed, span })
}

/// `limit rate 1mpps burst 100 exceed mark`, `limit each ip saddr 50pps`
pub(super) fn of_rule(cursor: &mut Cursor) -> Parse<Statement> {
    let keyword = cursor.bump();
    match cursor.word() {
        Some("rate") => _ = cursor.bump(),
        Some("each") => return each(cursor, keyword),
        Some("name") => {
            return Err(cursor.report(
                Diagnostic::error("E0106", keyword.to(cursor.span()), "Weir does not have named limits")
                    .help("write `limit rate 20kpps`, or limit addresses by a list: `ip saddr limit @NAME`"),
            ));
        }
        _ => {
            return Err(cursor.report(
                Diagnostic::error("E0103", keyword, "`limit` needs an address, `each` or `rate`")
                    .label("expected an address field before it, or `each` or `rate` after it")
                    .help("write `ip saddr limit @NAME`, `limit each ip saddr 50pps` or `limit rate 20kpps`"),
            ));
        }
    }
    if let Some(word @ ("over" | "until")) = cursor.word() {
        return Err(cursor.report(
            Diagnostic::error("E0106", cursor.span(), format!("Weir does not have `limit rate {word}`"))
                .label("in nftables it matches, here it drops what exceeds the rate")
                .help("write `limit rate 20kpps`; with `exceed mark` later rules can test `meta exceeded exists`"),
        ));
    }
    let limit = limit(cursor)?;
    let exceed = exceed(cursor)?;
    Ok(Statement::LimitRate { limit, exceed, span: keyword.to(cursor.last_span()) })
}

/// The rest after `limit`: `each ip saddr/24 50pps burst 10 size 100000 log exceeded exceed mark`, or `connections 20`
/// in place of a rate
fn each(cursor: &mut Cursor, keyword: Span) -> Parse<Statement> {
    cursor.bump();
    let subject = subject(cursor)?;
    let length = match cursor.eat(TokenKind::Slash) {
        true => Some(value::number(cursor, "the length of a prefix after `/`")?),
        false => None,
    };
    let limit = match cursor.is_word("connections") {
        true => {
            cursor.bump();
            EachLimit::Connections(value::number(cursor, "a number of connections after `connections`")?)
        }
        false => EachLimit::Rate(limit(cursor)?),
    };
    let size = match cursor.is_word("size") {
        true => {
            cursor.bump();
            Some(value::number(cursor, "a number of addresses after `size`")?)
        }
        false => None,
    };
    let log = match cursor.is_word("log") {
        true => {
            cursor.bump();
            let words = [Log::Off, Log::Exceeded].map(|log| (log.name(), log));
            Some(one_of(cursor, &words, "`exceeded` or `off` after `log`")?)
        }
        false => None,
    };
    let exceed = exceed(cursor)?;
    let span = keyword.to(cursor.last_span());
    Ok(Statement::LimitEach(LimitEach { subject, length, limit, size, log, exceed, span }))
}
