//! The lines of a list of limits: what is limited, its rate and perhaps its burst, parted by commas.
//!
//! Blank lines, `#` and `;` comments and a header are passed over; `#` and `;` end a rate or burst too. Fields may be quoted as in other CSV
//! lists, fields after the burst are ignored.

use std::borrow::Cow;
use std::collections::HashMap;

use weir_abi::{Limit, Rate};

use super::Profiles;
use crate::list::csv::take_field;
use crate::list::lines::{content, split_line, without_mark};
use crate::list::{BadLine, ERRORS_MAX, Format, ListError, Problem, ReadReport};

/// Whether bad lines are an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLines {
    /// All are reported.
    Refuse,
    /// They are passed over and counted.
    Skip,
}

/// Reads lines: gives `take` the number of each, what it limits and the number of the limit.
pub(super) fn read(
    name: &str,
    bytes: &[u8],
    bad_lines: BadLines,
    profiles: &mut Profiles,
    mut take: impl FnMut(u64, &[u8], u32) -> Result<(), Problem>,
) -> Result<ReadReport, ListError> {
    let mut report = ReadReport { format: Format::Csv, ..ReadReport::default() };
    // Lists have few rates and many lines: what stands behind a prefix is read once.
    let mut known: HashMap<&[u8], u32> = HashMap::new();
    let mut rest = without_mark(bytes);
    let mut header_possible = true;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        rest = after;
        report.lines += 1;
        let content = content(line);
        if content.is_empty() {
            continue;
        }
        let taken = split(content).and_then(|(what, tail)| {
            let number = match known.get(tail) {
                Some(&number) => number,
                None => {
                    let number = profiles.intern(limit(tail)?);
                    known.insert(tail, number);
                    number
                }
            };
            take(report.lines, &what, number)
        });
        if let Err(problem) = taken
            && !(header_possible && is_header(content))
        {
            report.skipped += 1;
            if report.first_skipped.len() < ERRORS_MAX {
                report.first_skipped.push(BadLine::new(report.lines, content, problem));
            }
        }
        header_possible = false;
    }
    if report.skipped > 0 && bad_lines == BadLines::Refuse {
        let (lines, total) = (report.first_skipped, report.skipped);
        return Err(ListError::Lines { name: name.to_owned(), lines, total });
    }
    Ok(report)
}

/// What a line limits, and the rest.
fn split(content: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), Problem> {
    match take_field(content)? {
        (what, Some(tail)) => Ok((what, tail)),
        (_, None) => Err(Problem::NoRate),
    }
}

/// `10mbit,64kbytes`
fn limit(tail: &[u8]) -> Result<Limit, Problem> {
    let end = tail.iter().position(|byte| matches!(byte, b'#' | b';')).unwrap_or(tail.len());
    let (rate, tail) = take_field(&tail[..end])?;
    let burst = tail.map(take_field).transpose()?.map(|(burst, _)| burst);
    if rate.is_empty() {
        return Err(Problem::NoRate);
    }
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let burst = burst.filter(|burst| !burst.is_empty()).map(|burst| text(&burst));
    Ok(Limit::new(Rate::parse(&text(&rate))?, burst.as_deref())?)
}

/// `prefix,rate,burst`: two words at least, and rates begin with a digit.
fn is_header(content: &[u8]) -> bool {
    let is_word = |field: &[u8]| field.first().is_some_and(u8::is_ascii_alphabetic);
    match take_field(content) {
        Ok((first, Some(tail))) => is_word(&first) && take_field(tail).is_ok_and(|(second, _)| is_word(&second)),
        _ => false,
    }
}
