//! Parses the left side of a match or limit: a named field or raw bits.

use super::cursor::{Cursor, Parse};
use super::token::TokenKind;
use super::tree::{Name, Subject};
use super::value;
use super::words::STATEMENT_WORDS;
use crate::diag::{Diagnostic, nearest};
use crate::field::Field;

/// Parses `tcp dport` or `@nh,96,32`.
pub(super) fn subject(cursor: &mut Cursor) -> Parse<Subject> {
    if cursor.is(TokenKind::At) {
        let at = cursor.bump();
        let base = cursor.name("`ll`, `nh` or `th` after `@`")?;
        if !cursor.is(TokenKind::Comma) {
            return Err(cursor.report(
                Diagnostic::error("E0103", at.to(base.span), "a table cannot come before a field")
                    .help(format!("write the field first: `ip saddr @{}`", base.text)),
            ));
        }
        cursor.bump();
        let offset = value::number(cursor, "the first bit of the raw expression")?;
        cursor.expect(TokenKind::Comma, "`,` and the number of bits")?;
        let bits = value::number(cursor, "the number of bits")?;
        let span = at.to(bits.span);
        return Ok(Subject::Raw { base, offset, bits, span });
    }
    let layer = cursor.name("a field")?;
    let statement = cursor.word().is_some_and(|word| STATEMENT_WORDS.contains(&word));
    if statement || !cursor.is(TokenKind::Word) {
        if !Field::ALL.iter().any(|field| field.name().split(' ').next() == Some(&layer.text)) {
            return Err(cursor.report(unknown_header(&layer)));
        }
        return Err(cursor.unexpected(&format!("a field of `{}`, as in `tcp dport`", layer.text)));
    }
    let field = cursor.name("a field")?;
    Ok(Subject::Named { layer, field })
}

/// The error for a word that begins neither a match nor a statement.
pub(crate) fn unknown_header(word: &Name) -> Diagnostic {
    let headers = Field::ALL.iter().filter_map(|field| field.name().split(' ').next());
    let diagnostic = Diagnostic::error("E0204", word.span, format!("`{}` is not a header or statement", word.text));
    match nearest(&word.text, headers.chain(STATEMENT_WORDS)) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => {
            diagnostic.help("matches begin with meta, ether, vlan, ip, ip6, exthdr, th, tcp, udp, icmp, icmpv6 or `@`")
        }
    }
}
