//! The map of the compiler: every stage a policy goes through, in order, on one page.
//!
//! ```text
//!   text --parse--> Parsed --check--> Checked --lower--> Lowered --emit--> source
//!                     |         ^                ^          |
//!                     |         +--- Catalog ----+          +--- ir::eval, the reference
//!                     +-- tables to load --> the caller
//! ```
//! `syntax` knows what was written, `check` what it means, `ir` what is done with a packet, `pass` how to do it with less, `backend` how to
//! say it in C. The compiler opens no file: included policies come through [`Includes`], what tables hold through [`Catalog`].

use crate::backend;
use crate::capability::{self, DeploymentTarget, Unsupported};
use crate::catalog::Catalog;
use crate::checked::Checked;
use crate::diag::Diagnostic;
use crate::ir::lower::{self, Lowered};
use crate::pass::choose_layouts::CostModel;
use crate::source::{Source, SourceMap};
use crate::syntax::{self, Includes, Parsed};
use weir_abi::Target;

/// Text to syntax tree. Syntax errors are kept for [`check`], so that all errors are reported at once.
pub fn parse(main: Source, includes: &dyn Includes) -> (SourceMap, Parsed) {
    syntax::parse(main, includes)
}

/// Names, types and bounds.
///
/// # Errors
/// Everything that is wrong with the policy, in the order of the text.
pub fn check(parsed: &Parsed, sources: &SourceMap, catalog: &dyn Catalog) -> Result<Checked, Vec<Diagnostic>> {
    crate::check::check(parsed, sources, catalog)
}

/// Rules to a tree of tests, tables to images that suit the machine that `model` describes.
pub fn lower(policy: &Checked, sources: &SourceMap, catalog: &dyn Catalog, model: &CostModel) -> Lowered {
    lower::lower(policy, sources, catalog, model)
}

/// What the targets cannot do, each with its rule. Empty: [`emit`] takes the program for them.
pub fn unsupported(lowered: &Lowered, targets: &[DeploymentTarget]) -> Vec<Diagnostic> {
    let refuse = |unsupported: Unsupported| {
        let span = lowered.spans[usize::from(unsupported.rule.0)];
        let (what, targets) = (unsupported.feature.name(), unsupported.targets());
        Diagnostic::error("E0501", span, format!("`{what}` is not yet supported by this engine ({targets})"))
            .help("`weir check` accepts the rule; take it out, or comment it out, to run the policy today")
    };
    capability::unsupported(&lowered.program, targets).into_iter().map(refuse).collect()
}

/// The program as source for a target, optimised for it.
pub fn emit(lowered: &Lowered, target: Target) -> String {
    backend::emit(&lowered.program, target)
}
