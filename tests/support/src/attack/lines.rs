//! The lines of attack files in the order in which they happen: loops are repeated, abbreviations are written out, and
//! each line has its time.

use super::expectation::nanoseconds;
use super::expression::{Names, filled, is_name};
use std::collections::HashMap;

/// A line that happens.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// When it happens, ns from the beginning.
    pub time_ns: u64,
    /// What it says, without the time.
    pub text: String,
}

/// Lines of all loops of a file. A mistake in a range is found before memory ends.
const LINES_MAX: usize = 200_000;

/// What was written: a line, or a loop around others.
enum Node {
    Line(usize, String),
    Loop(Loop),
}

struct Loop {
    number: usize,
    name: String,
    from: i128,
    to: i128,
    every_ns: Option<u64>,
    body: Vec<Node>,
}

/// The lines of a text that begins with a line number, in the order of their times. Errors begin with the line.
pub fn happening(written: &[(usize, String)]) -> Result<Vec<Line>, String> {
    let mut rest = written.iter();
    let nodes = nodes(&mut rest, None)?;
    let mut unrolled = Unrolled { lines: Vec::new(), names: Vec::new(), now_ns: 0 };
    unrolled.run(&nodes)?;
    unrolled.lines.sort_by_key(|line| line.time_ns);
    Ok(unrolled.lines)
}

/// The lines up to the `end` of a loop, or up to the end of the file.
fn nodes(rest: &mut std::slice::Iter<'_, (usize, String)>, of_loop: Option<usize>) -> Result<Vec<Node>, String> {
    let mut nodes = Vec::new();
    while let Some((number, text)) = rest.next() {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("each", range) => {
                let head = head(*number, range).map_err(|error| format!("line {number}: {error}"))?;
                nodes.push(Node::Loop(Loop { body: self::nodes(rest, Some(*number))?, ..head }));
            }
            ("end", "") if of_loop.is_some() => return Ok(nodes),
            ("end", "") => return Err(format!("line {number}: `end` without `each`")),
            _ => nodes.push(Node::Line(*number, text.clone())),
        }
    }
    match of_loop {
        None => Ok(nodes),
        Some(number) => Err(format!("line {number}: `each` has no `end`")),
    }
}

/// `[NAME =] A-B [every TIME]`
fn head(number: usize, text: &str) -> Result<Loop, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, words) = match words.as_slice() {
        [name, "=", rest @ ..] if name.chars().all(is_name) => ((*name).to_owned(), rest),
        rest => (String::new(), rest),
    };
    let (range, every_ns) = match words {
        [range] => (range, None),
        [range, "every", time] => (range, Some(nanoseconds(time)?)),
        _ => return Err(format!("`{text}` is no range such as `1-9` or `n = 1-9 every 20ms`")),
    };
    let ends = range.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to) = ends.filter(|(from, to)| from <= to).ok_or_else(|| format!("`{range}` is no range"))?;
    Ok(Loop { number, name, from, to, every_ns, body: Vec::new() })
}

struct Unrolled {
    lines: Vec<Line>,
    names: Names,
    now_ns: u64,
}

impl Unrolled {
    fn run(&mut self, nodes: &[Node]) -> Result<(), String> {
        for node in nodes {
            match node {
                Node::Line(number, text) => {
                    self.line(*number, text).map_err(|error| format!("line {number}: {error}"))?;
                }
                Node::Loop(repeated) => self.repeat(repeated)?,
            }
        }
        Ok(())
    }

    fn repeat(&mut self, repeated: &Loop) -> Result<(), String> {
        let (mut next_ns, before) = (self.now_ns, self.lines.len());
        for value in repeated.from..=repeated.to {
            self.names.push((repeated.name.clone(), value));
            self.run(&repeated.body)?;
            self.names.pop();
            if let Some(every_ns) = repeated.every_ns {
                next_ns += every_ns;
                self.now_ns = next_ns;
            }
        }
        match self.lines.len() > before {
            true => Ok(()),
            false => Err(format!("line {}: the loop has no packets", repeated.number)),
        }
    }

    fn line(&mut self, number: usize, text: &str) -> Result<(), String> {
        let text = filled(text, &self.names)?;
        if let Some(time) = text.strip_prefix("at ") {
            self.now_ns = nanoseconds(time.trim())?;
            return Ok(());
        }
        let text = match text.strip_prefix('+') {
            None => text.as_str(),
            Some(delayed) => {
                let (time, rest) = delayed.split_once(' ').unwrap_or((delayed, ""));
                self.now_ns += nanoseconds(&format!("{time}s"))?;
                rest.trim()
            }
        };
        if text.is_empty() {
            return Ok(());
        }
        if self.lines.len() == LINES_MAX {
            return Err(format!("more than {LINES_MAX} packets"));
        }
        self.lines.push(Line { number, time_ns: self.now_ns, text: text.to_owned() });
        Ok(())
    }
}

/// Abbreviations: `let NAME TEXT`. `$NAME` stands for the text, which may have abbreviations of its own.
#[derive(Default)]
pub struct Abbreviations(HashMap<String, String>);

impl Abbreviations {
    /// Takes the words behind `let`.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, content) = text.split_once(char::is_whitespace).ok_or("`let` has a name and a text")?;
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(format!("`{name}` is no name: small letters and `_`"));
        }
        let content = self.written_out(content.trim());
        match self.0.insert(name.to_owned(), content) {
            None => Ok(()),
            Some(_) => Err(format!("`{name}` has two meanings")),
        }
    }

    /// A text with all abbreviations written out.
    pub fn written_out(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            let end = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
            let (name, tail) = after.split_at(end);
            out += before;
            match self.0.get(name) {
                Some(content) => out += content,
                None => out.extend(["$", name]),
            }
            rest = tail;
        }
        out + rest
    }
}
