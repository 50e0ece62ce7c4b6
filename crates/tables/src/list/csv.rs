//! Comma-separated values: `start,end,label` or `cidr,label`, told apart line by line; further fields are ignored.
//!
//! Fields may be quoted, with `""` for a quote (RFC 4180), but not span lines. The first line may be a header.

use std::borrow::Cow;

use super::Problem;
use super::lines::{Sink, content, split_line};
use crate::entries::{Kind, TableAddress};
use crate::prefix::Element;

/// Reads a line.
pub(crate) fn line<A: TableAddress>(text: &[u8], sink: &mut Sink<A>) -> Result<(), Problem> {
    let (first, rest) = take_field(text)?;
    let element = whole::<A>(&first)?;
    let Some(rest) = rest else { return sink.push(element) };
    let (second, rest) = take_field(rest)?;
    let Some((first, last)) = range_end(element, &first, &second)? else { return sink.push_labelled(element, &second) };
    let range = Element::range(first, last)?;
    match (rest, sink.kind) {
        (Some(rest), Kind::Labels) => sink.push_labelled(range, &take_field(rest)?.0),
        _ => sink.push(range),
    }
}

fn whole<A: TableAddress>(field: &[u8]) -> Result<Element<A>, Problem> {
    match Element::take(field)? {
        (element, taken) if taken == field.len() => Ok(element),
        _ => Err(Problem::NotAnAddress(A::FAMILY)),
    }
}

/// Both ends of a range if the first field is an address and the second is meant as one.
///
/// A second field that looks like an address but is none is an error: as a label it would hide the mistake.
fn range_end<A: TableAddress>(element: Element<A>, first: &[u8], second: &[u8]) -> Result<Option<(A, A)>, Problem> {
    let Element::Prefix { addr, .. } = element else { return Ok(None) };
    let of_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':');
    let address_like = second.iter().all(of_address) && second.iter().any(|byte| matches!(byte, b'.' | b':'));
    if first.contains(&b'/') || !address_like {
        return Ok(None);
    }
    match whole(second)? {
        Element::Prefix { addr: last, .. } => Ok(Some((addr, last))),
        Element::Range(..) => Ok(None),
    }
}

/// A field and what follows its comma, `None` after the last.
pub(crate) type Field<'a> = (Cow<'a, [u8]>, Option<&'a [u8]>);

/// Splits off a field, without blanks around it and without its quotes.
pub(crate) fn take_field(text: &[u8]) -> Result<Field<'_>, Problem> {
    let text = text.trim_ascii_start();
    if let Some(quoted) = text.strip_prefix(b"\"") {
        return take_quoted(quoted);
    }
    let end = text.iter().position(|&byte| byte == b',');
    let field = text[..end.unwrap_or(text.len())].trim_ascii_end();
    Ok((Cow::Borrowed(field), end.map(|end| &text[end + 1..])))
}

/// Splits off a field whose opening quote is gone already.
fn take_quoted(text: &[u8]) -> Result<Field<'_>, Problem> {
    let mut field = Cow::Borrowed(&text[..0]);
    let mut rest = text;
    loop {
        let end = rest.iter().position(|&byte| byte == b'"').ok_or(Problem::Quotes)?;
        let (part, after) = (&rest[..end], &rest[end + 1..]);
        match &mut field {
            Cow::Owned(field) => field.extend_from_slice(part),
            field => *field = Cow::Borrowed(part),
        }
        if let Some(more) = after.strip_prefix(b"\"") {
            field.to_mut().push(b'"');
            rest = more;
            continue;
        }
        return match after.trim_ascii_start() {
            [] => Ok((field, None)),
            [b',', rest @ ..] => Ok((field, Some(rest))),
            _ => Err(Problem::Quotes),
        };
    }
}

/// Skips everything up to a header, if there is one, and tells how many lines that were.
///
/// A header's first field is a word: it starts with a letter and has nothing of an address.
pub(crate) fn skip_header(bytes: &[u8]) -> (u64, &[u8]) {
    let mut rest = bytes;
    let mut lines = 0;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        lines += 1;
        rest = after;
        let content = content(line);
        if content.is_empty() {
            continue;
        }
        return match take_field(content) {
            Ok((field, _)) if is_word(&field) => (lines, rest),
            _ => (0, bytes),
        };
    }
    (0, bytes)
}

fn is_word(field: &[u8]) -> bool {
    field.first().is_some_and(u8::is_ascii_alphabetic) && !field.iter().any(|byte| matches!(byte, b'.' | b':' | b'/'))
}
