//! Options that contradict or need each other, at their lines of the file.
//!
//! The command line's definition is the only one of these rules. It names the options in its errors, but not which one
//! needs what is missing. That one is found by leaving settings out.

use crate::file::{self, Setting};
use crate::line::CommandLine;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Error};
use weir_policy::diag::Diagnostic;
use weir_policy::source::{FileId, Span};

/// The mistakes of a file that an error of the whole command line is about. Empty if the words are at fault.
pub fn mistakes(error: &Error, line: &CommandLine, settings: &[Setting], file: FileId, text: &str) -> Vec<Diagnostic> {
    match error.kind() {
        ErrorKind::MissingRequiredArgument => missing(error, line, settings, file, text),
        ErrorKind::ArgumentConflict => conflict(error, line, settings).into_iter().collect(),
        _ => vec![],
    }
}

/// The options that an error names, by their usage: `--host <IF>`, `<POLICY>`.
fn named<'c>(error: &Error, context: ContextKind, line: &'c CommandLine) -> Vec<&'c Arg> {
    let usages = match error.get(context) {
        Some(ContextValue::Strings(usages)) => usages.clone(),
        Some(ContextValue::String(usage)) => vec![usage.clone()],
        _ => vec![],
    };
    let option = |usage: &String| {
        let name = usage.split([' ', '=', '[']).next().unwrap_or_default();
        line.run().get_arguments().find(|arg| match arg.get_long() {
            Some(long) => name.strip_prefix("--") == Some(long),
            None => arg.to_string() == *usage,
        })
    };
    usages.iter().filter_map(option).collect()
}

fn missing(error: &Error, line: &CommandLine, settings: &[Setting], file: FileId, text: &str) -> Vec<Diagnostic> {
    let first_line = text.lines().next().unwrap_or_default().len();
    let whole = Span { file, start: 0, end: u32::try_from(first_line).expect("the length of a file is bounded") };
    let found = named(error, ContextKind::InvalidArg, line).into_iter().filter_map(|arg| {
        let key = file::key(arg)?;
        let what = arg.get_help().map(|help| help.to_string().lines().next().unwrap_or_default().to_owned());
        let found = match needing(key, line, settings) {
            Some(needs) => {
                let message = format!("`{}` needs `{key}`", needs.key);
                Diagnostic::error("E0704", needs.key_span, message).label(format!("without `{key}`"))
            }
            None => Diagnostic::error("E0704", whole, format!("the key `{key}` is missing")),
        };
        Some(match what {
            Some(what) => found.help(format!("`{key}`: {what}")),
            None => found,
        })
    });
    found.collect()
}

/// The setting without which the option `key` is not missing.
fn needing<'s>(key: &str, line: &CommandLine, settings: &'s [Setting]) -> Option<&'s Setting> {
    let is_missing = |settings: &[Setting]| match line.program.clone().try_get_matches_from(line.with(settings)) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            named(&error, ContextKind::InvalidArg, line).iter().any(|arg| file::key(arg) == Some(key))
        }
        // Another error may hide this one, and is reported once this one is corrected.
        _ => false,
    };
    settings.iter().find(|left_out| {
        let others: Vec<Setting> = settings.iter().filter(|one| one.key != left_out.key).cloned().collect();
        left_out.is_given && !is_missing(&others)
    })
}

fn conflict(error: &Error, line: &CommandLine, settings: &[Setting]) -> Option<Diagnostic> {
    let options = [ContextKind::InvalidArg, ContextKind::PriorArg].map(|context| named(error, context, line));
    let mut keys: Vec<&str> = options.concat().into_iter().filter_map(file::key).collect();
    keys.dedup();
    let given = line.keys();
    let setting = |key: &&str| settings.iter().find(|one| one.key == **key && !given.contains(*key));
    let mut in_file: Vec<&Setting> = keys.iter().filter_map(setting).collect();
    in_file.sort_by_key(|setting| setting.key_span.start);
    let (last, others) = in_file.split_last()?;
    let rest: Vec<String> = keys.iter().filter(|key| **key != last.key).map(|key| format!("`{key}`")).collect();
    let message = format!("`{}` contradicts {}", last.key, rest.join(", "));
    let mut found = Diagnostic::error("E0705", last.key_span, message);
    for other in others {
        found = found.note(other.key_span, "given here");
    }
    let by_words: Vec<String> =
        keys.iter().filter(|key| given.contains(**key)).map(|key| format!("`--{key}`")).collect();
    Some(match by_words.is_empty() {
        true => found.help("remove one of them"),
        false => found.help(format!("{} is on the command line", by_words.join(", "))),
    })
}
