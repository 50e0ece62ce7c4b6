//! JSON lines, as Spamhaus publishes DROP: an object with `cidr` on each line, and at the end one that describes the
//! list.
//!
//! ```text
//! {"cidr":"192.0.2.0/24","sblid":"SBL1","rir":"ripencc"}
//! {"type":"metadata","timestamp":1733130365,"size":76,"records":1,"copyright":"...","terms":"..."}
//! ```
//! Values are strings without escapes, numbers, or words. The label is `sblid`, for IPv6 too.

use super::part::Sink;
use crate::entries::TableAddress;
use crate::problem::Problem;

/// The key of the prefix, and the key of its label.
const PREFIX: &[u8] = b"cidr";
const LABEL: &[u8] = b"sblid";
/// The key and the value of the line that describes the list.
const KIND: (&[u8], &[u8]) = (b"type", b"metadata");

/// Whether a first line is of this format.
pub(crate) fn is_json_line(first: &[u8]) -> bool {
    first.ends_with(b"}") && fields(first).is_ok_and(|fields| fields.iter().any(|(key, _)| *key == PREFIX))
}

/// Parses a line.
pub(crate) fn line<A: TableAddress>(text: &[u8], sink: &mut Sink<A>) -> Result<(), Problem> {
    let fields = fields(text)?;
    let value = |wanted: &[u8]| fields.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
    let Some(prefix) = value(PREFIX) else {
        return if value(KIND.0) == Some(KIND.1) { Ok(()) } else { Err(Problem::NotAnAddress(A::FAMILY)) };
    };
    let element = match sink.element(prefix)? {
        (element, taken) if taken == prefix.len() => element,
        _ => return Err(Problem::NotAnAddress(A::FAMILY)),
    };
    for (_, other) in fields.iter().filter(|(key, _)| *key != PREFIX) {
        sink.pass_over(other, &element)?;
    }
    match value(LABEL) {
        Some(label) => sink.push_labelled(element, label),
        None => sink.push(element),
    }
}

type Fields<'t> = Vec<(&'t [u8], &'t [u8])>;

/// The keys and values of an object on one line.
fn fields(text: &[u8]) -> Result<Fields<'_>, Problem> {
    let inner = text.strip_prefix(b"{").and_then(|text| text.strip_suffix(b"}")).ok_or(Problem::JsonLine)?;
    let mut fields = Vec::new();
    let mut rest = inner.trim_ascii();
    while !rest.is_empty() {
        let (key, after) = string(rest)?;
        let after = after.trim_ascii_start().strip_prefix(b":").ok_or(Problem::JsonLine)?.trim_ascii_start();
        let (value, after) = match after.first() {
            Some(b'"') => string(after)?,
            _ => word(after)?,
        };
        if fields.iter().any(|(known, _)| *known == key) {
            return Err(Problem::JsonLine);
        }
        fields.push((key, value));
        let after = after.trim_ascii_start();
        rest = match after.strip_prefix(b",") {
            Some(rest) if !rest.trim_ascii().is_empty() => rest.trim_ascii_start(),
            None if after.is_empty() => after,
            _ => return Err(Problem::JsonLine),
        };
    }
    Ok(fields)
}

/// A string, and the text behind it.
fn string(text: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    let text = text.strip_prefix(b"\"").ok_or(Problem::JsonLine)?;
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\')).ok_or(Problem::JsonLine)?;
    if text[end] == b'\\' {
        return Err(Problem::JsonLine);
    }
    Ok((&text[..end], &text[end + 1..]))
}

/// A number, `true`, `false` or `null`, and the text behind it.
fn word(text: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    let of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    let end = text.iter().position(|byte| !of_word(byte)).unwrap_or(text.len());
    if end == 0 { Err(Problem::JsonLine) } else { Ok(text.split_at(end)) }
}
