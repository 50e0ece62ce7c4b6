//! Printed policies and programs must parse back to themselves.

use crate::engines::load;
use std::path::Path;
use weir_loading::Policy;
use weir_policy::ir::{self, Program};
use weir_policy::pass::{Placement, optimise};
use weir_policy::source::Source;
use weir_policy::syntax::{NoIncludes, parse};

/// Checks the IR as lowered and as optimised for each target.
pub fn program_reads_as_itself(program: &Program) -> Result<(), String> {
    let optimised = [Placement::Staged, Placement::Lazy].map(|placement| optimise(program, placement));
    for program in optimised.iter().chain([program]) {
        let printed = program.to_string();
        let again = ir::parse::parse(&printed).map_err(|problem| format!("printed IR: {problem}\n{printed}"))?;
        if again != *program {
            return Err(format!("printed IR reads as another program:\n{printed}"));
        }
    }
    Ok(())
}

/// Checks that a copy of the folder with printed policy files has the same meaning.
pub fn policy_reads_as_itself(folder: &Path, policy: &Policy) -> Result<(), String> {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        let mut text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if path.extension().is_some_and(|extension| extension == "weir") {
            let (_, parsed) = parse(Source::new("print", text), &NoIncludes);
            text = parsed.files[0].to_string();
        }
        std::fs::write(copy.path().join(path.file_name().expect("a file")), text).expect("the copy can be written");
    }
    let printed = load(&copy.path().join("policy.weir")).map_err(|problem| format!("printed policy: {problem}"))?;
    if nameless(&printed.program) == nameless(&policy.program) {
        return Ok(());
    }
    Err(format!("the printed policy means something else:\n{}", printed.program))
}

/// The program without positions and texts of rules.
fn nameless(program: &Program) -> Program {
    let mut program = program.clone();
    for rule in &mut program.rules {
        rule.at.clear();
        rule.text.clear();
    }
    program
}
