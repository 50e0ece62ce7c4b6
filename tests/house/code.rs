//! Code style: sizes, names, no unfinished code, and `unsafe` only in named crates.

use crate::assert_none;
use crate::tree::{File, files, paths, words};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const CODE: &[&str] = &["rs", "c", "h", "sh", "sv", "py"];
const NAMELESS: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc", "manager"];
/// Split, so that this file does not match itself.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// `lab/instruments` calls compiled lookups outside of policies, writes memory that programs in the kernel read, and times
/// instructions. No product uses it.
const UNSAFE_CRATES: &[&str] =
    &["crates/abi/", "crates/tables/", "crates/state/", "crates/engine/", "lab/instruments/"];
const EXCUSE: &str = "Long: ";

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for file in files(CODE) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX && !file.text.lines().next().is_some_and(|line| line.contains(EXCUSE)) {
            long.push(format!("{}: {lines} lines", file.path));
        }
    }
    assert_none(long, "files have at most 500 lines, or say `Long: <why>` in the first");
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for file in files(&["rs", "c", "h"]) {
        let functions = if file.extension() == "rs" { rust_functions(&file) } else { c_functions(&file) };
        for function in functions.into_iter().filter(|f| f.lines > FUNCTION_LINES_MAX && !f.excused) {
            long.push(format!("{}:{}: {} lines", file.path, function.line, function.lines));
        }
    }
    assert_none(long, "functions have at most 70 lines, or say `Long: <why>` in the comment above");
}

struct Function {
    /// Line number of its signature, from 1.
    line: usize,
    lines: usize,
    excused: bool,
}

/// The functions of a formatted Rust file: from the line with `fn` to the closing brace with the same indentation.
fn rust_functions(file: &File) -> Vec<Function> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let qualifiers = code.split("fn ").next().unwrap_or("").split_whitespace();
        let known =
            |word: &str| word.starts_with("pub") || ["const", "async", "unsafe", "extern", "\"C\""].contains(&word);
        if !code.contains("fn ") || !qualifiers.map(|word| word.trim_end_matches(')')).all(known) {
            continue;
        }
        // Declarations have no body. Functions that end on their first line are short.
        let body = lines[at..].iter().find(|line| line.ends_with(['{', '}', ';']));
        if line.ends_with('}') || !body.is_some_and(|line| line.ends_with('{')) {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let count = lines[at..].iter().position(|line| *line == end).map_or(1, |length| length + 1);
        functions.push(Function { line: at + 1, lines: count, excused: excused(&lines[..at]) });
    }
    functions
}

/// C functions in kernel style: a `{` alone in the first column starts one, the next `}` there ends it.
fn c_functions(file: &File) -> Vec<Function> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut functions = Vec::new();
    for (open, _) in lines.iter().enumerate().filter(|(_, line)| **line == "{") {
        let length = lines[open..].iter().position(|line| *line == "}").unwrap_or(0);
        let start =
            lines[..open].iter().rposition(|line| line.is_empty() || line.ends_with("*/")).map_or(0, |at| at + 1);
        functions.push(Function {
            line: start + 1,
            lines: open + length + 1 - start,
            excused: excused(&lines[..start]),
        });
    }
    functions
}

/// Whether the comment and attributes that end here contain an excuse.
fn excused(above: &[&str]) -> bool {
    let comment = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("//") || line.starts_with("#[") || line.starts_with('*') || line.starts_with("/*")
    };
    above.iter().rev().take_while(comment).any(|line| line.contains(EXCUSE))
}

#[test]
fn a_file_is_named_for_its_one_thing() {
    let nameless = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or(path);
        NAMELESS.contains(&name.split('.').next().unwrap_or(name))
    };
    assert_none(paths().into_iter().filter(nameless).collect(), "files and folders are named for what they hold");
}

#[test]
fn nothing_is_left_unfinished() {
    let mut found = Vec::new();
    for file in files(&["rs", "c", "h", "sh", "sv", "py", "toml", "md", "weir"]) {
        for (at, line) in file.text.lines().enumerate() {
            if words(line).any(|word| UNFINISHED.contains(&word)) {
                found.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    assert_none(found, "what is to be done is an issue, not a comment");
}

#[test]
fn unsafe_code_lives_in_named_crates() {
    let mut found = Vec::new();
    let outside = |file: &File| !UNSAFE_CRATES.iter().any(|folder| file.path.starts_with(folder));
    for file in files(&["rs"]).into_iter().filter(outside) {
        for (at, line) in file.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            // The word may occur in strings.
            let code: String = code.split('"').step_by(2).collect();
            if words(&code).any(|word| word == "unsafe") {
                found.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
        let root = ["/src/lib.rs", "/src/main.rs"].iter().any(|name| file.path.ends_with(name));
        if root && !file.text.contains("#![forbid(unsafe_code)]") {
            found.push(format!("{}: does not forbid it", file.path));
        }
    }
    assert_none(found, "unsafe code lives in abi, tables, state, engine and lab/instruments");
}
