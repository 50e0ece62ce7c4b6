//! Times as text: `500ms`, `30s`, `10m`, `1h30m`, `7d`.

/// Parses a time such as `1h30m` to milliseconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        let unit = match &rest[digits..digits + letters] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 3600 * 1000,
            "d" => 24 * 3600 * 1000,
            _ => return None,
        };
        total = rest[..digits].parse::<u64>().ok()?.checked_mul(unit)?.checked_add(total)?;
        rest = &rest[digits + letters..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn times() {
        assert_eq!(milliseconds("10m"), Some(600_000));
        assert_eq!(milliseconds("1h30m"), Some(5_400_000));
        assert_eq!(milliseconds("500ms"), Some(500));
        assert_eq!(milliseconds("10"), None);
        assert_eq!(milliseconds("10x"), None);
        assert_eq!(milliseconds("99999999999999999999d"), None);
    }
}
