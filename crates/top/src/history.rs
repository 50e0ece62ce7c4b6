//! Values of the last two minutes, and their sparkline.

use std::collections::VecDeque;

/// How many values are kept: one each second for two minutes.
pub const LENGTH: usize = 120;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values of the last two minutes; `None` where the value was not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History(VecDeque<Option<f64>>);

impl History {
    /// Adds a value, and forgets the oldest one if there are too many.
    pub fn push(&mut self, value: Option<f64>) {
        if self.0.len() == LENGTH {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// The highest value.
    pub fn peak(&self) -> Option<f64> {
        self.0.iter().flatten().copied().reduce(f64::max)
    }

    /// A line of `width` characters, the newest value at the right. A character is the highest of its values, as a
    /// share of `scale`. It is `·` if none of them is known, and a blank if they are 0 or older than the first value.
    pub fn sparkline(&self, width: usize, scale: f64) -> String {
        if width == 0 {
            return String::new();
        }
        let each = LENGTH.div_ceil(width);
        let newest: Vec<Option<f64>> = self.0.iter().rev().copied().collect();
        let mut bars: Vec<char> = newest.chunks(each).take(width).map(|values| bar(values, scale)).collect();
        bars.resize(width, ' ');
        bars.iter().rev().collect()
    }
}

fn bar(values: &[Option<f64>], scale: f64) -> char {
    match values.iter().flatten().copied().reduce(f64::max) {
        None => '·',
        Some(value) if value <= 0.0 || scale <= 0.0 => ' ',
        Some(value) => BARS[((value / scale * 8.0).ceil() as usize).clamp(1, 8) - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::{History, LENGTH};

    #[test]
    fn a_character_is_the_highest_of_its_seconds() {
        let mut history = History::default();
        [Some(0.0), Some(1.0), None, None, Some(4.0), Some(8.0)].into_iter().for_each(|value| history.push(value));
        assert_eq!(history.sparkline(LENGTH, 8.0).trim_start(), "▁··▄█");
        assert_eq!(history.sparkline(60, 8.0).trim_start(), "▁·█");
        assert_eq!((history.sparkline(3, 8.0), history.sparkline(0, 8.0)), ("  █".to_owned(), String::new()));
        assert_eq!(history.peak(), Some(8.0));
        (0..2 * LENGTH).for_each(|_| history.push(Some(1.0)));
        assert_eq!(history.sparkline(LENGTH, 8.0), "▁".repeat(LENGTH));
    }
}
