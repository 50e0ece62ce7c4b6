//! Parses statements that add addresses to tables.

use super::cursor::{Cursor, Parse};
use super::foreign::Place;
use super::subject::subject;
use super::token::TokenKind;
use super::tree::{Add, AddKind, Atom, ExceedAdd, Name, Statement, Subject};
use super::{foreign, value};
use crate::diag::Diagnostic;

/// `add @suspects { ip saddr/24 timeout 10m }`. The next token is the keyword.
pub(super) fn of_rule(cursor: &mut Cursor, kind: AddKind) -> Parse<Statement> {
    let keyword = cursor.bump();
    let table = cursor.referred(&format!("`@` and the name of a table after `{}`", kind.name()))?;
    cursor.expect(TokenKind::OpenBrace, "`{` and an address field after the table")?;
    let element = element(cursor, kind, &table);
    if element.is_err() {
        // Otherwise the closing brace would close the direction.
        while !matches!(cursor.kind(), TokenKind::Newline | TokenKind::End) && !cursor.eat(TokenKind::CloseBrace) {
            cursor.bump();
        }
    }
    let Element { subject, length, timeout } = element?;
    let span = keyword.to(cursor.last_span());
    Ok(Statement::Add(Add { kind, table, subject, length, timeout, span }))
}

struct Element {
    subject: Subject,
    length: Option<Atom>,
    timeout: Option<Atom>,
}

/// `ip saddr/24 timeout 10m }`
fn element(cursor: &mut Cursor, kind: AddKind, table: &Name) -> Parse<Element> {
    let each = foreign::limit_each(cursor, 0);
    let subject = subject(cursor)?;
    let length = match cursor.eat(TokenKind::Slash) {
        true => Some(value::number(cursor, "the length of a prefix after `/`")?),
        false => None,
    };
    nothing_foreign(cursor, table, each.as_deref())?;
    let timeout = timeout(cursor)?;
    nothing_foreign(cursor, table, each.as_deref())?;
    if cursor.is(TokenKind::Comma) {
        let message = format!("`{}` has one address", kind.name());
        let help = format!("write another statement: `{} @{} {{ ... }}`", kind.name(), table.text);
        return Err(cursor.report(Diagnostic::error("E0103", cursor.span(), message).help(help)));
    }
    cursor.expect(TokenKind::CloseBrace, if timeout.is_some() { "`}`" } else { "`timeout` or `}`" })?;
    Ok(Element { subject, length, timeout })
}

/// Reports what nftables allows behind the address. `each` is the limit that the braces hold.
fn nothing_foreign(cursor: &mut Cursor, table: &Name, each: Option<&str>) -> Parse<()> {
    let (what, label, help) = match cursor.kind() {
        TokenKind::Dot => {
            ("concatenations", "`.` joins two fields in nftables", "{ ip saddr }`: an entry is one address")
        }
        TokenKind::Ampersand => {
            ("masks of entries", "`&` is nftables syntax", "{ ip saddr/24 }`: an entry may be a prefix")
        }
        TokenKind::Colon => {
            ("labels from rules", "`:` is nftables syntax", "{ ip saddr }`: policies and lists give labels")
        }
        _ => ("", "", ""),
    };
    if !what.is_empty() {
        let diagnostic = Diagnostic::error("E0106", cursor.span(), format!("Weir does not have {what}"));
        return Err(cursor.report(diagnostic.label(label).help(format!("write `add @{} {help}", table.text))));
    }
    match (foreign::at(cursor, Place::Addition), each) {
        (None, _) => Ok(()),
        (Some(row), Some(each)) if row.words == "limit" => {
            let help = format!("write `{each} exceed add @{}`, which adds the address of what exceeds it", table.text);
            Err(foreign::report_with(cursor, row, help))
        }
        (Some(row), Some(each)) if row.words == "ct count" => {
            let help = format!("write `{each}`, which drops what opens more connections");
            Err(foreign::report_with(cursor, row, help))
        }
        (Some(row), _) => Err(foreign::report(cursor, row)),
    }
}

/// `add @suspects timeout 10m` after `exceed`. The next token is `add`.
pub(super) fn of_limit(cursor: &mut Cursor) -> Parse<ExceedAdd> {
    let keyword = cursor.bump();
    let table = cursor.referred("`@` and the name of a table after `add`")?;
    if cursor.is(TokenKind::OpenBrace) {
        return Err(cursor.report(
            Diagnostic::error("E0103", cursor.span(), "`exceed add` adds the address of the limit")
                .label("no address is written here")
                .help(format!("write `exceed add @{0}` or `exceed add @{0} timeout 10m`", table.text)),
        ));
    }
    let timeout = timeout(cursor)?;
    Ok(ExceedAdd { table, timeout, span: keyword.to(cursor.last_span()) })
}

fn timeout(cursor: &mut Cursor) -> Parse<Option<Atom>> {
    if !cursor.is_word("timeout") {
        return Ok(None);
    }
    cursor.bump();
    value::number(cursor, "a time such as `10m` after `timeout`").map(Some)
}
