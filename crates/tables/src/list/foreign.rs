//! Recognises files that are not lists: compressed data, encodings with two bytes per character, or a web page that a
//! server sent instead of a list.
//!
//! Such files are refused even in lenient reading, because the remaining lines of such a file are not a list.

use super::error::ListError;
use super::json_lines::is_json_line;
use super::text::first_line;

/// The first bytes of other kinds of files.
const BEGINNINGS: &[(&[u8], &str)] = &[
    (b"\x1f\x8b", "gzip data: unpack it first"),
    (b"\x1f\x9d", "compressed data: unpack it first"),
    (b"\x78\x9c", "zlib data: unpack it first"),
    (b"\x78\xda", "zlib data: unpack it first"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\xfd7zXZ\0", "xz data: unpack it first"),
    (b"BZh", "bzip2 data: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd data: unpack it first"),
    (b"\x04\x22\x4d\x18", "lz4 data: unpack it first"),
    (b"LZIP", "lzip data: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
    (b"Rar!", "a rar archive: unpack it first"),
    (b"%PDF", "a PDF document"),
    (b"\0\0\xfe\xff", "UTF-32 text: convert it to UTF-8"),
    (b"\xff\xfe", "UTF-16 or UTF-32 text: convert it to UTF-8"),
    (b"\xfe\xff", "UTF-16 text: convert it to UTF-8"),
];

/// The position and text of the mark in tar archives.
const TAR_MARK: (usize, &[u8]) = (257, b"ustar");

/// Refuses a file that is certainly not a list.
pub(crate) fn recognise(name: &str, bytes: &[u8]) -> Result<(), ListError> {
    match kind(bytes) {
        Some(what) => Err(ListError::NoList { name: name.to_owned(), what }),
        None => Ok(()),
    }
}

fn kind(bytes: &[u8]) -> Option<&'static str> {
    if let Some((_, what)) = BEGINNINGS.iter().find(|(beginning, _)| bytes.starts_with(beginning)) {
        return Some(what);
    }
    if bytes.get(TAR_MARK.0..).is_some_and(|bytes| bytes.starts_with(TAR_MARK.1)) {
        return Some("a tar archive: unpack it first");
    }
    // ASCII characters of two or four bytes.
    if let Some([true, true, true, false] | [true, false, true, false] | [false, true, _, true]) =
        bytes.first_chunk::<4>().map(|bytes| bytes.map(|byte| byte == 0))
    {
        return Some("text of two or four bytes a character: convert it to UTF-8");
    }
    match *first_line(bytes) {
        _ if is_json_line(first_line(bytes)) => None,
        [b'<', ..] => Some("an HTML or XML page"),
        [b'{', ..] | [b'['] | [b'[', b'"' | b'\'' | b'{' | b'[' | b']' | b' ', ..] => Some("JSON"),
        _ => None,
    }
}
