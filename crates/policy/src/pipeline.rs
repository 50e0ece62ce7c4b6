//! The stages of the compiler, in order.
//!
//! ```text
//!   text --parse--> Parsed --check--> Checked --lower--> Lowered --emit--> source
//!                     |         ^                ^          |
//!                     |         +--- Catalog ----+          +--- ir::eval, the reference
//!                     +-- tables to load --> the caller
//! ```
//! `syntax` builds the syntax tree, `check` resolves names and types, `ir` describes what happens to a packet, `pass`
//! optimises that, and `backend` writes C. The compiler opens no file. The caller supplies included policies
//! ([`Includes`]) and facts about tables ([`Catalog`]).

use crate::backend;
use crate::capability::{self, Engine, Feature, Unsupported};
use crate::catalog::Catalog;
use crate::checked::Checked;
use crate::diag::Diagnostic;
use crate::ir::lower::{self, Lowered};
use crate::pass::choose_layouts::CostModel;
use crate::source::{Source, SourceMap};
use crate::syntax::{self, Includes, Parsed};
use weir_abi::Target;

/// Parses text to a syntax tree. [`check`] reports syntax errors together with its own, so that the user sees all at
/// once.
pub fn parse(main: Source, includes: &dyn Includes) -> (SourceMap, Parsed) {
    syntax::parse(main, includes)
}

/// Checks names, types and bounds.
///
/// # Errors
/// All mistakes in the policy, in the order of the text.
pub fn check(parsed: &Parsed, sources: &SourceMap, catalog: &dyn Catalog) -> Result<Checked, Vec<Diagnostic>> {
    crate::check::check(parsed, sources, catalog)
}

/// Turns rules into trees of tests, and chooses the layouts of tables for the machine that `model` describes.
pub fn lower(policy: &Checked, sources: &SourceMap, catalog: &dyn Catalog, model: &CostModel) -> Lowered {
    lower::lower(policy, sources, catalog, model)
}

/// One diagnostic for each rule and feature that an engine does not support. If there are none, [`emit`] can compile
/// the program.
pub fn unsupported(lowered: &Lowered, engines: &[Engine]) -> Vec<Diagnostic> {
    let refuse = |unsupported: Unsupported| {
        let of_rule = unsupported.rule.map(|rule| lowered.spans[usize::from(rule.0)]);
        let besides = if unsupported.feature == Feature::Observe { lowered.observe } else { lowered.tracking };
        let span = of_rule.or(besides).expect("a feature is used somewhere");
        let (what, engines) = (unsupported.feature.name(), unsupported.engines());
        let help = match (unsupported.feature, &unsupported.lacking[..]) {
            (Feature::Objects, [(_, reason), ..]) => *reason,
            _ => "`weir check` accepts the rule; take it out, or comment it out, to run the policy today",
        };
        Diagnostic::error("E0501", span, format!("`{what}` is not yet supported by this engine ({engines})")).help(help)
    };
    capability::unsupported(&lowered.program, engines).into_iter().map(refuse).collect()
}

/// Compiles the program to the source of a target, optimised for it.
pub fn emit(lowered: &Lowered, target: Target) -> String {
    backend::emit(&lowered.program, target)
}
