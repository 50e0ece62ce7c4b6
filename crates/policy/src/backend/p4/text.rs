//! Writes indented text of P4, with long lines broken at `&&` and `||`.

use crate::backend::c::writer;

/// Longest line, if it can be broken.
const COLUMNS: usize = 120;
const INDENT: &str = "    ";

/// The text so far.
#[derive(Default)]
pub(super) struct Text {
    text: String,
    depth: usize,
}

impl Text {
    pub(super) fn line(&mut self, line: &str) {
        let mut width = self.indent(0);
        let mut rest = line;
        while width + rest.chars().count() > COLUMNS {
            let fits = |&(at, _): &(usize, &str)| width + at + 2 <= COLUMNS;
            let mut breaks: Vec<(usize, &str)> = rest.match_indices(" && ").chain(rest.match_indices(" || ")).collect();
            breaks.sort_unstable();
            let Some((at, _)) = breaks.iter().rev().find(|found| fits(found)).or(breaks.first()) else { break };
            self.text.push_str(&rest[..at + 3]);
            self.text.push('\n');
            rest = &rest[at + 4..];
            width = self.indent(1);
        }
        self.text.push_str(rest);
        self.text.push('\n');
    }

    /// Starts a line. Returns its indentation.
    fn indent(&mut self, more: usize) -> usize {
        let depth = self.depth + more;
        self.text.extend(std::iter::repeat_n(INDENT, depth));
        depth * INDENT.len()
    }

    /// A comment, in which no character has a meaning.
    pub(super) fn note(&mut self, text: &str) {
        self.indent(0);
        self.text.push_str(&format!("// {}\n", writer::comment(text).replace(['\n', '\r'], " ")));
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Writes a line with an opening brace.
    pub(super) fn open(&mut self, line: &str) {
        self.line(&format!("{line} {{"));
        self.depth += 1;
    }

    /// Writes the head of a parser or control, with a line for each parameter.
    pub(super) fn block(&mut self, head: &str, parameters: &[&str]) {
        self.line(&format!("{head}("));
        self.depth += 1;
        for (index, parameter) in parameters.iter().enumerate() {
            let end = if index + 1 == parameters.len() { ")" } else { "," };
            self.line(&format!("{parameter}{end}"));
        }
        self.depth -= 1;
        self.line("{");
        self.depth += 1;
    }

    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    pub(super) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
