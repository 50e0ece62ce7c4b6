//! The text of a configuration: keys with values, each with its position.
//!
//! Keys are flat. They are the long names of the options of `weir run`, and `policy`. What an option accepts is asked of
//! the command line's own definition, so a new option is a new key.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, Error};
use std::any::TypeId;
use std::error::Error as _;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_policy::diag::{Diagnostic, nearest};
use weir_policy::source::{FileId, Span};

/// Options that a file cannot contain.
const NO_KEYS: [&str; 3] = ["config", "help", "version"];

/// A key of a file with its values.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub key_span: Span,
    /// The values, as words of a command line. Paths are absolute. A flag has none.
    pub values: Vec<OsString>,
    /// Whether the option is given. A flag that is `false` is not.
    pub is_given: bool,
}

/// The name of an option in a file.
pub fn key(arg: &Arg) -> Option<&str> {
    let name = if arg.is_positional() { Some(arg.get_id().as_str()) } else { arg.get_long() };
    name.filter(|name| !NO_KEYS.contains(name))
}

/// The option that a key sets.
pub fn option<'c>(run: &'c Command, wanted: &str) -> Option<&'c Arg> {
    run.get_arguments().find(|arg| key(arg) == Some(wanted))
}

/// Reads the settings of a text. `folder` is the base of relative paths. Collects all mistakes.
pub fn settings(text: &str, file: FileId, run: &Command, folder: &Path) -> (Vec<Setting>, Vec<Diagnostic>) {
    let reader = Reader { file, run, folder };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut diagnostics: Vec<Diagnostic> = errors.iter().map(|error| reader.syntax(error, text)).collect();
    let mut settings = Vec::new();
    // Of a text with errors of syntax, the values may be invented.
    if diagnostics.is_empty() {
        for (name, value) in table.get_ref() {
            match reader.setting(name, value) {
                Ok(setting) => settings.push(setting),
                Err(found) => diagnostics.extend(found),
            }
        }
    }
    settings.sort_by_key(|setting| setting.key_span.start);
    diagnostics.sort_by_key(|diagnostic| diagnostic.span.start);
    (settings, diagnostics)
}

struct Reader<'a> {
    file: FileId,
    run: &'a Command,
    folder: &'a Path,
}

impl Reader<'_> {
    fn span(&self, range: Range<usize>) -> Span {
        let at = |offset: usize| u32::try_from(offset).expect("the length of a configuration is bounded");
        Span { file: self.file, start: at(range.start), end: at(range.end) }
    }

    fn syntax(&self, error: &toml::de::Error, text: &str) -> Diagnostic {
        let end = text.trim_end().len();
        let span = error.span().unwrap_or(end..end);
        let message = error.message().lines().next().unwrap_or_default().trim();
        let wanted = error.message().lines().skip(1).map(str::trim).collect::<Vec<_>>().join(", ");
        let found = Diagnostic::error("E0701", self.span(span), format!("not TOML: {message}")).label(wanted);
        found.help("write one `key = value` on a line; text is between quotes")
    }

    fn setting(
        &self,
        name: &Spanned<toml::de::DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Setting, Vec<Diagnostic>> {
        let (key, key_span) = (name.get_ref().as_ref(), self.span(name.span()));
        let Some(arg) = option(self.run, key) else { return Err(vec![self.unknown(key, key_span)]) };
        let mut setting = Setting { key: key.to_owned(), key_span, values: vec![], is_given: true };
        if !arg.get_action().takes_values() {
            setting.is_given = self.flag(key, value)?;
            return Ok(setting);
        }
        let several = takes_several(arg);
        let items: Vec<&Spanned<DeValue<'_>>> = match value.get_ref().as_array() {
            None => vec![value],
            Some(_) if !several => {
                let found = self.wrong(value, format!("`{key}` has one value, not a list"));
                return Err(vec![found.help(format!("write `{key} = {}`", example(arg)))]);
            }
            Some(list) if list.is_empty() => {
                let found = self.wrong(value, format!("the list of `{key}` is empty"));
                return Err(vec![found.help("remove the key")]);
            }
            Some(list) => list.iter().collect(),
        };
        let mut mistakes = Vec::new();
        for item in items {
            match self.value(key, arg, item) {
                Ok(word) => setting.values.push(word),
                Err(found) => mistakes.push(*found),
            }
        }
        if mistakes.is_empty() { Ok(setting) } else { Err(mistakes) }
    }

    fn wrong(&self, value: &Spanned<DeValue<'_>>, message: String) -> Diagnostic {
        Diagnostic::error("E0703", self.span(value.span()), message)
    }

    fn unknown(&self, name: &str, span: Span) -> Diagnostic {
        let found = Diagnostic::error("E0702", span, format!("unknown key `{name}`"));
        if NO_KEYS.contains(&name) {
            return found.help(format!("`--{name}` is an option of the command line only"));
        }
        let known = self.run.get_arguments().filter_map(key);
        match nearest(name, known) {
            Some(near) => found.help(format!("did you mean `{near}`?")),
            None => found.help("keys are the long options of `weir run`, and `policy`; there are no sections"),
        }
    }

    fn flag(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, Vec<Diagnostic>> {
        value.get_ref().as_bool().ok_or_else(|| {
            let found = self.wrong(value, format!("`{key}` is on or off"));
            vec![found.help(format!("write `{key} = true`, or remove the key"))]
        })
    }

    /// A value as a word of the command line.
    fn value(&self, key: &str, arg: &Arg, value: &Spanned<DeValue<'_>>) -> Result<OsString, Box<Diagnostic>> {
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let word = match value.get_ref() {
            DeValue::String(text) => Some(text.as_ref().to_owned()),
            DeValue::Integer(number) if !is_path && number.radix() == 10 => Some(number.as_str().replace('_', "")),
            DeValue::Float(number) if !is_path => Some(number.as_str().replace('_', "")),
            _ => None,
        };
        let Some(word) = word else {
            let found = self.wrong(value, format!("`{key}` has no such value: {}", kind(value.get_ref())));
            return Err(Box::new(found.help(format!("write `{key} = {}`", example(arg)))));
        };
        if word.contains('\0') {
            return Err(Box::new(self.wrong(value, format!("the value of `{key}` contains a zero byte"))));
        }
        let word = if is_path { self.folder.join(word).into_os_string() } else { word.into() };
        match refusal(self.run, arg, &word) {
            None => Ok(word),
            Some(error) => Err(Box::new(self.refused(key, value, &error))),
        }
    }

    /// A value that the option's own parser refuses.
    fn refused(&self, key: &str, value: &Spanned<DeValue<'_>>, error: &Error) -> Diagnostic {
        let texts = |kind| match error.get(kind) {
            Some(ContextValue::Strings(texts)) => texts.clone(),
            Some(ContextValue::String(text)) => vec![text.clone()],
            _ => vec![],
        };
        let found = self.wrong(value, format!("invalid value of `{key}`"));
        let found = match error.source() {
            Some(why) => found.label(why.to_string()),
            None => found,
        };
        let possible = texts(ContextKind::ValidValue);
        let near = texts(ContextKind::SuggestedValue);
        match (near.first(), possible.is_empty()) {
            (Some(near), _) => found.help(format!("did you mean `{near}`? Possible: {}", possible.join(", "))),
            (None, false) => found.help(format!("possible: {}", possible.join(", "))),
            (None, true) => found,
        }
    }
}

/// Whether an option may be given with several values.
pub fn takes_several(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append) || arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

/// The word of an option with a value.
pub fn word(arg: &Arg, value: &OsString) -> OsString {
    match arg.get_long() {
        Some(long) => {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            word
        }
        None => value.clone(),
    }
}

/// Why the option's own parser refuses a value. Other options may be missing or contradict it, which is checked later.
fn refusal(run: &Command, arg: &Arg, value: &OsString) -> Option<Error> {
    let words = [OsString::from(run.get_name()), word(arg, value)];
    let error = run.clone().try_get_matches_from(words).err()?;
    (!matches!(error.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict)).then_some(error)
}

/// How the value of an option is written.
fn example(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map_or("VALUE", |name| name.as_str());
    if takes_several(arg) { format!("[\"{name}\"]") } else { format!("\"{name}\"") }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}
