//! The definitions, imports and mentions in the files of a crate, read from their text.
//!
//! A small lexer, not a compiler: it handles comments, literals, `use` trees, `mod` and the names of top-level items,
//! but not methods and macros. Code under `#[cfg(test)]` is ignored.

use crate::tree::File;
use std::collections::BTreeSet;

/// A name that a `use` statement imports.
#[derive(Clone, Debug)]
pub struct Import {
    /// The local name; `*` imports all names.
    pub name: String,
    pub path: Vec<String>,
    /// Whether it is `pub use`, `pub(crate) use` or similar.
    pub is_public: bool,
    pub line: usize,
}

/// A path in code, outside of `use` statements.
#[derive(Clone, Debug)]
pub struct Mention {
    pub path: Vec<String>,
    pub line: usize,
    /// Whether it is a call, or a name that no variable can have.
    pub is_item: bool,
}

/// The contents of a file.
#[derive(Debug, Default)]
pub struct Module {
    pub defines: BTreeSet<String>,
    /// Child modules in their own files.
    pub children: BTreeSet<String>,
    pub imports: Vec<Import>,
    pub mentions: Vec<Mention>,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

const ITEMS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];
const QUALIFIERS: [&str; 5] = ["fn", "mut", "unsafe", "async", "extern"];

impl Module {
    pub fn of(file: &File) -> Self {
        let tokens = without_tests(&tokens(&file.text));
        let mut module = Module::default();
        // The brace depth, and the depths at which inline modules started.
        let (mut depth, mut inline, mut is_public, mut at) = (0usize, Vec::new(), false, 0);
        while at < tokens.len() {
            let Token { text, line } = tokens[at];
            let next = |by: usize| tokens.get(at + by).map_or("", |token| token.text);
            match text {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inline.pop_if(|begun| *begun == depth);
                }
                "mod" if next(2) == ";" => _ = module.children.insert(next(1).to_owned()),
                "mod" if next(2) == "{" => inline.push(depth),
                "pub" => is_public = true,
                // Lifetimes that a type captures: `impl Iterator + use<>`.
                "use" if next(1) == "<" => {}
                "use" => {
                    let end =
                        tokens[at..].iter().position(|token| token.text == ";").map_or(tokens.len(), |end| at + end);
                    let mut paths = Vec::new();
                    trees(&tokens[at + 1..end], &[], &mut paths);
                    for (name, path) in paths {
                        let path = outside(path, inline.len());
                        module.imports.push(Import { name, path, is_public, line });
                    }
                    at = end;
                }
                _ if is_name(text) && (at == 0 || tokens[at - 1].text != ".") => {
                    let previous = if at == 0 { "" } else { tokens[at - 1].text };
                    let is_static = previous == "mut" && at >= 2 && tokens[at - 2].text == "static";
                    if depth == 0 && (is_static || ITEMS.contains(&previous) && !QUALIFIERS.contains(&text)) {
                        module.defines.insert(text.to_owned());
                    } else {
                        let (path, end) = path_from(&tokens, at);
                        let after = tokens.get(end).map_or("", |token| token.text);
                        let is_item = path.len() > 1 || after == "(" || text.starts_with(|c: char| c.is_uppercase());
                        at = end - 1;
                        module.mentions.push(Mention { path: outside(path, inline.len()), line, is_item });
                    }
                }
                _ => {}
            }
            if matches!(text, ";" | "}" | "{" | "use") {
                is_public = false;
            }
            at += 1;
        }
        module
    }
}

/// The path as written outside of `inline` inline modules. One `super` leaves one of them.
fn outside(path: Vec<String>, inline: usize) -> Vec<String> {
    let supers = path.iter().take_while(|segment| *segment == "super").count();
    if supers == 0 || inline == 0 {
        return path;
    }
    let rest = path[supers.min(inline)..].to_vec();
    if supers > inline { rest } else { [vec!["self".to_owned()], rest].concat() }
}

/// The path `a::b::c` that starts at `start`, and its end.
fn path_from(tokens: &[Token<'_>], start: usize) -> (Vec<String>, usize) {
    let mut path = vec![tokens[start].text.to_owned()];
    let mut at = start + 1;
    while let [colons, name, ..] = &tokens[at..]
        && colons.text == "::"
        && is_name(name.text)
    {
        path.push(name.text.to_owned());
        at += 2;
    }
    (path, at)
}

/// The names and paths of a `use` tree.
fn trees(tokens: &[Token<'_>], before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let mut path = before.to_vec();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].text {
            "::" => {}
            "{" => {
                for part in branches(&tokens[at + 1..tokens.len() - 1]) {
                    trees(part, &path, found);
                }
                return;
            }
            "*" => return found.push(("*".to_owned(), path)),
            "as" => {
                let name = tokens.get(at + 1).map_or("_", |token| token.text);
                return found.push((name.to_owned(), path));
            }
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    if let Some(name) = path.last() {
        found.push((name.clone(), path.clone()));
    }
}

/// The parts between commas outside of braces.
fn branches<'a, 'b>(tokens: &'a [Token<'b>]) -> Vec<&'a [Token<'b>]> {
    let mut depth = 0usize;
    let parts = tokens.split(|token| {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        depth == 0 && token.text == ","
    });
    parts.filter(|part| !part.is_empty()).collect()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The tokens without items under `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is = |from: usize, words: &[&str]| {
            tokens[from..].iter().map(|token| token.text).take(words.len()).eq(words.iter().copied())
        };
        if is(at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
            at = end_of_item(tokens, at + 7);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The end of the item that starts at `start`: after its semicolon or its braces.
fn end_of_item(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && token.text == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Names, `::` and single characters, without comments, literals and lifetimes.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = literal(rest).unwrap_or_else(|| {
            let length = match first {
                _ if first.is_alphanumeric() || first == '_' => {
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
                }
                _ if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            if !first.is_whitespace() {
                tokens.push(Token { text: &rest[..length], line });
            }
            length
        });
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// The length of the comment, string, character or lifetime at the start of `rest`.
fn literal(rest: &str) -> Option<usize> {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(until("*/", 2));
    }
    let prefix = rest.find(|c: char| !matches!(c, 'b' | 'c' | 'r')).filter(|&length| length <= 2)?;
    let (is_raw, quoted) = (rest[..prefix].ends_with('r'), &rest[prefix..]);
    let hashes = quoted.len() - quoted.trim_start_matches('#').len();
    if is_raw && quoted[hashes..].starts_with('"') {
        return Some(until(&format!("\"{}", "#".repeat(hashes)), prefix + hashes + 1));
    }
    let escaped = |quote: char| {
        let mut characters = quoted.char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            if c == '\\' {
                characters.next();
            } else if c == quote {
                return prefix + at + 1;
            }
        }
        rest.len()
    };
    if !is_raw && quoted.starts_with('"') {
        return Some(escaped('"'));
    }
    let after: Vec<char> = quoted.chars().take(3).collect();
    match after[..] {
        ['\'', '\\', ..] | ['\'', _, '\''] => Some(escaped('\'')),
        ['\'', ..] if prefix == 0 => {
            Some(rest[1..].find(|c: char| !c.is_alphanumeric() && c != '_').map_or(rest.len(), |at| at + 1))
        }
        _ => None,
    }
}

#[test]
fn files_are_read_as_they_mean() {
    let text = r##"
// use crate::comment::A;
mod child;
pub(crate) use child::{Part, deep::{self, Other as Mine}};
use super::sibling::*;
const TEXT: &str = "use crate::text::B; {";
const RAW: &str = r#"mod raw { "#;
static mut COUNT: u32 = 0;
pub const fn own<'a>(c: char) -> bool { c == '{' || other::call(c) }
mod inline { use super::own; use super::super::above; }
#[cfg(test)]
mod tests { use crate::tests_only::C; }
fn last(own: u32) { let x = Part::new(own).field; }
"##;
    let module = Module::of(&File { path: "a.rs".into(), text: text.into() });
    assert_eq!(module.defines.iter().map(String::as_str).collect::<Vec<_>>(), ["COUNT", "RAW", "TEXT", "last", "own"]);
    assert_eq!(module.children.iter().map(String::as_str).collect::<Vec<_>>(), ["child"]);
    let imports: Vec<(&str, String, bool)> =
        module.imports.iter().map(|import| (import.name.as_str(), import.path.join("::"), import.is_public)).collect();
    let expected = [
        ("Part", "child::Part", true),
        ("deep", "child::deep", true),
        ("Mine", "child::deep::Other", true),
        ("*", "super::sibling", false),
        ("own", "self::own", false),
        ("above", "super::above", false),
    ];
    assert_eq!(imports, expected.map(|(name, path, is_public)| (name, path.to_owned(), is_public)));
    let mentioned = |path: &str| module.mentions.iter().any(|mention| mention.path.join("::") == path);
    assert!(mentioned("other::call") && mentioned("Part::new") && !mentioned("field") && !mentioned("raw"));
}
