//! `weir config`: checks or shows the configuration of `weir run`.

use crate::cli::{Cli, ConfigCommand, ConfigOptions, ConfigWords};
use clap::{CommandFactory, FromArgMatches};
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_command::entry::Refused;
use weir_command::failure::Failure;
use weir_command::report;
use weir_configuration::{CommandLine, Configuration, DEFAULT_FILE, Origin, Shown};
use weir_daemon::options::RunOptions;
use weir_loading::PolicyFile;
use weir_policy::diag::printable::printable_line;

/// A parsed command line.
pub struct Parsed {
    /// The command with all its options.
    pub cli: Cli,
    /// The configuration from which options of `weir run` come.
    pub configuration: Option<Arc<Configuration>>,
}

/// Parses the command line. For `weir run` it reads the configuration that the command line asks for.
///
/// # Errors
/// The command line or the configuration is invalid.
pub fn parse(words: Vec<OsString>) -> Result<Parsed, Refused> {
    let line = CommandLine { program: Cli::command(), words };
    let from_words = |line: &CommandLine| {
        let matches = line.program.clone().try_get_matches_from(&line.words)?;
        Cli::from_arg_matches(&matches)
    };
    let Some(file) = line.file() else {
        let cli = from_words(&line).map_err(Refused::Words)?;
        return Ok(Parsed { cli, configuration: None });
    };
    if file == Path::new(DEFAULT_FILE) && !line.names_file() && !file.exists() {
        return match from_words(&line) {
            Ok(cli) => Ok(Parsed { cli, configuration: None }),
            Err(error) => Err(Refused::Named(no_policy(&error))),
        };
    }
    let configuration = Configuration::read(&file, line).map_err(Refused::Named)?;
    let cli = Cli::from_arg_matches(configuration.matches()).map_err(Refused::Words)?;
    Ok(Parsed { cli, configuration: Some(Arc::new(configuration)) })
}

/// A `weir run` without a policy and without a file that could name one.
fn no_policy(error: &clap::Error) -> Failure {
    let failure = weir_command::options::refusal(error);
    Failure::Rejected(format!("{failure}\n\n{DEFAULT_FILE}, which is read if no policy is given, does not exist"))
}

/// Runs the command.
///
/// # Errors
/// The configuration or its policy is invalid.
pub fn run(options: &ConfigOptions) -> Result<(), Failure> {
    match &options.command {
        ConfigCommand::Check(words) => check(words, options.json),
        ConfigCommand::Show(words) => show(words, options.json),
    }
}

fn read(words: &ConfigWords) -> Result<Configuration, Failure> {
    let file = words.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    let mut line: Vec<OsString> = vec!["weir".into(), "run".into()];
    line.extend(words.words.iter().cloned());
    Configuration::read(&file, CommandLine { program: Cli::command(), words: line })
}

/// The options of `weir run` in a configuration.
fn run_options(configuration: &Configuration) -> Result<RunOptions, Failure> {
    let run = configuration.run_matches();
    RunOptions::from_arg_matches(run).map_err(|error| weir_command::options::refusal(&error))
}

fn check(words: &ConfigWords, json: bool) -> Result<(), Failure> {
    let configuration = read(words)?;
    let options = run_options(&configuration)?;
    weir_daemon::check_options(&options).map_err(|failure| configuration.locate(failure))?;
    let policy = PolicyFile::open(&options.policy)?.read(&options.trust.read()?)?;
    report::say_warnings(&policy);
    let (file, policy) = (configuration.path().display(), options.policy.display());
    if json {
        return report::print_json(&json!({ "file": file.to_string(), "policy": policy.to_string() }));
    }
    report::print(&format!("{file}: valid, with the policy {policy}\n"))
}

/// A key in JSON.
#[derive(Serialize)]
struct Row {
    key: String,
    /// `null` if it is unset.
    value: Value,
    origin: &'static str,
    line: Option<u32>,
    overridden_line: Option<u32>,
}

impl From<Shown> for Row {
    fn from(shown: Shown) -> Self {
        let (origin, line) = match shown.origin {
            Origin::File { line, .. } => ("file", Some(line)),
            Origin::CommandLine => ("command line", None),
            Origin::Default => ("default", None),
            Origin::Unset => ("unset", None),
        };
        let mut values: Vec<Value> =
            shown.values.iter().map(|value| value.to_string_lossy().into_owned().into()).collect();
        let value = match values.len() {
            0 => Value::Null,
            1 if !shown.is_list => values.remove(0),
            _ => Value::Array(values),
        };
        Row { key: shown.key, value, origin, line, overridden_line: shown.overridden }
    }
}

fn show(words: &ConfigWords, json: bool) -> Result<(), Failure> {
    let configuration = read(words)?;
    let shown = configuration.shown();
    if json {
        let rows: Vec<Row> = shown.into_iter().map(Row::from).collect();
        return report::print_json(&json!({ "file": configuration.path().display().to_string(), "options": rows }));
    }
    let cell = |shown: &Shown| match shown.values.as_slice() {
        [] => "-".to_owned(),
        values => {
            let texts: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
            printable_line(&texts.join(", ")).into_owned()
        }
    };
    let rows: Vec<(String, String, String)> = shown
        .iter()
        .map(|one| {
            let overridden = one.overridden.map(|line| format!(", in place of line {line}")).unwrap_or_default();
            (one.key.clone(), cell(one), format!("{}{overridden}", one.origin))
        })
        .collect();
    let width = |of: fn(&(String, String, String)) -> &String| rows.iter().map(|row| of(row).chars().count()).max();
    let keys = width(|row| &row.0).unwrap_or_default();
    let values = width(|row| &row.1).unwrap_or_default().min(VALUE_WIDTH_MAX);
    let mut text = String::new();
    for (key, value, origin) in &rows {
        let _ = writeln!(text, "{key:keys$}  {value:values$}  {origin}");
    }
    report::print(&text)
}

/// Longest value that others are aligned with.
const VALUE_WIDTH_MAX: usize = 40;
