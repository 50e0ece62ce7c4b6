//! Where each value of a configuration comes from.

use crate::{Configuration, file};
use clap::Arg;
use clap::parser::ValueSource;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file, with its line.
    File {
        /// The file as it was given.
        file: String,
        /// The line, from 1.
        line: u32,
    },
    /// The command line.
    CommandLine,
    /// The default of the option.
    Default,
    /// Nothing sets it, and it has no default.
    Unset,
}

/// A key with its values in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The key.
    pub key: String,
    /// Its values. A flag has `true` or `false`.
    pub values: Vec<OsString>,
    /// Whether it may have several values.
    pub is_list: bool,
    /// Where they come from.
    pub origin: Origin,
    /// The line of the file that the command line overrides.
    pub overridden: Option<u32>,
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line } => write!(f, "{file}:{line}"),
            Origin::CommandLine => f.write_str("command line"),
            Origin::Default => f.write_str("default"),
            Origin::Unset => f.write_str("unset"),
        }
    }
}

impl Configuration {
    /// All keys in the order of the help, with their values in force.
    pub fn shown(&self) -> Vec<Shown> {
        let (matches, given) = (self.run_matches(), self.line.keys());
        let shown = |(arg, key): (&Arg, &str)| {
            let (id, is_list) = (arg.get_id().as_str(), file::takes_several(arg));
            let setting = self.settings.iter().find(|setting| setting.key == key);
            let line = setting.map(|setting| self.sources.line(setting.key_span));
            let in_file = |line| Origin::File { file: self.path.display().to_string(), line };
            let origin = match (matches.value_source(id), line) {
                _ if given.contains(key) => Origin::CommandLine,
                (_, Some(line)) => in_file(line),
                (Some(ValueSource::DefaultValue), None) => Origin::Default,
                _ => Origin::Unset,
            };
            let values = matches.get_raw(id).into_iter().flatten().map(OsString::from).collect();
            let overridden = line.filter(|_| origin == Origin::CommandLine);
            Shown { key: key.to_owned(), values, is_list, origin, overridden }
        };
        let keys = self.line.run().get_arguments().filter_map(|arg| Some((arg, file::key(arg)?)));
        keys.map(shown).collect()
    }

    /// Keys of the file that the command line overrides, with their lines.
    pub fn overridden(&self) -> Vec<(String, u32)> {
        let overridden = |shown: Shown| Some((shown.key, shown.overridden?));
        self.shown().into_iter().filter_map(overridden).collect()
    }

    /// Keys except `policy` whose values differ in `other`. They take effect at the next start.
    pub fn differing(&self, other: &Configuration) -> Vec<String> {
        let (own, others) = (self.shown(), other.shown());
        let pairs = own.into_iter().zip(others);
        let differs = |(own, other): &(Shown, Shown)| own.values != other.values && own.key != "policy";
        pairs.filter(differs).map(|(own, _)| own.key).collect()
    }
}
