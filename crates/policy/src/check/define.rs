//! Checks the nesting of definitions, and resolves `$NAME`.

use super::definition::{State, variables};
use super::{Check, Checker, DEFINE_DEPTH_MAX, Reported};
use crate::diag::Diagnostic;
use crate::syntax::tree::{Name, Values};

impl<'a> Checker<'a> {
    /// Reports cycles and too deep nesting, so that expansion need not check for them.
    pub(super) fn measure_definitions(&mut self) {
        let mut names: Vec<_> = self.defines.iter().map(|(&name, declared)| (declared.span, name)).collect();
        names.sort_unstable();
        for (_, name) in names {
            _ = self.height(name, 1);
        }
    }

    /// The nesting depth of a definition. [`DEFINE_DEPTH_MAX`] bounds the recursion.
    fn height(&mut self, name: &'a str, depth: usize) -> Check<usize> {
        let Some(define) = self.defines.get_mut(name) else { return Ok(0) };
        match define.target.state {
            State::Height(height) => return Ok(height),
            State::Bad => return Err(Reported),
            State::Open => unreachable!("compiler bug: a cycle is reported before it is entered"),
            State::New => define.target.state = State::Open,
        }
        let variables = define.target.values.map(variables).unwrap_or_default();
        let mut result = Ok(0);
        for variable in variables {
            let inner = self.inner_height(name, variable, depth);
            result = result.and_then(|highest: usize| Ok(highest.max(inner?)));
        }
        let result = result.map(|highest| highest + 1);
        let define = self.defines.get_mut(name).expect("the definition was found above");
        define.target.state = result.map_or(State::Bad, State::Height);
        result
    }

    fn inner_height(&mut self, name: &str, variable: &'a Name, depth: usize) -> Check<usize> {
        match self.defines.get(variable.text.as_str()).map(|define| (define.target.state, define.span)) {
            Some((State::Open, span)) => Err(self.report(
                Diagnostic::error("E0208", variable.span, format!("`${}` refers to itself", variable.text))
                    .label(format!("used in the definition of `{name}`"))
                    .note(span, "defined here"),
            )),
            Some((State::Height(height), _)) if depth + height <= DEFINE_DEPTH_MAX => Ok(height),
            Some((State::New, _)) if depth < DEFINE_DEPTH_MAX => self.height(&variable.text, depth + 1),
            Some((State::New | State::Height(_), _)) => {
                let message = format!("definitions nest deeper than {DEFINE_DEPTH_MAX}");
                Err(self.report(Diagnostic::error("E0208", variable.span, message)))
            }
            Some((State::Bad, _)) => Err(Reported),
            None => Ok(0),
        }
    }

    /// The values of a variable.
    pub(super) fn variable(&mut self, name: &Name) -> Check<&'a Values> {
        if let Some(define) = self.defines.get_mut(name.text.as_str()) {
            define.used = true;
            return match define.target.state {
                State::Bad => Err(Reported),
                _ => define.target.values.ok_or(Reported),
            };
        }
        let error = Diagnostic::error("E0203", name.span, format!("`${}` is not defined", name.text));
        let range = name.text.match_indices('-').map(|(dash, _)| name.text.split_at(dash));
        if let Some((start, end)) = range.into_iter().find(|(start, _)| self.defines.contains_key(start)) {
            let help = format!("`-` can be part of a name: write the range as `${start} - {}`", &end[1..]);
            return Err(self.report(error.help(help)));
        }
        let error = error.help(format!("write `define {} = ...` at the top level", name.text));
        let known: Vec<&str> = self.defines.keys().copied().collect();
        Err(self.unknown(error, &name.text, "$", known.into_iter()))
    }
}
