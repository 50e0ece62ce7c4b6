//! Escapes text from outside before a terminal shows it. Labels, names, quoted lines and answers of servers then cannot
//! move the cursor, change colours or imitate another line.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal may interpret the character instead of showing it. These are the control characters of ASCII and
/// Latin-1 (U+009B equals ESC [). In Unicode they also are characters that change the writing direction or end a line.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Escapes a text of several lines, as `\x1b` or `\u{9b}`. Line ends and tabs remain.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unprintable(c) && !matches!(c, '\n' | '\t'))
}

/// Escapes one line. Line ends are escaped too, as `\n`.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unprintable)
}

/// Escapes the characters for which `is_bad` holds.
pub(super) fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_bad(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if c.is_ascii() => _ = write!(shown, "\\x{:02x}", u32::from(c)),
            c => _ = write!(shown, "\\u{{{:x}}}", u32::from(c)),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::{printable, printable_line};

    #[test]
    fn characters_that_move_the_cursor_are_escaped() {
        assert_eq!(printable("a\x1b[31mb\u{9b}2J\r\x07\x7f"), "a\\x1b[31mb\\u{9b}2J\\r\\x07\\x7f");
        assert_eq!(printable("abc\u{202e}cba\u{2028}"), "abc\\u{202e}cba\\u{2028}");
        assert_eq!(printable("two\n\tlines, \u{e4}\u{4e2d}"), "two\n\tlines, \u{e4}\u{4e2d}");
        assert_eq!(printable_line("two\nlines\t"), "two\\nlines\\t");
    }
}
