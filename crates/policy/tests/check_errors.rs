//! Policies with errors or warnings, and their exact messages: `tests/errors/NAME.weir` and `NAME.txt`.
//!
//! `WEIR_BLESS=1 cargo test -p weir-policy` writes the messages. Read them as a user would before committing.

mod check_support;

use check_support::{Directory, front, root};
use std::collections::BTreeSet;
use std::fs;
use weir_policy::diag::render::{Style, render};

#[test]
fn messages_are_these_to_the_letter() {
    let directory = root().join("tests/errors");
    let bless = std::env::var_os("WEIR_BLESS").is_some();
    let mut wrong = Vec::new();
    let mut cases = 0;
    for entry in fs::read_dir(&directory).expect("tests/errors exists") {
        let path = entry.expect("tests/errors can be read").path();
        if path.extension().is_none_or(|extension| extension != "weir") {
            continue;
        }
        cases += 1;
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("the case can be read");
        let (sources, _, checked) = front(&name, &text, &Directory(directory.clone()));
        let diagnostics = checked.map_or_else(|errors| errors, |checked| checked.warnings);
        let rendered = render(&diagnostics, &sources, Style::Plain);
        let rendered: String = rendered.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        let expected = path.with_extension("txt");
        if bless {
            fs::write(&expected, rendered).expect("the messages can be written");
        } else if fs::read_to_string(&expected).unwrap_or_default() != rendered {
            wrong.push(format!("{name}:\n{rendered}"));
        }
    }
    assert!(cases >= 40, "only {cases} cases");
    assert!(wrong.is_empty(), "messages differ (WEIR_BLESS=1 takes them):\n{}", wrong.join("\n"));
}

/// Every code has a case and an entry in the manual.
#[test]
fn every_code_is_tried_and_explained() {
    if std::env::var_os("WEIR_BLESS").is_some() {
        return; // The messages are being written.
    }
    let mut codes = BTreeSet::new();
    let mut directories = vec![root().join("crates/policy/src/syntax"), root().join("crates/policy/src/check")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("the sources are there") {
            let path = entry.expect("the sources can be read").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("the sources can be read");
            let quoted = text.split('"').filter(|part| part.len() == 5 && part.starts_with(['E', 'W']));
            codes.extend(quoted.filter(|part| part[1..].bytes().all(|b| b.is_ascii_digit())).map(str::to_owned));
        }
    }
    assert!(codes.len() > 40, "{codes:?}");
    let mut messages = String::new();
    for entry in fs::read_dir(root().join("tests/errors")).expect("tests/errors exists") {
        let path = entry.expect("tests/errors can be read").path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            messages += &fs::read_to_string(path).expect("the messages can be read");
        }
    }
    let manual =
        fs::read_to_string(root().join("docs/reference/language.md")).expect("docs/reference/language.md exists");
    let untried: Vec<_> = codes.iter().filter(|code| !messages.contains(&format!("[{code}]"))).collect();
    let unexplained: Vec<_> = codes.iter().filter(|code| !manual.contains(&format!("`{code}`"))).collect();
    assert!(untried.is_empty(), "no case in tests/errors for {untried:?}");
    assert!(unexplained.is_empty(), "docs/reference/language.md does not explain {unexplained:?}");
}
