//! Refuses phrases that make sentences hard to read, in comments of source files and in documents. `docs/prose.md` says
//! what to write instead. Code spans between backticks are not searched.

use crate::assert_none;
use crate::tree::{File, files};

/// Refused everywhere, in any case.
const ANYWHERE: &[&str] = &["of which", "of whom", "whoever"];
/// Refused at the start of a sentence: these pronouns stand before their noun, or without one.
const AT_START: &[&str] = &["The same,", "The same.", "The same for", "The same as", "That of", "Those of"];

const RULE: &str = "sentences are plain (docs/prose.md has the rules and what to write instead)";

/// Files with comments from `//` to the end of the line, and between `/*` and `*/`.
const SLASHES: &[&str] = &["rs", "c", "h", "sv"];
/// Files with comments from `#` to the end of the line.
const HASHES: &[&str] = &["sh", "py", "toml"];

/// Lines that belong together, joined by spaces: a sentence may continue in the next line.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// Offset of each line in `text`, and its number from 1.
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    fn push(&mut self, number: usize, line: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), number));
        self.text.push_str(line);
    }

    /// The refused phrases in their order, with the numbers of their lines.
    fn refused(&self) -> Vec<(usize, &'static str)> {
        let prose = without_code(&self.text);
        let lower = prose.to_ascii_lowercase();
        let anywhere = ANYWHERE.iter().flat_map(|phrase| lower.match_indices(phrase).map(move |(at, _)| (at, *phrase)));
        let at_start = AT_START.iter().flat_map(|phrase| prose.match_indices(phrase).map(move |(at, _)| (at, *phrase)));
        let at_start = at_start.filter(|(at, _)| starts_sentence(&prose[..*at]));
        let whole = |(at, phrase): &(usize, &str)| is_whole(&prose, *at, phrase);
        let number =
            |at: usize| self.lines.iter().rev().find(|(start, _)| *start <= at).map_or(0, |(_, number)| *number);
        let mut found: Vec<(usize, &str)> = anywhere.chain(at_start).filter(whole).collect();
        found.sort_unstable();
        found.into_iter().map(|(at, phrase)| (number(at), phrase)).collect()
    }
}

/// The text with spaces in place of the bytes between backticks.
fn without_code(text: &str) -> String {
    let blank = |(at, part): (usize, &str)| if at % 2 == 1 { " ".repeat(part.len()) } else { part.to_owned() };
    text.split('`').enumerate().map(blank).collect::<Vec<_>>().join("`")
}

/// Whether a sentence starts behind this text: at the start of a paragraph or table cell, or behind a full stop.
fn starts_sentence(before: &str) -> bool {
    before.trim_end_matches([' ', '*']).chars().next_back().is_none_or(|last| ".!?|".contains(last))
}

/// Whether no letter or digit touches the phrase.
fn is_whole(text: &str, at: usize, phrase: &str) -> bool {
    let touches = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let end = at + phrase.len();
    !touches(text[..at].chars().next_back()) && (phrase.ends_with([',', '.']) || !touches(text[end..].chars().next()))
}

/// The comments of a source file by paragraph. A comment behind code, and an empty line, begin a new one.
fn comments(file: &File) -> Vec<Paragraph> {
    let slashes = SLASHES.contains(&file.extension());
    let mut paragraphs = vec![Paragraph::default()];
    let (mut in_block, mut was_alone) = (false, false);
    for (at, line) in file.text.lines().enumerate() {
        let continues = in_block;
        let start = match slashes {
            _ if in_block => Some(0),
            true => comment_start(line),
            false => line.find('#').filter(|at| line[..*at].trim().is_empty()),
        };
        let Some(start) = start else {
            was_alone = false;
            paragraphs.push(Paragraph::default());
            continue;
        };
        let comment = &line[start..];
        in_block = slashes && (in_block || comment.starts_with("/*")) && !comment.contains("*/");
        let is_alone = line[..start].trim().is_empty();
        let text = comment.split("*/").next().unwrap_or(comment).trim_start();
        let text = text.trim_start_matches(if slashes { ['/', '*', '!'] } else { ['#', '!', ' '] }).trim();
        if !(continues || is_alone && was_alone) || text.is_empty() {
            paragraphs.push(Paragraph::default());
        }
        // A heading of a documentation comment is a paragraph.
        was_alone = is_alone && !text.starts_with("# ");
        if let Some(paragraph) = paragraphs.last_mut().filter(|_| !text.is_empty()) {
            paragraph.push(at + 1, text);
        }
    }
    paragraphs
}

/// Where a comment starts in a line that starts outside of comments. Marks in string literals do not start one.
fn comment_start(line: &str) -> Option<usize> {
    let marks = line.match_indices("//").chain(line.match_indices("/*")).map(|(at, _)| at);
    let quotes = |text: &str| text.matches('"').count() - text.matches("\\\"").count();
    marks.filter(|at| quotes(&line[..*at]).is_multiple_of(2)).min()
}

/// The prose of a document by paragraph, without fenced blocks. Headings, list items and table rows begin a new one.
fn prose(file: &File) -> Vec<Paragraph> {
    let mut paragraphs = vec![Paragraph::default()];
    let mut fenced = false;
    for (at, line) in file.text.lines().enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if line.is_empty() || is_fence || line.starts_with(['|', '#', '-', '*', '>']) || item.len() < line.len() {
            paragraphs.push(Paragraph::default());
        }
        if let Some(paragraph) = paragraphs.last_mut().filter(|_| !fenced && !is_fence && !line.is_empty()) {
            let text = line.strip_prefix(['-', '*', '>']).unwrap_or(item).trim_start();
            paragraph.push(at + 1, text);
        }
    }
    paragraphs
}

/// `path:line: phrase` for each refused phrase.
fn offences(files: &[File], paragraphs: fn(&File) -> Vec<Paragraph>) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        let refused = paragraphs(file).into_iter().flat_map(|paragraph| paragraph.refused());
        offences.extend(refused.map(|(line, phrase)| format!("{}:{line}: \"{phrase}\"", file.path)));
    }
    offences
}

#[test]
fn comments_are_plain() {
    assert_none(offences(&files(&[SLASHES, HASHES].concat()), comments), RULE);
}

#[test]
fn documents_are_plain() {
    let mut documents = files(&["md"]);
    documents.retain(|file| file.path.starts_with("docs/") || ["README.md", "CHANGELOG.md"].contains(&&*file.path));
    assert_none(offences(&documents, prose), RULE);
}

#[test]
fn phrases_are_found_across_lines_and_only_in_prose() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    // One line a literal, so that the test does not take them for comments of its own.
    let rust = [
        "/// Packets, of",
        "/// which some pass. `Whoever` asks.",
        "let a = \"// whoever\"; // Those of b.",
        "/// # Errors",
        "/// Those of c.",
        "//! The same as",
        "//! before. Neither the same nor those of others.",
    ];
    let c = "/*\n * Fine. The same\n * for IPv6.\n */\nenum { A, /* the first of two,\n\t  whoever asks */ };\n";
    let document = "- That of `a`.\n- It is that of `a`.\n\n```\nwhoever\n```\n| a | The same, for b |\n";
    let found = [
        offences(&[file("a.rs", &rust.join("\n"))], comments),
        offences(&[file("a.h", c)], comments),
        offences(&[file("a.md", document)], prose),
    ];
    let expected = [
        "a.rs:1: \"of which\"",
        "a.rs:3: \"Those of\"",
        "a.rs:5: \"Those of\"",
        "a.rs:6: \"The same as\"",
        "a.h:2: \"The same for\"",
        "a.h:6: \"whoever\"",
        "a.md:1: \"That of\"",
        "a.md:7: \"The same,\"",
    ];
    assert_eq!(found.concat(), expected);
}
