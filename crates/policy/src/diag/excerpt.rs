//! What a diagnostic quotes of a source: its lines, and of long ones what lies around the marked places.

use super::printable::{escaped, is_unprintable};
use std::ops::Range;

/// Bytes of a line that is quoted whole.
const LINE_BYTES_MAX: usize = 240;
/// Bytes that are quoted before and behind each end of a marked place of a longer line.
const AROUND_BYTES: usize = 40;
const GAP: &str = "...";

/// Lines of a source, made fit to be shown.
pub(super) struct Excerpt<'a> {
    /// What is shown.
    pub(super) text: String,
    source: &'a str,
    /// What of the source is shown, in order, each with its place in `text`.
    kept: Vec<(Range<usize>, usize)>,
}

impl<'a> Excerpt<'a> {
    /// `source` with long lines shortened; all of `places` stay, at least their ends.
    pub(super) fn new(source: &'a str, places: &[Range<usize>]) -> Self {
        let mut excerpt = Excerpt { text: String::new(), source, kept: Vec::new() };
        let mut start = 0;
        for line in source.split_inclusive('\n') {
            let end = start + line.len();
            if line.len() <= LINE_BYTES_MAX {
                excerpt.keep(start..end);
            } else {
                excerpt.shorten(start..end, places);
            }
            start = end;
        }
        excerpt
    }

    /// Whether columns of the excerpt are those of the source.
    pub(super) fn is_whole(&self) -> bool {
        self.text == self.source
    }

    /// Where a byte of the source that is shown stands in the excerpt.
    pub(super) fn place(&self, at: usize) -> usize {
        let Some((kept, start)) = self.kept.iter().find(|(kept, _)| kept.start <= at && at <= kept.end) else {
            return self.text.len();
        };
        start + shown(&self.source[kept.start..at]).len()
    }

    fn keep(&mut self, range: Range<usize>) {
        let start = self.text.len();
        self.text += &shown(&self.source[range.clone()]);
        self.kept.push((range, start));
    }

    /// Keeps of a line what lies around the places, and its end.
    fn shorten(&mut self, line: Range<usize>, places: &[Range<usize>]) {
        let around = |at: usize| {
            let first = self.source.floor_char_boundary(at.saturating_sub(AROUND_BYTES).max(line.start));
            first..self.source.ceil_char_boundary((at + AROUND_BYTES).min(line.end))
        };
        let ends = places.iter().flat_map(|place| [place.start, place.end]);
        let mut wanted: Vec<_> = ends.filter(|at| line.contains(at) || *at == line.end).map(around).collect();
        if wanted.is_empty() {
            wanted.push(around(line.start));
        }
        wanted.sort_by_key(|range| range.start);
        let mut reached = line.start;
        for range in wanted {
            let range = range.start.max(reached)..range.end;
            if range.is_empty() {
                continue;
            }
            if range.start > reached {
                self.text += GAP;
            }
            reached = range.end;
            self.keep(range);
        }
        if reached < line.end {
            self.text += GAP;
            let newline = line.end - usize::from(self.source[..line.end].ends_with('\n'));
            self.keep(newline.max(reached)..line.end);
        }
    }
}

/// As it is shown. Each character becomes something of its own, so that places can be counted piece by piece.
fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    escaped(text, |c| is_unprintable(c) && !matches!(c, '\n' | '\r' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::Excerpt;

    #[test]
    fn short_lines_stay() {
        let excerpt = Excerpt::new("one\ntwo", std::slice::from_ref(&(4..7)));
        assert!(excerpt.is_whole());
        assert_eq!((excerpt.place(4), excerpt.place(7)), (4, 7));
    }

    #[test]
    fn of_a_long_line_stays_what_is_marked() {
        let source = format!("first\n{}MARK{}\nlast\n", "a".repeat(5000), "b".repeat(5000));
        let at = source.find("MARK").unwrap();
        let excerpt = Excerpt::new(&source, std::slice::from_ref(&(at..at + 4)));
        assert!(excerpt.text.len() < 120, "{}", excerpt.text);
        assert!(
            excerpt.text.starts_with("first\n...aaa") && excerpt.text.ends_with("bbb...\nlast\n"),
            "{}",
            excerpt.text
        );
        assert_eq!(&excerpt.text[excerpt.place(at)..excerpt.place(at + 4)], "MARK");
    }

    #[test]
    fn a_long_place_keeps_its_ends() {
        let source = format!("x {} y", "\u{9b}".repeat(3000));
        let excerpt = Excerpt::new(&source, std::slice::from_ref(&(2..6002)));
        assert!(excerpt.text.starts_with("x \\u{9b}") && excerpt.text.ends_with("\\u{9b} y"), "{}", excerpt.text);
        assert_eq!((excerpt.place(2), excerpt.place(6002)), (2, excerpt.text.len() - 2));
    }
}
