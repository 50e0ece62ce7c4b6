//! The lines of a text: where they end, and what of them is content.

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A CR alone also ends a line.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// Splits off the first line, without its end: LF, CR LF or CR.
#[inline]
pub(crate) fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| is_line_end(byte)) {
        Some(end) if bytes[end..].starts_with(b"\r\n") => (&bytes[..end], &bytes[end + 2..]),
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// A line without surrounding blanks; empty if the line is blank or a comment.
#[inline]
pub(crate) fn content(line: &[u8]) -> &[u8] {
    match line.trim_ascii() {
        [b'#' | b';', ..] => &[],
        line => line,
    }
}

/// The first line with content.
pub(crate) fn first_line(bytes: &[u8]) -> &[u8] {
    let mut rest = without_mark(bytes);
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        if !content(line).is_empty() {
            return content(line);
        }
        rest = after;
    }
    &[]
}

/// The number of the last line, if it has content and no line end.
pub(crate) fn unended(bytes: &[u8], lines: u64) -> Option<u64> {
    let last = bytes.rsplit(|byte| is_line_end(*byte)).next().unwrap_or_default();
    (!content(last).is_empty()).then_some(lines)
}
