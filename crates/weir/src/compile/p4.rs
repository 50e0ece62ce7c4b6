//! `weir compile --target p4`: writes a folder with the policy as P4, as SWX's specification, and the data of its
//! tables, for people who take them to another target.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use weir_abi::Target;
use weir_command::failure::Failure;
use weir_loading::Policy;
use weir_policy::backend::{self, p4};
use weir_policy::capability::Engine;

/// A file of the folder.
struct Written {
    name: String,
    text: String,
    /// What it is, for the README.
    what: String,
}

/// Writes the folder. Returns the paths of its files.
///
/// # Errors
/// A rule is not supported, or a file cannot be written.
pub(super) fn write(folder: &Path, policy: &Policy) -> Result<Vec<PathBuf>, Failure> {
    policy.refuse_unsupported(&[Engine::P4])?;
    let mut files = Vec::from(sources(policy));
    files.extend(lists(policy));
    files.push(Written { name: "README.md".to_owned(), text: readme(policy, &files), what: String::new() });
    let tables = folder.join(TABLES);
    fs::create_dir_all(&tables).map_err(|error| Failure::file(&tables, error))?;
    let written = files.into_iter().map(|file| {
        let path = folder.join(&file.name);
        fs::write(&path, file.text).map_err(|error| Failure::file(&path, error))?;
        Ok(path)
    });
    written.collect()
}

/// The folder of the tables' entries.
const TABLES: &str = "tables";

fn sources(policy: &Policy) -> [Written; 3] {
    let program = &policy.program;
    let written = |name: String, text, what: &str| Written { name, text, what: what.to_owned() };
    [
        written(format!("{}.p4", program.name), p4::emit_p4(program), "P4_16 for the architecture PSA"),
        written(
            format!("{}.spec", program.name),
            p4::emit_spec(program),
            "the same program in the notation of DPDK's SWX pipeline",
        ),
        written(
            Target::P4.file_name().to_owned(),
            backend::emit(program, Target::P4),
            "what `weir replay --engine p4` compiles: the instructions of the specification, and the extern objects in C",
        ),
    ]
}

/// The entries of the tables. Lines have the number that a lookup gives.
fn lists(policy: &Policy) -> Vec<Written> {
    let listed = policy.tables().all().iter().map(|table| {
        let count = table.entries.prefixes4().len() + table.entries.prefixes6().len();
        let changes = if table.dynamic.is_some() { "; rules or requests change it while packets pass" } else { "" };
        Written {
            name: format!("{TABLES}/{}.csv", table.name),
            text: table.entries.to_list(),
            what: format!("entries of the table {}: {count}{changes}", table.name),
        }
    });
    listed.collect()
}

fn readme(policy: &Policy, files: &[Written]) -> String {
    let program = &policy.program;
    let mut text = format!(
        "# {} as P4\n\nWeir wrote these files. docs/reference/p4.md explains them.\n\n",
        program.name.escape_debug()
    );
    text.push_str("| file | content |\n| --- | --- |\n");
    for Written { name, what, .. } in files {
        let _ = writeln!(text, "| `{name}` | {what} |");
    }
    if !program.slots.is_empty() {
        text.push_str("\nLookups are extern objects. Each looks up one address in these tables:\n\n");
        text.push_str("| extern | tables | result |\n| --- | --- | --- |\n");
        for (number, slot) in program.slots.iter().enumerate() {
            let (tables, result) = match slot.tables() {
                [] => (slot.name(), "ticket of the limit, 0 for none"),
                [table] => (table.clone(), "number of the label, 1 for a member of a set, 0 for none"),
                tables => (tables.join(", "), "a bit for each table, the first one lowest"),
            };
            let _ = writeln!(text, "| `lookup_{number}` | {tables} | {result} |");
        }
    }
    if !program.limiters.is_empty() {
        text.push_str("\nLimits are extern objects:\n\n| extern | limits |\n| --- | --- |\n");
        for (number, limiter) in program.limiters.iter().enumerate() {
            let _ = writeln!(text, "| `limit_{number}` | {} |", limiter.name);
        }
    }
    text
}
