//! Reads text lists: divides them into chunks at line ends, reads the chunks in parallel, and joins the results in
//! order.

use std::num::NonZero;
use std::thread;

use weir_abi::Family;

use super::csv::{Header, Shape};
use super::error::shown;
use super::stray::{check_characters, names_address, names_another};
use super::{BadLine, ERRORS_MAX, Format, ListError, ReadOptions, ReadReport, Remark, csv, ipset, plain};
use crate::entries::{Entries, Kind, Labels, TableAddress};
use crate::overlap::Span;
use crate::prefix::{Element, Prefix};
use crate::problem::{LABEL_BYTES_MAX, PREFIXES_MAX, Problem};

/// The minimum size of a chunk. Less is not worth a thread.
const CHUNK_BYTES_MIN: usize = 1 << 19;

/// Maximum number of prefixes for which memory is reserved in advance.
const GUESS_MAX: usize = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Adds a text list to a table.
pub(crate) fn read(
    entries: &mut Entries,
    format: Format,
    name: &str,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<ReadReport, ListError> {
    match entries.family() {
        Family::Ipv4 => read_as::<u32>(entries, format, name, bytes, options),
        Family::Ipv6 => read_as::<u128>(entries, format, name, bytes, options),
    }
}

fn read_as<A: TableAddress>(
    entries: &mut Entries,
    format: Format,
    name: &str,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<ReadReport, ListError> {
    let (header_lines, body) = match format {
        Format::Csv => csv::skip_header(without_mark(bytes)),
        _ => (0, without_mark(bytes)),
    };
    let header = if header_lines > 0 { Header::Present } else { Header::Absent };
    let shape = Shape::of(body, header);
    let line_reader: LineReader<A> = match format {
        Format::Csv => csv::line,
        Format::Ipset => ipset::line,
        Format::Plain | Format::Mmdb => plain::line,
    };
    let kind = entries.kind();
    let parts = read_chunks(body, threads(options, body.len()), |chunk| {
        let mut part = Part::new(chunk, kind, shape);
        part.read(chunk, line_reader);
        part
    });

    let mut report = ReadReport { format, lines: header_lines, ..ReadReport::default() };
    parts.iter().for_each(|part| part.add_to(&mut report));
    report.unended = unended(bytes, report.lines);
    judge(name, bytes, &report, options.lenient)?;
    one_set(name, &parts)?;
    if entries.len() as u64 + report.prefixes > PREFIXES_MAX as u64 {
        return Err(ListError::TooMany { name: name.to_owned() });
    }
    parts.into_iter().for_each(|part| entries.absorb(part.sink.prefixes, part.sink.spans, &part.sink.labels));
    Ok(report)
}

/// Refuses a list with bad lines, unless reading is lenient and entries are left. Also refuses an empty list.
pub(crate) fn judge(name: &str, bytes: &[u8], report: &ReadReport, lenient: bool) -> Result<(), ListError> {
    let name = || name.to_owned();
    match (report.skipped, report.first_skipped.first()) {
        (total, Some(_)) if !lenient => {
            Err(ListError::Lines { name: name(), lines: report.first_skipped.clone(), total })
        }
        (total, Some(first)) if report.prefixes == 0 => {
            Err(ListError::NothingUnderstood { name: name(), first: first.clone(), total })
        }
        _ if without_mark(bytes).trim_ascii().is_empty() => Err(ListError::Empty { name: name() }),
        _ => Ok(()),
    }
}

/// The number of the last line, if it has content and no line end.
pub(crate) fn unended(bytes: &[u8], lines: u64) -> Option<u64> {
    let last = bytes.rsplit(|byte| is_line_end(*byte)).next().unwrap_or_default();
    (!content(last).is_empty()).then_some(lines)
}

/// Refuses a file with several sets, which would become one table.
fn one_set<A>(name: &str, parts: &[Part<A>]) -> Result<(), ListError> {
    let mut sets: Vec<String> = Vec::new();
    for set in parts.iter().flat_map(|part| &part.sink.sets).map(|set| shown(set)) {
        if sets.len() < ERRORS_MAX && !sets.contains(&set) {
            sets.push(set);
        }
    }
    if sets.len() > 1 { Err(ListError::Sets { name: name.to_owned(), sets }) } else { Ok(()) }
}

fn threads(options: &ReadOptions, bytes: usize) -> usize {
    let threads = options.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    threads.min(bytes / CHUNK_BYTES_MIN).max(1)
}

/// Divides `bytes` at line feeds into `count` chunks of similar size and reads each on a thread.
fn read_chunks<T: Send>(bytes: &[u8], count: usize, read: impl Fn(&[u8]) -> T + Sync) -> Vec<T> {
    if count == 1 {
        return vec![read(bytes)];
    }
    let mut rest = bytes;
    let chunks = (1..=count).map(|index| {
        let consumed = bytes.len() - rest.len();
        let aim = (bytes.len() / count * index).saturating_sub(consumed).min(rest.len());
        let line_feed = rest[aim..].iter().position(|&byte| byte == b'\n');
        let cut = if index == count { rest.len() } else { line_feed.map_or(rest.len(), |end| aim + end + 1) };
        let (chunk, after) = rest.split_at(cut);
        rest = after;
        chunk
    });
    thread::scope(|scope| {
        let readers: Vec<_> = chunks.map(|chunk| scope.spawn(|| read(chunk))).collect();
        readers.into_iter().map(|reader| reader.join().expect("line readers do not panic")).collect()
    })
}

/// A CR alone also ends a line.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// Splits off the first line, without its end: LF, CR LF or CR.
pub(crate) fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| is_line_end(byte)) {
        Some(end) if bytes[end..].starts_with(b"\r\n") => (&bytes[..end], &bytes[end + 2..]),
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// A line without surrounding blanks; empty if the line is blank or a comment.
#[inline]
pub(crate) fn content(line: &[u8]) -> &[u8] {
    match line.trim_ascii() {
        [b'#' | b';', ..] => &[],
        line => line,
    }
}

/// The first line with content.
pub(crate) fn first_line(bytes: &[u8]) -> &[u8] {
    let mut rest = without_mark(bytes);
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        if !content(line).is_empty() {
            return content(line);
        }
        rest = after;
    }
    &[]
}

/// Parses one line with content into the sink.
type LineReader<A> = fn(&[u8], &mut Sink<A>) -> Result<(), Problem>;

/// Collects the contents of lines.
pub(crate) struct Sink<A> {
    pub kind: Kind,
    prefixes: Vec<Prefix<A>>,
    /// Labelled ranges that are not one prefix, and the number of prefixes that cover them.
    spans: Vec<Span<A>>,
    span_prefixes: usize,
    labels: Labels,
    /// The label of the previous line, which the next line often repeats.
    last_label: u32,
    line: u64,
    /// The shape of CSV lines.
    pub shape: Shape,
    /// Distinct set names of `ipset save`; no more than are reported.
    sets: Vec<Box<[u8]>>,
    host_bits: Remark,
    commented: Remark,
    passed_over: Remark,
    timeouts: Remark,
}

impl<A: TableAddress> Sink<A> {
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

    /// Adds an element and its label, which a set ignores.
    ///
    /// # Errors
    /// The table has labels, and this one is empty, too long or not UTF-8.
    #[inline]
    pub fn push_labelled(&mut self, element: Element<A>, label: &[u8]) -> Result<(), Problem> {
        let label = match self.kind {
            Kind::Set => 1,
            Kind::Labels => self.label(label)?,
        };
        self.take(element, label);
        Ok(())
    }

    #[inline]
    fn take(&mut self, element: Element<A>, label: u32) {
        if element.has_host_bits() {
            self.host_bits.note(self.line);
        }
        match Span::of_element(&element, label).filter(|_| self.kind == Kind::Labels) {
            Some((span, count)) => {
                self.spans.push(span);
                self.span_prefixes += count;
            }
            None => element.prefixes(label, |prefix| self.prefixes.push(prefix)),
        }
    }

    fn label(&mut self, label: &[u8]) -> Result<u32, Problem> {
        if label.is_empty() {
            return Err(Problem::NoLabel);
        }
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
struct Part<A> {
    sink: Sink<A>,
    bad: u64,
    first_bad: Vec<BadLine>,
}

impl<A: TableAddress> Part<A> {
    fn new(chunk: &[u8], kind: Kind, shape: Shape) -> Self {
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
            shape,
            sets: Vec::new(),
            host_bits: Remark::default(),
            commented: Remark::default(),
            passed_over: Remark::default(),
            timeouts: Remark::default(),
        };
        Part { sink, bad: 0, first_bad: Vec::new() }
    }

    fn read(&mut self, chunk: &[u8], line_reader: LineReader<A>) {
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
    fn add_to(&self, report: &mut ReadReport) {
        let room = ERRORS_MAX - report.first_skipped.len();
        let bad = self.first_bad.iter().take(room);
        report.first_skipped.extend(bad.map(|bad| BadLine { line: bad.line + report.lines, ..bad.clone() }));
        report.skipped += self.bad;
        report.host_bits.add(self.sink.host_bits, report.lines);
        report.commented.add(self.sink.commented, report.lines);
        report.passed_over.add(self.sink.passed_over, report.lines);
        report.timeouts.add(self.sink.timeouts, report.lines);
        report.prefixes += self.sink.prefix_count() as u64;
        report.lines += self.sink.line;
    }
}
