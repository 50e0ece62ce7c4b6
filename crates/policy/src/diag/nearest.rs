//! Suggests a known name for an unknown one.

/// Longest name that is compared, bytes. It bounds the time of a comparison.
const NAME_BYTES_MAX: usize = 40;
/// Most names that are compared; a table can have tens of thousands of labels.
const NAMES_MAX: usize = 10_000;

/// The nearest of the known names, if at most a third of its letters differ. Swapped neighbours count as one
/// difference.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let (distance, near) = known
        .into_iter()
        .take(NAMES_MAX)
        .filter(|known| known.len() <= NAME_BYTES_MAX)
        .map(|known| (distance(&lower, &known.to_ascii_lowercase()), known))
        .min()?;
    (distance <= name.len().max(near.len()).div_ceil(3).min(3) && distance < name.len()).then_some(near)
}

/// The optimal string alignment distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut second_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j - 1] + differs).min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(second_last[j - 2] + 1);
            }
        }
        (second_last, last) = (last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn suggests_only_what_is_near() {
        assert_eq!(nearest("amdin", ["admin", "public"]), Some("admin"));
        assert_eq!(nearest("hr", ["HR", "SI"]), Some("HR"));
        assert_eq!(nearest("xyz", ["admin", "public"]), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("dprot", ["dport", "sport"]), Some("dport"));
        assert_eq!(nearest("", ["a"]), None);
    }
}
