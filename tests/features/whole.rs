//! The features whose snapshots show the lowered IR and the generated programs: every kind of part is in one of them.

use super::{each_folder, load};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use weir_abi::Target;
use weir_policy::backend;

/// Their names.
const WHOLE: [&str; 7] =
    ["add-to-tables", "defaults-rules", "fragment-defaults", "limit-each", "slots", "observe-inside", "tracking"];

/// Whether a feature's snapshots show its whole programs.
pub fn is_shown(folder: &Path) -> bool {
    WHOLE.iter().any(|name| folder.ends_with(name))
}

/// The top-level parts of C text: a function or declaration with its comment, or a group of lines without an empty line
/// in it. An empty line inside a function precedes an indented line.
fn parts(program: &str) -> impl Iterator<Item = &str> {
    let mut rest = program;
    std::iter::from_fn(move || {
        let is_top_level = |at: &usize| rest[at + 2..].starts_with(|c: char| !c.is_whitespace() && c != '}');
        let end = rest.match_indices("\n\n").map(|(at, _)| at).find(is_top_level);
        let (part, next) = end.map_or((rest, ""), |at| (&rest[..at], &rest[at + 2..]));
        rest = next;
        (!part.is_empty()).then(|| part.trim_end_matches('\n'))
    })
}

/// The kind of a part, independent of direction and posture: the function's name after the direction (`_rules`), or the
/// first word of the declaration.
fn kind(part: &str) -> String {
    let code: Vec<&str> = part.lines().filter(|line| !line.starts_with(['/', ' ', '#'])).collect();
    let code = code.join(" ");
    let head = code.split(['{', '=']).next().unwrap_or_default();
    let name = head.split('(').next().unwrap_or_default().trim_end().rsplit([' ', '*']).next().unwrap_or_default();
    let of_direction = ["upstream", "downstream"].iter().find_map(|direction| name.rsplit_once(direction));
    of_direction.map_or(name, |(_, rest)| rest).to_owned()
}

fn decides(kind: &str) -> bool {
    kind == "_rules" || kind.starts_with("_set_")
}

/// The kinds of parts in a program.
fn kinds(program: &str) -> BTreeSet<String> {
    parts(program).map(kind).filter(|kind| !decides(kind)).collect()
}

#[test]
fn whole_programs_show_every_kind_of_part() {
    if std::env::var_os("WEIR_FEATURE").is_some() {
        return;
    }
    let [shown, left_out] = [(); 2].map(|()| Mutex::new(BTreeSet::new()));
    each_folder(|folder| {
        let policy = load(&folder.join("policy.weir"))?;
        if !policy.unsupported().is_empty() {
            return Ok(());
        }
        let kinds = Target::ALL.map(|target| kinds(&backend::emit(&policy.program, target)));
        let all = if is_shown(folder) { &shown } else { &left_out };
        all.lock().expect("nobody panics with the lock").extend(kinds.into_iter().flatten());
        Ok(())
    });
    let [shown, left_out] = [shown, left_out].map(|kinds| kinds.into_inner().expect("nobody panics with the lock"));
    assert!(shown.contains("_parse") && shown.contains("before_rules") && shown.contains("_lookups"), "{shown:?}");
    let missing: Vec<&String> = left_out.difference(&shown).collect();
    assert!(missing.is_empty(), "no whole program shows {missing:?}");
}
