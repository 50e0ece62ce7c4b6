//! Parses values, sets and comma lists.

use super::cursor::{Cursor, Parse, Reported};
use super::token::TokenKind;
use super::tree::{Atom, AtomKind, Name, Operand, Value, Values};
use super::words::STATEMENT_WORDS;
use crate::diag::Diagnostic;
use crate::source::Span;

/// Parses an atom of any kind.
pub(super) fn atom(cursor: &mut Cursor, expected: &str) -> Parse<Atom> {
    let kind = match cursor.kind() {
        TokenKind::Word => AtomKind::Word,
        TokenKind::Number => AtomKind::Number,
        TokenKind::Ipv4 => AtomKind::Ipv4,
        TokenKind::Ipv6 => AtomKind::Ipv6,
        TokenKind::String => AtomKind::String,
        _ => return Err(cursor.unexpected(expected)),
    };
    let text = match kind {
        AtomKind::String => cursor.slice().trim_matches('"'),
        _ => cursor.slice(),
    };
    Ok(Atom { kind, text: text.to_owned(), span: cursor.bump() })
}

/// Parses a number.
pub(super) fn number(cursor: &mut Cursor, expected: &str) -> Parse<Atom> {
    if cursor.is(TokenKind::Number) { atom(cursor, expected) } else { Err(cursor.unexpected(expected)) }
}

/// Parses a label of a table: a word, a number or a string.
pub(super) fn label(cursor: &mut Cursor) -> Parse<Atom> {
    match cursor.kind() {
        TokenKind::Word | TokenKind::Number | TokenKind::String => atom(cursor, "a label"),
        _ => Err(cursor.unexpected("a label")),
    }
}

fn operand(cursor: &mut Cursor, of: &str) -> Parse<Operand> {
    let statement = cursor.word().is_some_and(|word| STATEMENT_WORDS.contains(&word));
    if statement || cursor.is(TokenKind::String) {
        return Err(cursor.unexpected(of));
    }
    if cursor.is(TokenKind::Dollar) {
        let dollar = cursor.bump();
        let name = cursor.name("the name of a `define` after `$`")?;
        return Ok(Operand::Variable(Name { span: dollar.to(name.span), ..name }));
    }
    if cursor.is(TokenKind::At) {
        return Err(cursor.report(
            Diagnostic::error("E0103", cursor.span(), "a table is not allowed here")
                .label(format!("expected {of}"))
                .help("a table is compared as a whole: `ip saddr @table`; use a `define` for shared sets"),
        ));
    }
    Ok(Operand::Atom(atom(cursor, of)?))
}

/// Parses `22`, `192.0.2.0/24`, `1-5`, `syn | ack` or `(syn | ack)`.
pub(super) fn value(cursor: &mut Cursor, of: &str) -> Parse<Value> {
    if cursor.eat(TokenKind::OpenParen) {
        let value = bits(cursor, of)?;
        cursor.expect(TokenKind::CloseParen, "`)`")?;
        return Ok(value);
    }
    bits(cursor, of)
}

fn bits(cursor: &mut Cursor, of: &str) -> Parse<Value> {
    let first = operand(cursor, of)?;
    match cursor.kind() {
        TokenKind::Pipe => {
            let mut operands = vec![first];
            while cursor.eat(TokenKind::Pipe) {
                operands.push(operand(cursor, of)?);
            }
            Ok(Value::Bits(operands))
        }
        TokenKind::Minus => {
            cursor.bump();
            let end = operand(cursor, "the end of the range")?;
            Ok(Value::Range { start: first, end })
        }
        TokenKind::Slash => match first {
            Operand::Atom(address) if matches!(address.kind, AtomKind::Ipv4 | AtomKind::Ipv6) => {
                cursor.bump();
                if cursor.is(TokenKind::Ipv4) {
                    return Err(netmask(cursor));
                }
                let length = number(cursor, "a prefix length")?;
                Ok(Value::Prefix { address, length })
            }
            first => Ok(Value::Single(first)),
        },
        _ => Ok(Value::Single(first)),
    }
}

/// The error for `192.0.2.0/255.255.255.0`.
fn netmask(cursor: &mut Cursor) -> Reported {
    let mask = cursor.slice().parse().map_or(0, std::net::Ipv4Addr::to_bits);
    let diagnostic = Diagnostic::error("E0315", cursor.span(), format!("{} is not a prefix length", cursor.found()));
    cursor.report(match mask.leading_ones() {
        ones @ 1.. if ones == mask.count_ones() => diagnostic.help(format!("write `/{ones}` for this netmask")),
        _ => diagnostic.help("write the length of the prefix, such as `/24`"),
    })
}

/// Parses the right side of a match or of a `define`.
pub(super) fn values(cursor: &mut Cursor, of: &str) -> Parse<Values> {
    if cursor.is(TokenKind::OpenBrace) {
        let (elements, span) = set(cursor, "an element", &mut |cursor| value(cursor, "an element of the set"))?;
        return Ok(Values::Set { elements, span });
    }
    let mut first = list(cursor, of)?;
    if cursor.eat(TokenKind::Slash) {
        return Ok(Values::Masked { value: first, mask: list(cursor, "a mask after `/`")? });
    }
    if first.len() == 1 { Ok(Values::One(first.remove(0))) } else { Ok(Values::List(first)) }
}

fn list(cursor: &mut Cursor, of: &str) -> Parse<Vec<Value>> {
    let mut values = vec![value(cursor, of)?];
    while cursor.eat(TokenKind::Comma) {
        values.push(value(cursor, "a value after `,`")?);
    }
    Ok(values)
}

/// Parses `{ a, b }`, on one or several lines, with an optional comma at the end. Invalid elements are reported and
/// skipped, and the result is then an error.
pub(super) fn set<T>(
    cursor: &mut Cursor,
    of: &str,
    element: &mut dyn FnMut(&mut Cursor) -> Parse<T>,
) -> Parse<(Vec<T>, Span)> {
    let open = cursor.expect(TokenKind::OpenBrace, "`{`")?;
    let mut elements = Vec::new();
    let mut failed = false;
    loop {
        cursor.skip_newlines();
        if cursor.is(TokenKind::CloseBrace) {
            break;
        }
        let element = if cursor.is(TokenKind::OpenBrace) {
            Err(nested(cursor))
        } else if set_is_open(cursor) {
            return Err(not_closed(cursor, open));
        } else {
            element(cursor)
        };
        match element {
            Ok(element) => elements.push(element),
            Err(Reported) => {
                failed = true;
                skip_element(cursor);
            }
        }
        let line_ends = cursor.is(TokenKind::Newline);
        cursor.skip_newlines();
        if cursor.eat(TokenKind::Comma) || cursor.is(TokenKind::CloseBrace) {
            continue;
        }
        let rule_begins = line_ends
            && cursor.is(TokenKind::Word)
            && matches!(cursor.kind_ahead(1), TokenKind::Word | TokenKind::OpenBrace);
        if rule_begins || set_is_open(cursor) {
            return Err(not_closed(cursor, open));
        }
        cursor.unexpected(&format!("`,` or `}}` after {of}"));
        failed = true;
        skip_element(cursor);
        cursor.eat(TokenKind::Comma);
    }
    let span = open.to(cursor.bump());
    if failed {
        return Err(Reported);
    }
    if elements.is_empty() {
        let diagnostic = Diagnostic::error("E0103", span, "the set is empty").label("a set has at least one element");
        return Err(cursor.report(diagnostic));
    }
    Ok((elements, span))
}

fn nested(cursor: &mut Cursor) -> Reported {
    let reported = cursor.report(
        Diagnostic::error("E0103", cursor.span(), "a set cannot contain a set")
            .help("write its elements here, or name it: `define NAME = { ... }` and `$NAME`"),
    );
    cursor.skip_braces();
    reported
}

fn skip_element(cursor: &mut Cursor) {
    while !matches!(cursor.kind(), TokenKind::Comma | TokenKind::CloseBrace) && !set_is_open(cursor) {
        cursor.bump();
    }
}

/// Whether the next token cannot be in a set, so that its `}` is missing.
fn set_is_open(cursor: &Cursor) -> bool {
    let statement = cursor.word().is_some_and(|word| STATEMENT_WORDS.contains(&word));
    statement
        || matches!(cursor.kind(), TokenKind::End | TokenKind::Semicolon | TokenKind::OpenBrace)
        || cursor.at_item()
}

/// Reports an unterminated set and skips the rest of the line.
fn not_closed(cursor: &mut Cursor, open: Span) -> Reported {
    let diagnostic = Diagnostic::error("E0104", open, "this set is not closed")
        .label("its `}` is missing")
        .note(cursor.here(), format!("{} cannot be in a set", cursor.found()));
    let reported = cursor.report(diagnostic);
    // If the token begins a line, that line is parsed as a new rule or item.
    if !cursor.begins_line() {
        cursor.skip_line();
    }
    reported
}
