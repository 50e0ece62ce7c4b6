//! Comma-separated values: `start,end,label` or `cidr,label`. The first line decides which. Further fields are ignored.
//!
//! Fields may be quoted, with `""` for a quote (RFC 4180), but not span lines. The first line may be a header. All
//! lines must have as many fields as the first one after the header, because a truncated line has fewer. `start,end`
//! alone is a range only if a header names the columns.

use std::borrow::Cow;

use weir_abi::Family;

use super::part::Sink;
use super::stray::names_address;
use super::text::{content, first_line, split_line};
use crate::entries::{Kind, TableAddress};
use crate::padded::is_mask_of;
use crate::prefix::Element;
use crate::problem::Problem;

/// The form of the lines of a file. All lines have the form of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    columns: usize,
    /// Whether the first two columns are the ends of a range.
    ranges: bool,
    /// Whether a line may consist of two addresses alone.
    bare_ranges: bool,
    /// The columns of a header that names them.
    named: Option<Named>,
}

/// Columns by name, as CrowdSec writes decisions: `duration,origin,reason,scope,type,value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    value: usize,
    /// The column with the label of a map.
    label: Option<usize>,
}

/// The columns that the header names, if it has `duration` and `value`.
pub(crate) fn named_columns(bytes: &[u8]) -> Option<Named> {
    let mut names = Vec::new();
    let mut rest = Some(first_line(bytes));
    while let Some(text) = rest {
        let (name, after) = take_field(text).ok()?;
        names.push(name);
        rest = after;
    }
    let column = |wanted: &[u8]| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
    column(b"duration")?;
    Some(Named { value: column(b"value")?, label: column(b"reason").or_else(|| column(b"scenario")) })
}

impl Shape {
    /// The shape of the lines after the header, if any.
    pub fn of(body: &[u8], header: Header) -> Self {
        let first = first_line(body);
        let ranges = match take_field(first) {
            Ok((first, Some(rest))) => {
                !first.contains(&b'/')
                    && is_address_like(&first)
                    && take_field(rest).is_ok_and(|(second, _)| is_address_like(&second))
            }
            _ => false,
        };
        Shape { columns: columns(first), ranges, bare_ranges: header == Header::Present, named: None }
    }

    /// The shape with the columns of a header.
    pub fn with_names(self, named: Named) -> Self {
        Shape { named: Some(named), ..self }
    }
}

/// Whether a file begins with a header that names its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Present,
    Absent,
}

/// Parses a line.
pub(crate) fn line<A: TableAddress>(text: &[u8], shape: Shape, sink: &mut Sink<A>) -> Result<(), Problem> {
    let Shape { columns: expected, ranges, bare_ranges, named } = shape;
    if let Some(named) = named {
        return by_name(text, named, expected, sink);
    }
    let (first, rest) = take_field(text)?;
    let element = whole(&first, sink)?;
    let found = columns(text);
    if found != expected {
        return Err(Problem::Columns { found, expected });
    }
    let Some(rest) = rest else { return sink.push(element) };
    if !ranges {
        return labelled(element, rest, sink);
    }
    let (second, rest) = take_field(rest)?;
    let range = match (element, whole(&second, sink)?) {
        (Element::Prefix { addr, len }, Element::Prefix { addr: last, len: last_len })
            if len == A::FAMILY.bits() && last_len == len =>
        {
            if A::FAMILY == Family::Ipv4 && is_mask_of(addr.wide() as u32, last.wide() as u32) {
                return Err(Problem::MaskColumn);
            }
            Element::range(addr, last)?
        }
        _ => return Err(Problem::NotARange),
    };
    match rest {
        Some(rest) => labelled(range, rest, sink),
        None if bare_ranges || sink.kind == Kind::Labels => sink.push(range),
        None => Err(Problem::TwoAddresses),
    }
}

/// Parses a line whose header names its columns.
fn by_name<A: TableAddress>(text: &[u8], named: Named, expected: usize, sink: &mut Sink<A>) -> Result<(), Problem> {
    let mut fields = Vec::with_capacity(expected);
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (field, after) = take_field(text)?;
        fields.push(field);
        rest = after;
    }
    if fields.len() != expected || named.value >= expected {
        return Err(Problem::Columns { found: fields.len(), expected });
    }
    let element = whole(&fields[named.value], sink)?;
    for (column, field) in fields.iter().enumerate() {
        if column != named.value {
            sink.pass_over(field, &element)?;
        }
    }
    match named.label {
        Some(label) => sink.push_labelled(element, &fields[label]),
        None => sink.push(element),
    }
}

/// Parses the label of an element and skips the fields after it. Those may contain addresses, such as operators named
/// by an address. A label that is an address is more likely an entry.
fn labelled<A: TableAddress>(element: Element<A>, rest: &[u8], sink: &mut Sink<A>) -> Result<(), Problem> {
    let (label, further) = take_field(rest)?;
    sink.check(&label, &element)?;
    sink.pass_over(further.unwrap_or_default(), &element)?;
    sink.push_labelled(element, &label)
}

fn whole<A: TableAddress>(field: &[u8], sink: &mut Sink<A>) -> Result<Element<A>, Problem> {
    match sink.element(field)? {
        (element, taken) if taken == field.len() => Ok(element),
        _ => Err(Problem::NotAnAddress(A::FAMILY)),
    }
}

/// Whether a field is meant as an address. Accepting it as a label would hide a mistake.
fn is_address_like(field: &[u8]) -> bool {
    let of_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':');
    field.iter().all(of_address) && field.iter().any(|byte| matches!(byte, b'.' | b':'))
}

/// Number of fields of a line.
fn columns(text: &[u8]) -> usize {
    if !text.contains(&b'"') {
        return 1 + text.iter().filter(|byte| **byte == b',').count();
    }
    let mut columns = 1;
    let mut rest = text;
    while let Ok((_, Some(after))) = take_field(rest) {
        columns += 1;
        rest = after;
    }
    columns
}

/// A field, and the text after its comma; `None` after the last field.
pub(crate) type Field<'a> = (Cow<'a, [u8]>, Option<&'a [u8]>);

/// Splits off a field, without surrounding blanks and quotes.
pub(crate) fn take_field(text: &[u8]) -> Result<Field<'_>, Problem> {
    let text = text.trim_ascii_start();
    if let Some(quoted) = text.strip_prefix(b"\"") {
        return take_quoted(quoted);
    }
    let end = text.iter().position(|&byte| byte == b',');
    let field = text[..end.unwrap_or(text.len())].trim_ascii_end();
    Ok((Cow::Borrowed(field), end.map(|end| &text[end + 1..])))
}

/// Splits off a quoted field, after its opening quote.
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

/// Skips everything up to and including a header, if there is one. Returns the number of skipped lines and the rest.
///
/// The first field of a header is a word: it starts with a letter and does not look like an address. No other field is
/// an address.
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
            Ok((field, _)) if is_word(&field) && !names_address(content) => (lines, rest),
            _ => (0, bytes),
        };
    }
    (0, bytes)
}

fn is_word(field: &[u8]) -> bool {
    field.first().is_some_and(u8::is_ascii_alphabetic) && !field.iter().any(|byte| matches!(byte, b'.' | b':' | b'/'))
}
