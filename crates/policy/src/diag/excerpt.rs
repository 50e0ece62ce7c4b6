//! The lines that a diagnostic quotes. Long lines are cut to the text around the marked ranges.

use super::printable::{escaped, is_unprintable};
use std::ops::Range;

/// Longest line that is quoted whole, bytes.
const LINE_BYTES_MAX: usize = 240;
/// Bytes that are quoted before and after each end of a marked range in a longer line.
const AROUND_BYTES: usize = 40;
const GAP: &str = "...";

/// Lines of a source, shortened and escaped for display.
pub(super) struct Excerpt<'a> {
    /// The displayed text.
    pub(super) text: String,
    source: &'a str,
    /// The ranges of the source that are displayed, in order, each with its offset in `text`.
    kept: Vec<(Range<usize>, usize)>,
}

impl<'a> Excerpt<'a> {
    /// Shortens the long lines of `source`. At least both ends of each of the ranges `marked` remain.
    pub(super) fn new(source: &'a str, marked: &[Range<usize>]) -> Self {
        let mut excerpt = Excerpt { text: String::new(), source, kept: Vec::new() };
        let mut start = 0;
        for line in source.split_inclusive('\n') {
            let end = start + line.len();
            if line.len() <= LINE_BYTES_MAX {
                excerpt.keep(start..end);
            } else {
                excerpt.shorten(start..end, marked);
            }
            start = end;
        }
        excerpt
    }

    /// Whether the excerpt equals the source, so that columns are the same.
    pub(super) fn is_whole(&self) -> bool {
        self.text == self.source
    }

    /// The offset in the excerpt of a byte of the source that is displayed.
    pub(super) fn offset(&self, at: usize) -> usize {
        let Some((kept, start)) = self.kept.iter().find(|(kept, _)| kept.start <= at && at <= kept.end) else {
            return self.text.len();
        };
        start + displayed(&self.source[kept.start..at]).len()
    }

    fn keep(&mut self, range: Range<usize>) {
        let start = self.text.len();
        self.text += &displayed(&self.source[range.clone()]);
        self.kept.push((range, start));
    }

    /// Keeps the text around the marked ranges of a line, and its line end.
    fn shorten(&mut self, line: Range<usize>, marked: &[Range<usize>]) {
        let around = |at: usize| {
            let first = self.source.floor_char_boundary(at.saturating_sub(AROUND_BYTES).max(line.start));
            first..self.source.ceil_char_boundary((at + AROUND_BYTES).min(line.end))
        };
        let ends = marked.iter().flat_map(|range| [range.start, range.end]);
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

/// Escapes a text for display. Each character is escaped independently, so the offset of a character is the length of
/// the escaped text before it.
fn displayed(text: &str) -> std::borrow::Cow<'_, str> {
    escaped(text, |c| is_unprintable(c) && !matches!(c, '\n' | '\r' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::Excerpt;

    #[test]
    fn short_lines_are_unchanged() {
        let excerpt = Excerpt::new("one\ntwo", std::slice::from_ref(&(4..7)));
        assert!(excerpt.is_whole());
        assert_eq!((excerpt.offset(4), excerpt.offset(7)), (4, 7));
    }

    #[test]
    fn a_long_line_is_cut_to_the_marked_text() {
        let source = format!("first\n{}MARK{}\nlast\n", "a".repeat(5000), "b".repeat(5000));
        let at = source.find("MARK").unwrap();
        let excerpt = Excerpt::new(&source, std::slice::from_ref(&(at..at + 4)));
        assert!(excerpt.text.len() < 120, "{}", excerpt.text);
        assert!(
            excerpt.text.starts_with("first\n...aaa") && excerpt.text.ends_with("bbb...\nlast\n"),
            "{}",
            excerpt.text
        );
        assert_eq!(&excerpt.text[excerpt.offset(at)..excerpt.offset(at + 4)], "MARK");
    }

    #[test]
    fn a_long_marked_range_keeps_its_ends() {
        let source = format!("x {} y", "\u{9b}".repeat(3000));
        let excerpt = Excerpt::new(&source, std::slice::from_ref(&(2..6002)));
        assert!(excerpt.text.starts_with("x \\u{9b}") && excerpt.text.ends_with("\\u{9b} y"), "{}", excerpt.text);
        assert_eq!((excerpt.offset(2), excerpt.offset(6002)), (2, excerpt.text.len() - 2));
    }
}
