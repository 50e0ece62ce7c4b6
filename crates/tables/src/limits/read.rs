//! Parses the lines of a list of limits: a prefix or label, its rate and optionally its burst, separated by commas.
//!
//! Blank lines, `#` and `;` comments and a header are skipped. `#` and `;` also end a rate or burst. Fields may be
//! quoted as in other CSV lists, and fields after the burst are ignored. Ignored text before a `#` must not contain
//! another limit.

use std::borrow::Cow;
use std::collections::HashMap;

use weir_abi::{Limit, Rate};

use super::Profiles;
use crate::list::csv::take_field;
use crate::list::lines::judge;
use crate::list::stray::{check_characters, names_address};
use crate::list::text::{split_line, unended, without_mark};
use crate::list::{BadLine, ERRORS_MAX, Format, ListError, ReadReport, recognise};
use crate::problem::Problem;

/// What to do with bad lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLines {
    /// Report all of them as an error.
    Refuse,
    /// Skip and count them.
    Skip,
}

/// Parses lines. Calls `take` with the line number, the limited prefix or label, and the number of the limit.
pub(super) fn read(
    name: &str,
    bytes: &[u8],
    bad_lines: BadLines,
    profiles: &mut Profiles,
    mut take: impl FnMut(u64, &[u8], u32) -> Result<(), Problem>,
) -> Result<ReadReport, ListError> {
    recognise(name, bytes)?;
    let mut report = ReadReport { format: Format::Csv, ..ReadReport::default() };
    // Lists have few rates and many lines, so each distinct text after a prefix is parsed once.
    let mut known: HashMap<&[u8], u32> = HashMap::new();
    let mut rest = without_mark(bytes);
    let mut header_possible = true;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        rest = after;
        report.lines += 1;
        let content = line.trim_ascii();
        if content.is_empty() {
            continue;
        }
        let comment = content.iter().position(|&byte| byte == b'#').unwrap_or(content.len());
        if content.starts_with(b";") && names_address(content) || names_address(&content[comment..]) {
            report.commented.note(report.lines);
        }
        let taken = check_characters(content).and_then(|()| {
            if content.starts_with(b"#") || content.starts_with(b";") {
                return Ok(());
            }
            let (what, tail) = split(content)?;
            let number = match known.get(tail) {
                Some(&number) => number,
                None => {
                    let number = profiles.intern(limit(tail)?);
                    known.insert(tail, number);
                    number
                }
            };
            take(report.lines, &what, number)?;
            report.prefixes += 1;
            header_possible = false;
            Ok(())
        });
        if let Err(problem) = taken
            && !(std::mem::take(&mut header_possible) && is_header(content))
        {
            report.skipped += 1;
            if report.first_skipped.len() < ERRORS_MAX {
                report.first_skipped.push(BadLine::new(report.lines, content, problem));
            }
        }
    }
    report.unended = unended(bytes, report.lines);
    judge(name, bytes, &report, bad_lines == BadLines::Skip)?;
    Ok(report)
}

/// Splits a line into what it limits and the rest.
fn split(content: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), Problem> {
    match take_field(content)? {
        (what, Some(tail)) => Ok((what, tail)),
        (_, None) => Err(Problem::NoRate),
    }
}

/// `10mbit,64kbytes`
fn limit(tail: &[u8]) -> Result<Limit, Problem> {
    let end = tail.iter().position(|byte| matches!(byte, b'#' | b';')).unwrap_or(tail.len());
    let (tail, text) = tail.split_at(end);
    let (rate, tail) = take_field(tail)?;
    let (burst, ignored) = match tail.map(take_field).transpose()? {
        Some((burst, ignored)) => (Some(burst), ignored),
        None => (None, None),
    };
    let text = text.split(|&byte| byte == b'#').next().unwrap_or_default();
    if ignored.is_some_and(names_address) || names_address(text) || text.split(|&byte| byte == b';').any(is_limit) {
        return Err(Problem::SecondLimit);
    }
    if rate.is_empty() {
        return Err(Problem::NoRate);
    }
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let burst = burst.filter(|burst| !burst.is_empty()).map(|burst| text(&burst));
    Ok(Limit::new(Rate::parse(&text(&rate))?, burst.as_deref())?)
}

/// Whether the text could be a line of such a list.
fn is_limit(text: &[u8]) -> bool {
    let rate = |tail| take_field(tail).is_ok_and(|(rate, _)| Rate::parse(&String::from_utf8_lossy(&rate)).is_ok());
    split(text).is_ok_and(|(_, tail)| rate(tail))
}

/// Whether the line is a header such as `prefix,rate,burst`: at least two words, since rates begin with a digit.
fn is_header(content: &[u8]) -> bool {
    let is_word = |field: &[u8]| field.first().is_some_and(u8::is_ascii_alphabetic);
    match take_field(content) {
        _ if names_address(content) => false,
        Ok((first, Some(tail))) => is_word(&first) && take_field(tail).is_ok_and(|(second, _)| is_word(&second)),
        _ => false,
    }
}
