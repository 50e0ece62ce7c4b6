//! The headers of the datapath, which are part of this program.
//!
//! A compilation gets one file: the source, with the text of each header that it includes, directly or through others.
//! Making and removing a file for each of them would take as long as parsing them.

use std::fmt::Write;

mod all {
    include!(concat!(env!("OUT_DIR"), "/headers.rs"));
}

/// The path in `#include`, and the text.
type Header<'a> = (&'a str, &'a str);

/// What precedes the path of a header of the datapath.
const INCLUDE: &str = "#include \"";

/// The flags of line markers: a file that is included begins, and the one that includes it continues.
const ENTER: u32 = 1;
const LEAVE: u32 = 2;

/// The text of a source, called `name` in messages, with its headers: those of the datapath and `others`. Headers of
/// other folders are left to the compiler.
pub(super) fn inlined(name: &str, source: &str, others: &[Header<'_>]) -> String {
    let mut inliner = Inliner { others, text: String::new(), open: Vec::new(), known: Vec::new() };
    let _infallible = writeln!(inliner.text, "# 1 \"{name}\"");
    inliner.add(name, source, false);
    inliner.text
}

/// Replaces `#include` by texts.
struct Inliner<'a> {
    others: &'a [Header<'a>],
    text: String,
    /// The headers around the current line.
    open: Vec<&'a str>,
    /// The headers whose text every compilation reads.
    known: Vec<&'a str>,
}

impl<'a> Inliner<'a> {
    /// Adds a text line by line. If a condition encloses it, its headers may not be read, so they are added again where
    /// they are included next. Their guards keep compilers from reading them twice.
    fn add(&mut self, name: &str, text: &'a str, is_conditional: bool) {
        let mut depth = 0;
        for (index, line) in text.lines().enumerate() {
            let directive = line.trim_start();
            if directive.starts_with("#if") {
                depth += 1;
            } else if directive.starts_with("#endif") {
                depth -= 1;
            }
            let header = directive.strip_prefix(INCLUDE).and_then(|rest| self.find(rest.split('"').next()?));
            let Some((header, of_header)) = header else {
                self.text.push_str(line);
                self.text.push('\n');
                continue;
            };
            if self.known.contains(&header) || self.open.contains(&header) {
                self.text.push('\n');
                continue;
            }
            let is_conditional = is_conditional || depth > usize::from(has_guard(text));
            if !is_conditional {
                self.known.push(header);
            }
            self.open.push(header);
            let _infallible = writeln!(self.text, "# 1 \"{header}\" {ENTER}");
            self.add(header, of_header, is_conditional);
            let _infallible = writeln!(self.text, "# {} \"{name}\" {LEAVE}", index + 2);
            self.open.pop();
        }
    }

    /// The header with a path.
    fn find(&self, path: &str) -> Option<Header<'a>> {
        self.others.iter().chain(all::HEADERS).find(|(header, _)| *header == path).copied()
    }
}

/// Whether the first condition of a text encloses all of it: `#ifndef` and, in the next line, `#define`.
fn has_guard(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("#if"));
    let guard = lines.next().and_then(|line| line.strip_prefix("#ifndef "));
    guard.is_some() && guard == lines.next().and_then(|line| line.strip_prefix("#define "))
}

#[cfg(test)]
mod tests {
    use super::{all, has_guard, inlined};

    /// How often a text has the definition of a header.
    fn count(text: &str, guard: &str) -> usize {
        text.matches(&format!("#define {guard}\n")).count()
    }

    #[test]
    fn each_header_is_there_once() {
        let text =
            inlined("a.c", "#include <stdint.h>\n\t#include \"core/env.h\"\n#include \"core/env.h\"\nint a;\n", &[]);
        assert_eq!(count(&text, "WEIR_CORE_ENV_H"), 1);
        assert!(text.starts_with("# 1 \"a.c\"\n#include <stdint.h>\n# 1 \"core/env.h\" 1\n"), "{text}");
        assert!(text.ends_with("# 3 \"a.c\" 2\n\nint a;\n"), "{text}");
        let of_folder = inlined("a.c", "#include \"scheme/a.h\"\n", &[("scheme/a.h", "#include \"core/env.h\"\n")]);
        assert_eq!(count(&of_folder, "WEIR_CORE_ENV_H"), 1);
        assert_eq!(inlined("a.c", "int a; /* core/env.h */\n", &[]), "# 1 \"a.c\"\nint a; /* core/env.h */\n");
    }

    #[test]
    fn headers_behind_a_condition_are_there_again_where_they_are_needed() {
        let others = [("a.h", "#ifndef A_H\n#define A_H\nint a;\n#endif\n")];
        let source = "#ifdef NEVER\n#include \"a.h\"\n#endif\n#include \"a.h\"\n#include \"a.h\"\n";
        assert_eq!(count(&inlined("a.c", source, &others), "A_H"), 2);
    }

    #[test]
    fn headers_have_guards_and_an_end() {
        for (name, text) in all::HEADERS {
            let depth = |start: &str| text.lines().filter(|line| line.trim_start().starts_with(start)).count();
            assert!(has_guard(text) && depth("#if") == depth("#endif"), "{name}");
        }
    }
}
