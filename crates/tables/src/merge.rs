//! Merges two sorted sequences.

use std::iter;

/// Walks two sequences in the order of their keys, which are distinct in each. Yields every key once, with what each
/// sequence has for it.
pub(crate) fn merge<K: Ord + Copy, L, R>(
    left: impl Iterator<Item = (K, L)>,
    right: impl Iterator<Item = (K, R)>,
) -> impl Iterator<Item = (K, Option<L>, Option<R>)> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    iter::from_fn(move || {
        let key = match (left.peek(), right.peek()) {
            (Some(&(left, _)), Some(&(right, _))) => left.min(right),
            (Some(&(key, _)), None) | (None, Some(&(key, _))) => key,
            (None, None) => return None,
        };
        let of_left = left.next_if(|&(left, _)| left == key);
        let of_right = right.next_if(|&(right, _)| right == key);
        Some((key, of_left.map(|(_, value)| value), of_right.map(|(_, value)| value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_either_sequence_come_once_and_in_order() {
        let merged = |left: &[(u8, char)], right: &[(u8, u16)]| {
            merge(left.iter().copied(), right.iter().copied()).collect::<Vec<_>>()
        };
        assert_eq!(
            merged(&[(1, 'a'), (3, 'b'), (4, 'c')], &[(0, 10), (3, 13), (9, 19)]),
            [
                (0, None, Some(10)),
                (1, Some('a'), None),
                (3, Some('b'), Some(13)),
                (4, Some('c'), None),
                (9, None, Some(19))
            ]
        );
        assert_eq!(merged(&[], &[(1, 2)]), [(1, None, Some(2))]);
        assert_eq!(merged(&[(1, 'a')], &[]), [(1, Some('a'), None)]);
        assert_eq!(merged(&[], &[]), []);
    }
}
