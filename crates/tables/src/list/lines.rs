//! Text lists: cuts them into lines and chunks of lines, reads the chunks in parallel, and joins what they held in order.

use std::num::NonZero;
use std::thread;

use weir_abi::Family;

use super::{BadLine, ERRORS_MAX, Format, ListError, Problem, ReadOptions, ReadReport, csv, ipset, plain};
use crate::entries::{Entries, Kind, LABEL_BYTES_MAX, Labels, PREFIXES_MAX, TableAddress};
use crate::prefix::{Element, Prefix};

/// A thread is not worth starting for less.
const CHUNK_BYTES_MIN: usize = 1 << 19;

/// Prefixes that room is made for before they are read.
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
    let line_reader: LineReader<A> = match format {
        Format::Csv => csv::line,
        Format::Ipset => ipset::line,
        Format::Plain | Format::Mmdb => plain::line,
    };
    let kind = entries.kind();
    let parts = read_chunks(body, threads(options, body.len()), |chunk| Part::read(chunk, kind, line_reader));

    let mut report = ReadReport { format, lines: header_lines, ..ReadReport::default() };
    parts.iter().for_each(|part| part.add_to(&mut report));
    if report.skipped > 0 && !options.lenient {
        return Err(ListError::Lines { name: name.to_owned(), lines: report.first_skipped, total: report.skipped });
    }
    if entries.len() as u64 + report.prefixes > PREFIXES_MAX as u64 {
        return Err(ListError::TooMany { name: name.to_owned() });
    }
    parts.into_iter().for_each(|part| entries.absorb(part.sink.prefixes, &part.sink.labels));
    Ok(report)
}

fn threads(options: &ReadOptions, bytes: usize) -> usize {
    let threads = options.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    threads.min(bytes / CHUNK_BYTES_MIN).max(1)
}

/// Cuts `bytes` at line ends into `count` chunks of about the same size and reads each on a thread.
fn read_chunks<T: Send>(bytes: &[u8], count: usize, read: impl Fn(&[u8]) -> T + Sync) -> Vec<T> {
    if count == 1 {
        return vec![read(bytes)];
    }
    let mut rest = bytes;
    let chunks = (1..=count).map(|index| {
        let consumed = bytes.len() - rest.len();
        let aim = (bytes.len() / count * index).saturating_sub(consumed).min(rest.len());
        let cut =
            if index == count { rest.len() } else { line_end(&rest[aim..]).map_or(rest.len(), |end| aim + end + 1) };
        let (chunk, after) = rest.split_at(cut);
        rest = after;
        chunk
    });
    thread::scope(|scope| {
        let readers: Vec<_> = chunks.map(|chunk| scope.spawn(|| read(chunk))).collect();
        readers.into_iter().map(|reader| reader.join().expect("line readers do not panic")).collect()
    })
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'\n')
}

pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// Splits off the first line, without its end.
pub(crate) fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match line_end(bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// A line without surrounding blanks; empty if it is blank or a comment.
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

/// Reads one line, which has content, into the sink.
type LineReader<A> = fn(&[u8], &mut Sink<A>) -> Result<(), Problem>;

/// Takes what lines hold.
pub(crate) struct Sink<A> {
    pub kind: Kind,
    prefixes: Vec<Prefix<A>>,
    labels: Labels,
    /// The label of the line before: neighbours often share it.
    last_label: u32,
    line: u64,
    host_bits: u64,
    host_bits_line: Option<u64>,
}

impl<A: TableAddress> Sink<A> {
    /// Takes an element of a line without label.
    ///
    /// # Errors
    /// The table has labels.
    #[inline]
    pub fn push(&mut self, element: Element<A>) -> Result<(), Problem> {
        match self.kind {
            Kind::Set => self.take(element, 1),
            Kind::Labels => return Err(Problem::NoLabel),
        }
        Ok(())
    }

    /// Takes an element and its label, which a set ignores.
    ///
    /// # Errors
    /// The table has labels and this one is empty, too long or no text.
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
            self.host_bits += 1;
            self.host_bits_line.get_or_insert(self.line);
        }
        element.prefixes(label, |prefix| self.prefixes.push(prefix));
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

/// What one chunk held. Line numbers count from its start.
struct Part<A> {
    sink: Sink<A>,
    bad: u64,
    first_bad: Vec<BadLine>,
}

impl<A: TableAddress> Part<A> {
    fn read(chunk: &[u8], kind: Kind, line_reader: LineReader<A>) -> Self {
        // A line has about 16 bytes. A guess too low costs a copy, one too high memory that is never touched.
        let prefixes = Vec::with_capacity((chunk.len() / 16).min(GUESS_MAX));
        let sink = Sink {
            kind,
            prefixes,
            labels: Labels::default(),
            last_label: 0,
            line: 0,
            host_bits: 0,
            host_bits_line: None,
        };
        let mut part = Part { sink, bad: 0, first_bad: Vec::new() };
        let mut rest = chunk;
        // Beyond the limit the list is refused whatever follows.
        while !rest.is_empty() && part.sink.prefixes.len() <= PREFIXES_MAX {
            let (line, after) = split_line(rest);
            rest = after;
            part.sink.line += 1;
            let content = content(line);
            if content.is_empty() {
                continue;
            }
            if let Err(problem) = line_reader(content, &mut part.sink) {
                part.bad += 1;
                if part.first_bad.len() < ERRORS_MAX {
                    part.first_bad.push(BadLine::new(part.sink.line, content, problem));
                }
            }
        }
        part
    }

    /// Adds up, part after part; `report.lines` is what the lines of this part count from.
    fn add_to(&self, report: &mut ReadReport) {
        let room = ERRORS_MAX - report.first_skipped.len();
        let bad = self.first_bad.iter().take(room);
        report.first_skipped.extend(bad.map(|bad| BadLine { line: bad.line + report.lines, ..bad.clone() }));
        report.skipped += self.bad;
        report.host_bits += self.sink.host_bits;
        report.host_bits_line = report.host_bits_line.or(self.sink.host_bits_line.map(|line| line + report.lines));
        report.prefixes += self.sink.prefixes.len() as u64;
        report.lines += self.sink.line;
    }
}
