//! Formats of numbers and texts in reports.

pub use weir_control::grouped;

/// A number of bytes in decimal units, such as `12.3 MB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A percentage such as `42.0 %`. It is 0 if `whole` is 0.
pub fn share(part: u64, whole: u64) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    format!("{percent:.1} %")
}

/// Cuts a text to a number of characters.
pub fn cut(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::{bytes, cut, share};

    #[test]
    fn number_formats() {
        assert_eq!((bytes(0), bytes(1234), bytes(5_000_000)), ("0 B".into(), "1.2 kB".into(), "5.0 MB".into()));
        assert_eq!((share(1, 3), share(0, 0)), ("33.3 %".into(), "0.0 %".into()));
        assert_eq!(cut("abcdefgh", 6), "abc...");
    }
}
