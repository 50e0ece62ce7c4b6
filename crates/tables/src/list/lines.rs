//! Reads text lists: divides them into chunks at line ends, reads the chunks in parallel, and joins the results in
//! order.

use std::num::NonZero;
use std::thread;

use weir_abi::Family;

use super::csv::{Header, Shape};
use super::error::{ERRORS_MAX, ListError, shown};
use super::format::Format;
use super::part::{LineReader, Part};
use super::report::{ReadOptions, ReadReport};
use super::text::{unended, without_mark};
use super::{csv, ipset, json_lines, plain};
use crate::entries::{Entries, TableAddress};
use crate::padded::{Octets, Padding};
use crate::problem::PREFIXES_MAX;

/// The minimum size of a chunk. Less is not worth a thread.
const CHUNK_BYTES_MIN: usize = 1 << 19;

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
    let shape = match csv::named_columns(without_mark(bytes)) {
        Some(named) if header == Header::Present => Shape::of(body, header).with_names(named),
        _ => Shape::of(body, header),
    };
    let line_reader: LineReader<'_, A> = match format {
        Format::Csv => &|line, sink| csv::line(line, shape, sink),
        Format::Ipset => &ipset::line,
        Format::JsonLines => &json_lines::line,
        Format::Plain | Format::Mmdb => &plain::line,
    };
    let kind = entries.kind();
    let read_by = |octets| {
        read_chunks(body, threads(options, body.len()), |chunk| {
            let mut part = Part::new(chunk, kind, octets);
            part.read(chunk, line_reader);
            part
        })
    };
    let mut parts = read_by(Octets::OneReading);
    if parts.iter().any(|part| part.sink.reading.is_ambiguous) {
        // Only the whole list shows what its octets mean.
        let decimal = read_by(Octets::Decimal);
        let mut padding = Padding::default();
        decimal.iter().for_each(|part| padding.add(part.sink.reading.padding));
        if padding.is_decimal() {
            parts = decimal;
        }
    }

    let mut report = ReadReport { format, lines: header_lines, ..ReadReport::default() };
    parts.iter().for_each(|part| part.add_to(&mut report));
    report.unended = unended(bytes, report.lines);
    judge(name, bytes, &report, options.lenient)?;
    one_set(name, &parts)?;
    if report.prefixes == 0 && report.unlabelled.count > 0 {
        return Err(ListError::NoLabels { name: name.to_owned(), entries: report.unlabelled.count });
    }
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
