//! The command line of `weir run`, and what a file adds to it.

use crate::file::{self, Setting};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

/// The file that is read if neither a policy nor a file is given.
pub const DEFAULT_FILE: &str = "/etc/weir/weir.toml";
/// The command whose options a file has.
pub(crate) const COMMAND: &str = "run";

/// A command line of `weir run`: the program's definition and its words.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The definition of the whole program.
    pub program: Command,
    /// The words, the program's name first.
    pub words: Vec<OsString>,
}

impl CommandLine {
    /// The file that this command line asks for. `None` if it is not of `weir run`, is itself invalid, or has a policy
    /// and names no file.
    pub fn file(&self) -> Option<PathBuf> {
        let run = self.given()?;
        if let Some(file) = run.get_one::<PathBuf>("config") {
            return Some(file.clone());
        }
        (!self.gives("policy", &run)).then(|| DEFAULT_FILE.into())
    }

    /// Whether the words name a file.
    pub fn names_file(&self) -> bool {
        self.given().is_some_and(|run| self.gives("config", &run))
    }

    /// The definition of `weir run`.
    pub(crate) fn run(&self) -> &Command {
        self.program.find_subcommand(COMMAND).expect("the program has the command whose options a file has")
    }

    /// What the words give to `weir run`, without what a file may add.
    fn given(&self) -> Option<ArgMatches> {
        let program = self.program.clone().ignore_errors(true).mut_subcommand(COMMAND, |run| run.ignore_errors(true));
        let mut matches = program.try_get_matches_from(&self.words).ok()?;
        matches.remove_subcommand().filter(|(name, _)| name == COMMAND).map(|(_, run)| run)
    }

    fn gives(&self, id: &str, run: &ArgMatches) -> bool {
        matches!(run.value_source(id), Some(ValueSource::CommandLine))
    }

    /// The names of the keys that the words give.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let Some(run) = self.given() else { return BTreeSet::new() };
        let options = self.run().get_arguments().filter(|arg| self.gives(arg.get_id().as_str(), &run));
        options.filter_map(file::key).map(str::to_owned).collect()
    }

    /// The words with those of a file in front of them.
    pub(crate) fn with(&self, settings: &[Setting]) -> Vec<OsString> {
        let mut words = self.words.clone();
        let run = words.iter().position(|word| word == COMMAND).map_or(words.len(), |at| at + 1);
        let given = self.keys();
        let added = settings.iter().filter(|setting| setting.is_given && !given.contains(&setting.key));
        let added = added.flat_map(|setting| {
            let arg = file::option(self.run(), &setting.key).expect("a setting is an option");
            match setting.values.as_slice() {
                [] => vec![OsString::from(format!("--{}", setting.key))],
                values => values.iter().map(|value| file::word(arg, value)).collect(),
            }
        });
        words.splice(run..run, added.collect::<Vec<_>>());
        words
    }
}
