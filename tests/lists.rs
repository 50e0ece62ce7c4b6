//! No damage to a list file makes its table smaller without a message.
//!
//! Correct lists of every format (`lists/seeds.rs`) are damaged in typical ways (`lists/damage.rs`): line ends,
//! separators, encodings, truncation, compression, other formats. A counter that shares no code with the readers
//! (`lists/count.rs`) counts the entries of each damaged file. `weir check` must find the same number, or report an
//! error or a notice.

#[path = "lists/count.rs"]
mod count;
#[path = "lists/damage.rs"]
mod damage;
#[path = "lists/seeds.rs"]
mod seeds;

use damage::Damaged;
use seeds::{SEEDS, Seed};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use weir_loading::{LoadError, PolicyFile};
use weir_policy::pass::choose_layouts::CostModel;

/// The result of `weir check` for a list.
#[derive(Debug)]
enum Outcome {
    Refused,
    Taken { entries: u64, notices: Vec<String> },
}

/// The policy that reads the list of a seed.
fn policy(seed: &Seed, lenient: bool) -> String {
    let lenient = if lenient { " lenient" } else { "" };
    let field = seed.field.map(|field| format!(" field \"{field}\"")).unwrap_or_default();
    let header = if seed.kind.contains("ipv6") { "ip6" } else { "ip" };
    let file = format!("file \"{}\"{field}{lenient}", seed.file);
    let (table, rule) = match seed.kind {
        "limits" => (format!("limits t {{ {file} }}"), "ip saddr limit @t".to_owned()),
        kind => (format!("table t {{ type {kind}; {file} }}"), format!("{header} saddr @t drop")),
    };
    format!("{table}\nupstream {{ {rule}; accept }}\ndownstream {{ accept }}\n")
}

/// Reads the list like `weir check`, without a process.
fn check(folder: &Path) -> Outcome {
    let model = CostModel::default();
    match PolicyFile::open(&folder.join("p.weir")).and_then(|file| file.check(&model)) {
        Err(LoadError::Mistakes(rejected)) => {
            assert!(!rejected.lists.is_empty(), "the policy itself is right");
            Outcome::Refused
        }
        Err(error) => panic!("{error}"),
        Ok(policy) => {
            let text = policy.text().expect("it was read as text");
            let tables = text.checked.tables.iter().map(|table| table.facts.entries);
            let limits = text.checked.limits.iter().map(|list| list.facts.v4.entries + list.facts.v6.entries);
            Outcome::Taken { entries: tables.chain(limits).sum::<usize>() as u64, notices: text.notices.clone() }
        }
    }
}

/// Reads the list by running the program.
fn check_by_program(folder: &Path) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["check", "p.weir", "--quick", "--json"]).current_dir(folder).output();
    let output = output.expect("the program was built");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let texts = |name: &str| report[name].as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>();
    if report["valid"] == false {
        assert_eq!(output.status.code(), Some(2));
        return Outcome::Refused;
    }
    let of = |list: &str, names: &[&str]| -> u64 {
        let lists = report[list].as_array().into_iter().flatten();
        lists.flat_map(|list| names.iter().filter_map(move |name| list[name].as_u64())).sum()
    };
    Outcome::Taken { entries: of("tables", &["entries"]) + of("limits", &["ipv4", "ipv6"]), notices: texts("notices") }
}

/// The problem of an outcome, if it has another number of entries than the counter and no message.
fn silent(seed: &Seed, damaged: &Damaged, outcome: &Outcome) -> Option<String> {
    let Outcome::Taken { entries, notices } = outcome else { return None };
    let expected = seed.count(damaged);
    let is_reported = notices.iter().any(|notice| notice.contains(seed.file));
    let text = String::from_utf8_lossy(&damaged.bytes);
    let head: String = text.escape_debug().take(200).collect();
    (*entries != expected && !is_reported)
        .then(|| format!("{} with {}: {entries} entries, not {expected}: {head}", seed.name, damaged.how))
}

fn put(folder: &Path, seed: &Seed, bytes: &[u8], lenient: bool) {
    std::fs::write(folder.join(seed.file), bytes).expect("files can be written");
    std::fs::write(folder.join("p.weir"), policy(seed, lenient)).expect("files can be written");
}

/// Every third damaged list, half of them in lenient mode. With `WEIR_ALL_LISTS=1`, every list.
fn all() -> impl Iterator<Item = (&'static Seed, Damaged, bool)> {
    let step = if std::env::var_os("WEIR_ALL_LISTS").is_some() { 1 } else { 3 };
    let of_seed = |seed: &'static Seed| damage::all(seed).into_iter().map(move |damaged| (seed, damaged));
    let sample = SEEDS.iter().flat_map(of_seed).step_by(step).enumerate();
    sample.map(|(at, (seed, damaged))| (seed, damaged, at % 2 == 1))
}

/// Seeds are read completely and without notices, which the other tests rely on.
#[test]
fn seeds_are_counted_alike() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for seed in SEEDS {
        let whole = Damaged::whole(seed);
        put(folder.path(), seed, &whole.bytes, false);
        for outcome in [check(folder.path()), check_by_program(folder.path())] {
            let Outcome::Taken { entries, notices } = outcome else { panic!("{}: {outcome:?}", seed.name) };
            assert_eq!((entries, notices), (seed.count(&whole), vec![]), "{}", seed.name);
        }
    }
}

#[test]
fn no_damaged_list_is_smaller_in_silence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut tried, mut refused, mut offences) = (0, 0, Vec::new());
    for (seed, damaged, lenient) in all() {
        put(folder.path(), seed, &damaged.bytes, lenient);
        let outcome = check(folder.path());
        tried += 1;
        refused += usize::from(matches!(outcome, Outcome::Refused));
        let reading = if lenient { "lenient " } else { "" };
        offences.extend(silent(seed, &damaged, &outcome).map(|offence| format!("{reading}{offence}")));
    }
    eprintln!("{tried} damaged lists, {refused} refused, {} silently wrong", offences.len());
    assert!(tried > 2000 && refused > 500, "only {tried} damaged lists, {refused} refused");
    assert!(offences.is_empty(), "{} silently wrong:\n{}", offences.len(), offences.join("\n"));
}

/// Repeats a part of the previous test with the program itself.
#[test]
fn the_program_agrees() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut tried = 0;
    for (seed, damaged, lenient) in all().step_by(11) {
        put(folder.path(), seed, &damaged.bytes, lenient);
        let outcome = check_by_program(folder.path());
        assert_eq!(silent(seed, &damaged, &outcome), None);
        let alike = matches!(
            (&outcome, check(folder.path())),
            (Outcome::Refused, Outcome::Refused) | (Outcome::Taken { .. }, Outcome::Taken { .. })
        );
        assert!(alike, "{} with {}: {outcome:?}", seed.name, damaged.how);
        tried += 1;
    }
    assert!(tried > 200, "only {tried} damaged lists");
}
