//! Everything that the documents name exists.

use crate::assert_none;
use crate::tree::{File, files, paths, root};

/// Names with these extensions are files of this repository, with or without their folder.
const SOURCES: &[&str] = &["rs", "h", "c", "sh", "toml", "md", "sv"];

/// README.md and docs/ without decisions, which describe the past.
fn documents() -> Vec<File> {
    let mut documents = files(&["md"]);
    documents.retain(|file| {
        file.path == "README.md" || (file.path.starts_with("docs/") && !file.path.starts_with("docs/decisions/"))
    });
    documents
}

/// The text between single backticks, outside of fenced blocks.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2).map(|span| (at + 1, span)));
        }
    }
    spans
}

/// The part of a span that is a path: `crates` for `crates/*/src`. None if it is not a path.
fn claimed_path(span: &str) -> Option<&str> {
    let end = span.find(['*', '<', '{']).map_or(span.len(), |at| span[..at].rfind('/').map_or(0, |slash| slash + 1));
    let path = span[..end].trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    (!path.is_empty() && !path.starts_with('/') && path.chars().all(plain)).then_some(path)
}

#[test]
fn every_path_in_backticks_exists() {
    let known = paths();
    let folders: Vec<&String> = known.iter().filter(|path| !path.contains('/')).collect();
    let mut missing = Vec::new();
    for document in documents() {
        for (line, span) in code_spans(&document.text) {
            let Some(path) = claimed_path(span) else { continue };
            let first = path.split('/').next().unwrap_or(path);
            let below = span.contains('/') && folders.iter().any(|folder| *folder == first);
            let source = path.rsplit_once('.').is_some_and(|(stem, e)| !stem.is_empty() && SOURCES.contains(&e));
            let suffix = format!("/{path}");
            let exists = known.iter().any(|known| *known == path || (source && known.ends_with(&suffix)));
            if (below || source) && !exists {
                missing.push(format!("{}:{line}: {span}", document.path));
            }
        }
    }
    assert_none(missing, "documents name what exists");
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut missing = Vec::new();
    for document in documents() {
        for (at, line) in document.text.lines().enumerate() {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = target.split('#').next().unwrap_or(target);
                let folder = root().join(&document.path);
                let folder = folder.parent().expect("a document lies in a folder");
                if !target.contains("://") && !path.is_empty() && !folder.join(path).exists() {
                    missing.push(format!("{}:{}: {target}", document.path, at + 1));
                }
            }
        }
    }
    assert_none(missing, "links lead to what exists");
}

#[test]
fn make_targets_in_documents_exist() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("there is a Makefile");
    let mut missing = Vec::new();
    for document in documents() {
        for (line, span) in code_spans(&document.text) {
            if let Some(target) = span.strip_prefix("make ").and_then(|rest| rest.split_whitespace().next())
                && !makefile.lines().any(|rule| rule.starts_with(&format!("{target}:")))
            {
                missing.push(format!("{}:{line}: {span}", document.path));
            }
        }
    }
    assert_none(missing, "documents name make targets that exist");
}

/// Error codes like `"E0601"` in the sources of the program, without tests.
#[test]
fn every_code_is_documented() {
    let manual = std::fs::read_to_string(root().join("docs/reference/language.md")).expect("there is a manual");
    let mut codes = std::collections::BTreeSet::new();
    for file in files(&["rs"]) {
        if !file.path.starts_with("crates/") || file.path.contains("/tests") {
            continue;
        }
        let quoted = file.text.split('"').filter(|part| part.len() == 5 && part.starts_with(['E', 'W']));
        codes.extend(quoted.filter(|part| part[1..].bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned));
    }
    assert!(codes.len() > 50 && codes.contains("E0601"), "{codes:?}");
    let missing = codes.into_iter().filter(|code| !manual.contains(&format!("| `{code}` |"))).collect();
    assert_none(missing, "docs/reference/language.md explains every code");
}

/// Longest line of prose. Tables and code may be longer.
const LINE_MAX: usize = 120;

#[test]
fn prose_wraps() {
    let mut long = Vec::new();
    for document in files(&["md"]) {
        let mut fenced = false;
        for (at, line) in document.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if !fenced && !line.starts_with('|') && line.chars().count() > LINE_MAX {
                long.push(format!("{}:{}", document.path, at + 1));
            }
        }
    }
    assert_none(long, "lines of documents have at most 120 characters");
}
