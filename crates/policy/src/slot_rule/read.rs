//! Reads the text of a rule: it is checked as the only rule of a policy, and must have nothing that a record cannot
//! have.

use super::fields::{KNOWN, header, target};
use super::record::{Conflict, Draft};
use super::rule::{Act, SlotRule};
use crate::catalog::{Catalog, Family, ImageFacts, LimitsFacts, TableFacts};
use crate::checked::{Effect, Exceed, LimitBy, Match, Rule};
use crate::diag::render::{Style, render};
use crate::diag::{Diagnostic, Severity};
use crate::field::{Field, Subject};
use crate::ir::Test;
use crate::source::{FileId, Source, SourceMap, Span};
use crate::syntax::tree::{self, Item};
use crate::syntax::{NoIncludes, Parsed};
use crate::{check, syntax};
use std::fmt::{self, Display, Formatter};
use weir_abi::{Action, Layout};

/// The text in front of the rule, and behind it.
const BEFORE: &str = "upstream { ";
const BEHIND: &str = " }\ndownstream { accept }\n";
/// Maximum length of a rule.
const BYTES_MAX: usize = 1024;
/// The warning that the matches of a rule contradict each other.
const CONTRADICTION: &str = "W0402";

/// Why a text is no rule of a slot. `Display` renders all diagnostics.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The text.
    pub sources: SourceMap,
    /// At least one error.
    pub diagnostics: Vec<Diagnostic>,
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&render(&self.diagnostics, &self.sources, Style::Plain))
    }
}

impl std::error::Error for Refused {}

/// A rule of a slot names no tables and no lists.
struct NoTables;

impl Catalog for NoTables {
    fn table(&self, _: &str) -> Option<&TableFacts> {
        None
    }

    fn limits(&self, _: &str) -> Option<&LimitsFacts> {
        None
    }

    fn image(&self, _: &[&str], _: Layout) -> Option<ImageFacts> {
        None
    }

    fn limits_image(&self, _: &str, _: Family, _: Layout) -> Option<ImageFacts> {
        None
    }
}

impl SlotRule {
    /// Reads a rule such as `ip daddr 192.0.2.1 udp sport 53 drop`.
    ///
    /// # Errors
    /// The text is no rule of a slot. The positions in the error are positions in the text.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        rule(text)
    }
}

fn rule(text: &str) -> Result<SlotRule, Refused> {
    let refused = |diagnostics: Vec<Diagnostic>| {
        let mut sources = SourceMap::default();
        sources.add("rule", text);
        Refused { sources, diagnostics }
    };
    let all = Span { file: FileId(0), start: 0, end: text.len() as u32 };
    if text.len() > BYTES_MAX || text.trim().is_empty() {
        let message = if text.trim().is_empty() { "there is no rule" } else { "the rule is too long" };
        let help = "write a rule such as `ip daddr 192.0.2.1 udp sport 53 drop`";
        return Err(refused(vec![Diagnostic::error("E0328", Span { end: 0, ..all }, message).help(help)]));
    }
    if let Some((at, found)) = text.char_indices().find(|(_, c)| ['\n', ';', '{', '}', '#', '$', '\\'].contains(c)) {
        let span = Span { start: at as u32, end: (at + found.len_utf8()) as u32, ..all };
        let message = format!("a rule of a slot has no `{}`", found.escape_debug());
        let help = "write one rule on one line, with a value or a range for each field";
        return Err(refused(vec![Diagnostic::error("E0328", span, message).help(help)]));
    }
    let own = |diagnostics: Vec<Diagnostic>| refused(diagnostics.into_iter().map(|d| shifted(d, all)).collect());
    let policy = format!("{BEFORE}{text}{BEHIND}");
    let (sources, parsed) = syntax::parse(Source::new("rule", policy), &NoIncludes);
    let checked = check::check(&parsed, &sources, &NoTables).map_err(&own)?;
    let contradiction = checked.warnings.iter().find(|warning| warning.code == CONTRADICTION);
    if let Some(warning) = contradiction {
        return Err(own(vec![Diagnostic { severity: Severity::Error, ..warning.clone() }]));
    }
    let (written, rule) = match (only_rule(&parsed), checked.postures[0].upstream.as_deref()) {
        (Some(written), Some([rule])) => (written, rule),
        _ => panic!("compiler bug: one line between braces is one rule"),
    };
    convert(written, rule).map_err(own)
}

fn only_rule(parsed: &Parsed) -> Option<&tree::Rule> {
    parsed.items().into_iter().find_map(|item| match item {
        Item::Direction(block) => block.rules.first(),
        _ => None,
    })
}

/// A diagnostic with positions in the rule's own text.
fn shifted(diagnostic: Diagnostic, all: Span) -> Diagnostic {
    let shift = |span: Span| {
        let own = |at: u32| at.saturating_sub(BEFORE.len() as u32).min(all.end);
        Span { start: own(span.start), end: own(span.end), ..all }
    };
    let notes = diagnostic.notes.into_iter().map(|(span, text)| (shift(span), text)).collect();
    // What a policy would declare cannot be declared here.
    let help = match diagnostic.code {
        "E0201" | "E0202" => Some("a rule of a slot names no tables, lists of limits or slots".to_owned()),
        _ => diagnostic.help,
    };
    Diagnostic { span: shift(diagnostic.span), notes, help, ..diagnostic }
}

/// The rule, or everything that no record can have.
fn convert(written: &tree::Rule, rule: &Rule) -> Result<SlotRule, Vec<Diagnostic>> {
    let (mut draft, mut tests, mut errors) = (Draft::default(), Vec::new(), Vec::new());
    for (written, condition) in written.matches.iter().zip(&rule.matches) {
        match add(&mut draft, &mut tests, condition) {
            Ok(()) => {}
            Err(problem) => errors.push(problem.at(written.span())),
        }
    }
    let act = match act(written, rule) {
        Ok(act) => act,
        Err(error) => {
            errors.push(*error);
            Act::Count
        }
    };
    match errors.is_empty() {
        true => Ok(SlotRule { tests, act, record: draft.record(act) }),
        false => Err(errors),
    }
}

/// Why a match is refused.
enum Problem {
    /// No record has the field.
    Unknown(String),
    /// The value is not one value or range.
    NotARange,
    /// The match inverts its values.
    Inverted,
    /// No packet has this match and an earlier one.
    Contradiction,
}

impl Problem {
    fn at(self, span: Span) -> Diagnostic {
        let error = |message: String, help: &str| Diagnostic::error("E0328", span, message).help(help);
        match self {
            Problem::Unknown(name) => error(format!("a rule of a slot cannot test {name}"), KNOWN),
            Problem::NotARange => {
                error("a rule of a slot tests one value or range".to_owned(), "write a rule for each of the ranges")
            }
            Problem::Inverted => error(
                "a rule of a slot tests what a field is".to_owned(),
                "write the range of values, or `tcp flags & MASK == FLAGS`",
            ),
            Problem::Contradiction => error("no packet has this and an earlier match".to_owned(), "remove one of them"),
        }
    }
}

impl From<Conflict> for Problem {
    fn from(_: Conflict) -> Self {
        Problem::Contradiction
    }
}

fn add(draft: &mut Draft, tests: &mut Vec<Test>, condition: &Match) -> Result<(), Problem> {
    let (subject, mask, set, negated) = match condition {
        Match::Guard(guard) => {
            draft.require(header(*guard).expect("the language has these four"))?;
            tests.push(Test::Guard(*guard));
            return Ok(());
        }
        Match::Table { .. } => return Err(Problem::Unknown("a table".to_owned())),
        Match::Value { subject, mask, set, negated } => (*subject, *mask, set, *negated),
    };
    let (Some(target), Some(headers)) = (target(subject), header(subject.guard())) else {
        let name = match subject {
            Subject::Field(field) => format!("`{}`", field.name()),
            Subject::Raw(_) | Subject::Card(_) => "these bits".to_owned(),
        };
        return Err(Problem::Unknown(name));
    };
    let range = match (subject, mask, set.ranges()) {
        (Subject::Field(Field::TcpFlags), mask, &[(first, last)]) if first == last || mask.is_none() => {
            let flags = match (mask, negated) {
                // `tcp flags syn`: the flag is set.
                (Some(mask), true) if first == 0 && mask.is_power_of_two() => (mask, mask),
                (_, true) => return Err(Problem::Inverted),
                (mask, false) if first == last => (mask.unwrap_or(0xff), first),
                (_, false) => return Err(Problem::NotARange),
            };
            draft.flags(flags.0 as u32, flags.1 as u32)?;
            None
        }
        (_, _, _) if negated => return Err(Problem::Inverted),
        (_, None, &[range]) => Some(range),
        _ => return Err(Problem::NotARange),
    };
    if let Some((first, last)) = range {
        draft.narrow(target, first, last)?;
    }
    draft.require(headers)?;
    tests.push(Test::Guard(subject.guard()));
    tests.push(Test::Value { subject, mask, set: set.clone(), negated });
    Ok(())
}

fn act(written: &tree::Rule, rule: &Rule) -> Result<Act, Box<Diagnostic>> {
    let help = "end it with `drop`, `limit rate N`, which drops what exceeds the rate, or `counter`";
    let mut act = None;
    for (statement, effect) in written.statements.iter().zip(&rule.effects) {
        let found = match effect {
            Effect::Counter => continue,
            Effect::Verdict(Action::Drop) => Act::Drop,
            Effect::Limit { by: LimitBy::Rate(limit), add: None, exceed: Exceed::Drop } => Act::Limit(*limit),
            _ => {
                let message = format!("a rule of a slot cannot have `{statement}`");
                return Err(Box::new(Diagnostic::error("E0328", statement.span(), message).help(help)));
            }
        };
        if act.replace(found).is_some() {
            let message = "a rule of a slot drops or limits, not both";
            return Err(Box::new(Diagnostic::error("E0328", statement.span(), message).help(help)));
        }
    }
    match (act, written.statements.is_empty()) {
        (Some(act), _) => Ok(act),
        (None, false) => Ok(Act::Count),
        (None, true) => {
            Err(Box::new(Diagnostic::error("E0328", written.span, "the rule does not say what happens").help(help)))
        }
    }
}
