//! Limits for the labels of a table, such as one bucket per country or per AS.

use std::collections::HashMap;

use weir_abi::{Limit, LimitEntries, LimitEntry};

use super::read::{self, BadLines};
use super::{Conflicts, Origin, Origins, Profiles};
use crate::list::{ListError, ReadReport};
use crate::problem::{LABEL_BYTES_MAX, Problem};

/// The entries that a list was given so far.
#[derive(Debug, Default)]
pub struct LabelLimits {
    origins: Origins,
    profiles: Profiles,
    limits: HashMap<Box<str>, (u32, Origin)>,
    /// Number of entries, duplicates included.
    given: usize,
    conflicts: Conflicts,
}

impl LabelLimits {
    /// Adds the limit of a label, written at `place`.
    ///
    /// # Errors
    /// The label is empty or too long.
    pub fn insert(&mut self, label: &str, limit: Limit, place: &str) -> Result<(), Problem> {
        let origin = Origin { source: self.origins.add(place), line: 0 };
        let number = self.profiles.intern(limit);
        self.take(checked(label.as_bytes())?, number, origin);
        Ok(())
    }

    /// Adds a list of `label,rate[,burst]`. `name` is for messages.
    ///
    /// # Errors
    /// A line is bad, unless bad lines are skipped.
    pub fn read(&mut self, name: &str, bytes: &[u8], bad_lines: BadLines) -> Result<ReadReport, ListError> {
        let source = self.origins.add(name);
        let mut read = Vec::new();
        let mut report = read::read(name, bytes, bad_lines, &mut self.profiles, |line, what, number| {
            let origin = Origin { source, line: u32::try_from(line).unwrap_or(u32::MAX) };
            read.push((checked(what)?.to_owned(), number, origin));
            Ok(())
        })?;
        report.prefixes = read.len() as u64;
        read.iter().for_each(|(label, number, origin)| self.take(label, *number, *origin));
        Ok(report)
    }

    /// Number of entries so far, duplicates included.
    pub fn len(&self) -> usize {
        self.given
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.given == 0
    }

    fn take(&mut self, label: &str, number: u32, origin: Origin) {
        self.given += 1;
        match self.limits.get(label) {
            None => _ = self.limits.insert(label.into(), (number, origin)),
            Some(&(earlier, _)) if earlier == number => {}
            Some(&(earlier, place)) => {
                let side = |number, origin| (self.origins.text(origin), self.profiles.limit(number));
                self.conflicts.add(&format_args!("`{label}`"), side(number, origin), side(earlier, place));
            }
        }
    }

    /// The limits, with each label once.
    pub fn settle(self) -> Result<RateOfLabel, ListError> {
        self.conflicts.into_result()?;
        let limits = self.limits.into_iter().map(|(label, (number, _))| (label, number)).collect();
        Ok(RateOfLabel { profiles: self.profiles, limits })
    }
}

fn checked(label: &[u8]) -> Result<&str, Problem> {
    match label.len() {
        0 => Err(Problem::NoLabel),
        1..=LABEL_BYTES_MAX => std::str::from_utf8(label).map_err(|_| Problem::LabelEncoding),
        _ => Err(Problem::LongLabel),
    }
}

/// The contents of a list: labels, each with its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct RateOfLabel {
    profiles: Profiles,
    limits: HashMap<Box<str>, u32>,
}

impl RateOfLabel {
    /// Number of labels with a limit of their own.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Number of distinct limits.
    pub fn rates(&self) -> usize {
        self.profiles.limits.len()
    }

    /// The limit of a label as first written, if the list has one.
    pub fn limit(&self, label: &str) -> Option<Limit> {
        self.limits.get(label).map(|&number| self.profiles.limit(number))
    }

    /// Labels of the list that the table does not have, sorted.
    pub fn unknown<'a>(&'a self, of_table: &[impl AsRef<str>]) -> Vec<&'a str> {
        let known: std::collections::HashSet<&str> = of_table.iter().map(AsRef::as_ref).collect();
        let mut unknown: Vec<&str> =
            self.limits.keys().map(|label| &**label).filter(|label| !known.contains(label)).collect();
        unknown.sort_unstable();
        unknown
    }

    /// The entries for limiters of a table with these labels, by id from 1. A label that is not in the list gets the
    /// default and a bucket of its own. An address without label has no limit.
    pub fn entries(&self, of_table: &[impl AsRef<str>], default: Option<Limit>) -> LimitEntries {
        let mut profiles = self.profiles.clone();
        let default = default.map_or(0, |limit| profiles.intern(limit));
        let entry = |label: &str| LimitEntry { profile: self.limits.get(label).copied().unwrap_or(default), parent: 0 };
        profiles.entries(None, of_table.iter().map(|label| entry(label.as_ref())))
    }
}
