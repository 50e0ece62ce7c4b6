//! What readers of lines find in one chunk of a list.

use super::error::{BadLine, ERRORS_MAX};
use super::reading::Reading;
use super::report::{ReadReport, Remark};
use super::stray::{check_characters, names_address, names_another};
use super::text::split_line;
use crate::entries::{Kind, Labels, TableAddress};
use crate::overlap::Span;
use crate::padded::Octets;
use crate::prefix::{Element, Prefix};
use crate::problem::{LABEL_BYTES_MAX, PREFIXES_MAX, Problem};

/// Maximum number of prefixes for which memory is reserved in advance.
const GUESS_MAX: usize = 1 << 20;

/// Parses one line with content into the sink.
pub(super) type LineReader<'a, A> = &'a (dyn Fn(&[u8], &mut Sink<A>) -> Result<(), Problem> + Sync);

/// Collects the contents of lines.
pub(crate) struct Sink<A> {
    pub kind: Kind,
    pub prefixes: Vec<Prefix<A>>,
    /// Labelled ranges that are not one prefix, and the number of prefixes that cover them.
    pub spans: Vec<Span<A>>,
    span_prefixes: usize,
    pub labels: Labels,
    /// The label of the previous line, which the next line often repeats.
    last_label: u32,
    line: u64,
    /// Distinct set names of `ipset save`; no more than are reported.
    pub sets: Vec<Box<[u8]>>,
    /// How elements are read, and what they show about leading zeros.
    pub reading: Reading,
    unlabelled: Remark,
    named: Remark,
    commented: Remark,
    passed_over: Remark,
    timeouts: Remark,
}

impl<A: TableAddress> Sink<A> {
    /// Parses an element at the start of `text`. Returns it and the number of bytes that it takes.
    ///
    /// # Errors
    /// As for [`Element::take`], except for octets with leading zeros that have one reading here.
    #[inline]
    pub fn element(&mut self, text: &[u8]) -> Result<(Element<A>, usize), Problem> {
        self.reading.element(text, self.line)
    }

    /// Adds the element of a line without label.
    #[inline]
    pub fn push(&mut self, element: Element<A>) -> Result<(), Problem> {
        match self.kind {
            Kind::Set => self.take(element, 1),
            Kind::Labels => return Err(Problem::NoLabel),
        }
        Ok(())
    }

    /// Number of prefixes so far, including those of ranges.
    fn prefix_count(&self) -> usize {
        self.prefixes.len() + self.span_prefixes
    }

    /// Skips the text after an element: words and an optional comment.
    ///
    /// # Errors
    /// The words name another address, or the text has characters that hide lines.
    pub fn ignore(&mut self, text: &[u8], element: &Element<A>) -> Result<(), Problem> {
        let words = text.iter().position(|&byte| byte == b'#').unwrap_or(text.len());
        self.check(&text[..words], element)?;
        check_characters(&text[words..])?;
        let comment = text.iter().position(|&byte| matches!(byte, b'#' | b';')).unwrap_or(text.len());
        if text[..comment].iter().any(u8::is_ascii_alphabetic) {
            self.named.note(self.line);
        }
        if names_another(&text[words..], element) {
            self.commented.note(self.line);
        }
        Ok(())
    }

    /// Skips CSV fields that tables do not use.
    ///
    /// # Errors
    /// The text has characters that hide lines.
    pub fn pass_over(&mut self, text: &[u8], element: &Element<A>) -> Result<(), Problem> {
        check_characters(text)?;
        if names_another(text, element) {
            self.passed_over.note(self.line);
        }
        Ok(())
    }

    /// Checks the text after an element.
    ///
    /// # Errors
    /// The text names another address or has characters that hide lines.
    pub fn check(&self, text: &[u8], element: &Element<A>) -> Result<(), Problem> {
        check_characters(text)?;
        if names_another(text, element) { Err(Problem::SecondAddress) } else { Ok(()) }
    }

    /// Skips a comment line.
    fn comment(&mut self, text: &[u8]) -> Result<(), Problem> {
        check_characters(text)?;
        if names_address(text) {
            self.commented.note(self.line);
        }
        Ok(())
    }

    /// Records the name of the set that the line belongs to.
    pub fn set(&mut self, name: &[u8]) {
        if self.sets.len() < ERRORS_MAX && !self.sets.iter().any(|known| **known == *name) {
            self.sets.push(name.into());
        }
    }

    /// Records that the line's element has a timeout.
    pub fn timeout(&mut self) {
        self.timeouts.note(self.line);
    }

    /// Adds an element and its label, which a set ignores. An element with an empty label is counted and left out.
    ///
    /// # Errors
    /// The table has labels, and this one is too long or not UTF-8.
    #[inline]
    pub fn push_labelled(&mut self, element: Element<A>, label: &[u8]) -> Result<(), Problem> {
        let label = match self.kind {
            Kind::Set => 1,
            Kind::Labels if label.is_empty() => {
                self.unlabelled.note(self.line);
                return Ok(());
            }
            Kind::Labels => self.label(label)?,
        };
        self.take(element, label);
        Ok(())
    }

    #[inline]
    fn take(&mut self, element: Element<A>, label: u32) {
        match Span::of_element(&element, label).filter(|_| self.kind == Kind::Labels) {
            Some((span, count)) => {
                self.spans.push(span);
                self.span_prefixes += count;
            }
            None => element.prefixes(label, |prefix| self.prefixes.push(prefix)),
        }
    }

    fn label(&mut self, label: &[u8]) -> Result<u32, Problem> {
        if self.labels.name(self.last_label).is_some_and(|last| last.as_bytes() == label) {
            return Ok(self.last_label);
        }
        if label.len() > LABEL_BYTES_MAX {
            return Err(Problem::LongLabel);
        }
        let label = std::str::from_utf8(label).map_err(|_| Problem::LabelEncoding)?;
        self.last_label = self.labels.intern(label);
        Ok(self.last_label)
    }
}

/// The contents of one chunk. Line numbers count from its start.
pub(super) struct Part<A> {
    pub sink: Sink<A>,
    bad: u64,
    first_bad: Vec<BadLine>,
}

impl<A: TableAddress> Part<A> {
    pub fn new(chunk: &[u8], kind: Kind, octets: Octets) -> Self {
        // A line has about 16 bytes. A guess too low costs a copy; one too high reserves memory that is never touched.
        let prefixes = Vec::with_capacity((chunk.len() / 16).min(GUESS_MAX));
        let sink = Sink {
            kind,
            prefixes,
            spans: Vec::new(),
            span_prefixes: 0,
            labels: Labels::default(),
            last_label: 0,
            line: 0,
            sets: Vec::new(),
            reading: Reading::new(octets),
            unlabelled: Remark::default(),
            named: Remark::default(),
            commented: Remark::default(),
            passed_over: Remark::default(),
            timeouts: Remark::default(),
        };
        Part { sink, bad: 0, first_bad: Vec::new() }
    }

    pub fn read(&mut self, chunk: &[u8], line_reader: LineReader<'_, A>) {
        let mut rest = chunk;
        // Above the limit the list is refused in any case.
        while !rest.is_empty() && self.sink.prefix_count() <= PREFIXES_MAX {
            let (line, after) = split_line(rest);
            rest = after;
            self.sink.line += 1;
            let read = match line.trim_ascii() {
                [] => continue,
                comment @ [b'#' | b';', ..] => self.sink.comment(comment),
                line => line_reader(line, &mut self.sink),
            };
            if let Err(problem) = read {
                self.bad += 1;
                if self.first_bad.len() < ERRORS_MAX {
                    self.first_bad.push(BadLine::new(self.sink.line, line.trim_ascii(), problem));
                }
            }
        }
    }

    /// Adds this part to the report. `report.lines` is the number of lines before this part.
    pub fn add_to(&self, report: &mut ReadReport) {
        let room = ERRORS_MAX - report.first_skipped.len();
        let bad = self.first_bad.iter().take(room);
        report.first_skipped.extend(bad.map(|bad| BadLine { line: bad.line + report.lines, ..bad.clone() }));
        report.skipped += self.bad;
        report.padded.add(self.sink.reading.padded, report.lines);
        report.unlabelled.add(self.sink.unlabelled, report.lines);
        report.named.add(self.sink.named, report.lines);
        report.commented.add(self.sink.commented, report.lines);
        report.passed_over.add(self.sink.passed_over, report.lines);
        report.timeouts.add(self.sink.timeouts, report.lines);
        report.prefixes += self.sink.prefix_count() as u64;
        report.lines += self.sink.line;
    }
}
