//! Texts of the screen: numbers in a few columns, `-` for what is unknown, and escapes for what comes from packets.

use std::fmt::Write;
pub use weir_control::grouped;

/// What is shown in place of a value that is not known.
pub const UNKNOWN: &str = "-";

/// Whether a terminal may interpret the character instead of showing it: control characters, and characters of Unicode
/// that change the writing direction, end a line or have no width.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A text in one line that changes nothing in a terminal.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Cuts a text to a number of characters; the last one then is `…`.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { kept } else { kept + "…" }
}

/// A line as several lines of at most `width` characters, broken at blanks where there are some. Further lines are
/// indented like the first one.
pub fn wrapped(line: &str, width: usize) -> Vec<String> {
    let indent: String = line.chars().take_while(|c| *c == ' ').take(width / 2).collect();
    let mut lines = Vec::new();
    let mut current = indent.clone();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let mut word: Vec<char> = word.chars().collect();
        let used = current.chars().count();
        let is_empty = used == indent.chars().count();
        if used + usize::from(!is_empty) + word.len() > width && !is_empty {
            lines.push(std::mem::replace(&mut current, indent.clone()));
        } else if !is_empty {
            current.push(' ');
        }
        while current.chars().count() + word.len() > width {
            let room = width.saturating_sub(current.chars().count()).max(1);
            current.extend(word.drain(..room.min(word.len())));
            lines.push(std::mem::replace(&mut current, indent.clone()));
        }
        current.extend(word);
    }
    if lines.is_empty() || current.chars().count() > indent.chars().count() {
        lines.push(current);
    }
    lines
}

/// A number in at most five columns: `999`, `12.3k`, `1.2M`.
pub fn short(value: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    if !value.is_finite() || value < 0.0 {
        return UNKNOWN.to_owned();
    }
    let mut value = value;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        // A rate that is not 0 is never shown as 0.
        0 if value > 0.0 && value < 0.5 => "<1".to_owned(),
        0 => format!("{value:.0}"),
        _ if value < 99.95 => format!("{value:.1}{}", UNITS[unit]),
        _ => format!("{value:.0}{}", UNITS[unit]),
    }
}

/// A size or a count as [`short`], without decimals that are 0: `10k`.
pub fn size(value: f64) -> String {
    let text = short(value);
    text.replace(".0", "")
}

/// A number as [`short`], or `-`.
pub fn known(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.to_owned(), short)
}

/// A share such as `12 %`. What is not 0 is never shown as 0, and what is not all is never shown as 100.
pub fn share(share: f64) -> String {
    match share {
        share if !share.is_finite() => UNKNOWN.to_owned(),
        share if share > 0.0 && share < 0.001 => "<0.1%".to_owned(),
        share if share < 1.0 && share > 0.999 => ">99.9%".to_owned(),
        share if share > 0.0995 && share < 0.995 => format!("{:.0}%", share * 100.0),
        share if share > 0.0 && share < 1.0 => format!("{:.1}%", share * 100.0),
        share => format!("{:.0}%", share * 100.0),
    }
}

/// A time such as `42s`, `5m07s`, `3h12m`, `12d03h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return UNKNOWN.to_owned();
    }
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The time of day in UTC.
pub fn time_of_day(time_s: f64) -> String {
    let seconds = time_s.max(0.0) as u64 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::{cut, duration, printable, share, short, size, time_of_day, wrapped};

    #[test]
    fn numbers_have_at_most_five_columns_and_are_never_rounded_to_nothing() {
        let values =
            [0.0, 0.2, 0.5, 999.4, 999.5, 12_345.0, 99_940.0, 99_950.0, 999_500.0, 1.25e9, 3e15, f64::NAN, -1.0];
        let texts = ["0", "<1", "0", "999", "1.0k", "12.3k", "99.9k", "100k", "1.0M", "1.2G", "3000T", "-", "-"];
        assert_eq!(values.map(short), texts);
        assert_eq!(
            [0.0, 0.0004, 0.053, 0.12, 0.9949, 0.9996, 1.0].map(share),
            ["0%", "<0.1%", "5.3%", "12%", "99%", ">99.9%", "100%"]
        );
        assert_eq!([0.0, 10_000.0, 10_500.0].map(size), ["0", "10k", "10.5k"]);
    }

    #[test]
    fn times_have_two_units() {
        assert_eq!([0.9, 61.0, 3661.0, 90_061.0, -1.0].map(duration), ["0s", "1m01s", "1h01m", "1d01h", "-"]);
        assert_eq!(time_of_day(86_400.0 * 7.0 + 3661.5), "01:01:01Z");
    }

    #[test]
    fn long_lines_are_broken_at_blanks_and_keep_their_indent() {
        assert_eq!(wrapped("  ab cd efg", 7), ["  ab cd", "  efg"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!((wrapped("", 4), wrapped("    ", 4)), (vec![String::new()], vec!["  ".to_owned()]));
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
    }

    #[test]
    fn no_text_moves_the_cursor() {
        assert_eq!(printable("a\x1b[2J\r\n\u{9b}1m\u{202e}b"), "a\\u{1b}[2J\\r\\n\\u{9b}1m\\u{202e}b");
        assert_eq!((cut("abcdef", 4), cut("abc", 4), cut("abc", 0)), ("abc…".into(), "abc".into(), String::new()));
    }
}
