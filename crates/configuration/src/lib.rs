//! The configuration file of `weir run` (docs/reference/configuration.md).
//!
//! ```text
//!   file --> settings, each value checked alone --+--> one command line --> clap: what is missing or contradictory
//!   command line (wins, key by key) --------------+
//! ```
//! The options of `weir run` are the only definition of the keys. The mistakes of a file are diagnostics with a
//! position. The crate knows no option by name except `policy` and `config`.
#![forbid(unsafe_code)]

mod clash;
mod file;
mod line;
mod origin;

pub use line::{CommandLine, DEFAULT_FILE};
pub use origin::{Origin, Shown};

use clap::ArgMatches;
use file::Setting;
use line::COMMAND;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use weir_command::failure::Failure;
use weir_command::options::refusal;
use weir_loading::{Rejected, regular_file};
use weir_policy::diag::Diagnostic;
use weir_policy::source::SourceMap;
use weir_state::owner;

/// Maximum length of a file.
const BYTES_MAX: u64 = 1 << 20;

/// The configuration of a `weir run`: its file with the options of the command line.
#[derive(Debug)]
pub struct Configuration {
    path: PathBuf,
    line: CommandLine,
    sources: SourceMap,
    settings: Vec<Setting>,
    matches: ArgMatches,
}

impl Configuration {
    /// Reads the file at `path` for a command line.
    ///
    /// # Errors
    /// The file cannot be read, other users can change it, or it has mistakes: all of them, with their positions.
    pub fn read(path: &Path, line: CommandLine) -> Result<Self, Failure> {
        let text = text(path)?;
        let folder = folder(path)?;
        let mut sources = SourceMap::default();
        let file = sources.add(path.display().to_string(), text.clone());
        let (settings, mistakes) = file::settings(&text, file, line.run(), &folder);
        if !mistakes.is_empty() {
            return Err(rejected(sources, mistakes));
        }
        // The command line again, with the file's words in it.
        match line.program.clone().try_get_matches_from(line.with(&settings)) {
            Ok(matches) => Ok(Configuration { path: path.to_owned(), line, sources, settings, matches }),
            Err(error) => match clash::mistakes(&error, &line, &settings, file, &text) {
                found if found.is_empty() => Err(refusal(&error)),
                found => Err(rejected(sources, found)),
            },
        }
    }

    /// Reads the file again, for the same command line.
    ///
    /// # Errors
    /// As for [`Configuration::read`].
    pub fn read_again(&self) -> Result<Self, Failure> {
        Self::read(&self.path, self.line.clone())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All options together, as the program parses them.
    pub fn matches(&self) -> &ArgMatches {
        &self.matches
    }

    /// The options of `weir run` among them.
    pub fn run_matches(&self) -> &ArgMatches {
        self.matches.subcommand_matches(COMMAND).expect("a configuration is of `weir run`")
    }

    /// A failure that names an option, at the line of the file that sets it. Others stay as they are.
    pub fn locate(&self, failure: Failure) -> Failure {
        let Failure::Rejected(text) = &failure else { return failure };
        let given = self.line.keys();
        let words: Vec<&str> = text.split([' ', '`', ',', ';', ':', '\n']).collect();
        let is_named = |setting: &&Setting| words.contains(&format!("--{}", setting.key).as_str());
        let set_here = self.settings.iter().filter(|setting| setting.is_given && !given.contains(&setting.key));
        let named: Vec<&Setting> = set_here.filter(is_named).collect();
        let Some((first, others)) = named.split_first() else { return failure };
        let mut found = Diagnostic::error("E0705", first.key_span, failure.message().to_owned());
        for other in others {
            found = found.note(other.key_span, "");
        }
        rejected(self.sources.clone(), vec![found])
    }

    /// The policy.
    pub fn policy(&self) -> &Path {
        self.run_matches().get_one::<PathBuf>("policy").expect("`weir run` has a policy")
    }
}

fn rejected(sources: SourceMap, diagnostics: Vec<Diagnostic>) -> Failure {
    let rejected = Box::new(Rejected { sources, diagnostics, lists: vec![] });
    Failure::Mistakes { summary: rejected.summary(), rejected }
}

/// The text of a file that no other user can change.
fn text(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Failure::Rejected(format!("weir: {}: {error}", path.display())),
        _ => Failure::file(path, error),
    };
    let opened: File = regular_file::open(path).map_err(failed)?;
    owner::check(path, &opened)
        .map_err(|why| Failure::Runtime(format!("{}: this configuration is not used: {why}", path.display())))?;
    let mut bytes = Vec::new();
    opened.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    let refused = |problem: String| Failure::Rejected(format!("weir: {}: {problem}", path.display()));
    if bytes.len() as u64 > BYTES_MAX {
        return Err(refused(format!("is longer than {} MiB", BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        refused(format!("line {}: not UTF-8 text", valid.iter().filter(|&&byte| byte == b'\n').count() + 1))
    })
}

/// The folder of a file, from the root.
fn folder(path: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(path).map_err(|error| Failure::file(path, error))?;
    Ok(absolute.parent().map(Path::to_owned).unwrap_or_default())
}
