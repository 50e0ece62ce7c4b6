//! Writes C with kernel indentation. The output needs no formatter.

/// Longest line, in columns, if it can be broken. A tab counts as 8.
const COLUMNS: usize = 120;

/// The text so far.
#[derive(Default)]
pub struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    /// Writes a line at the current depth.
    pub fn line(&mut self, line: &str) {
        self.text.extend(std::iter::repeat_n('\t', self.depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Includes a header of the datapath, by its path there.
    pub fn include(&mut self, header: &str) {
        self.line(&format!("#include \"{header}\""));
    }

    /// Writes a line one level deeper: the body of an `if` or `for` without braces.
    pub fn inner(&mut self, line: &str) {
        self.depth += 1;
        self.line(line);
        self.depth -= 1;
    }

    /// Writes one level deeper.
    pub fn indent(&mut self, write: impl FnOnce(&mut Self)) {
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// Writes `left = right;`, on two lines if one is too long. `after` follows the semicolon.
    pub fn assign(&mut self, left: &str, right: &str, after: &str) {
        let whole = format!("{left} = {right};{after}");
        if self.fits(&whole) {
            self.line(&whole);
        } else {
            self.line(&format!("{left} ="));
            self.inner(&format!("{right};{after}"));
        }
    }

    /// Writes the head of a function and its opening brace. Parameters take as many lines as they need.
    pub fn function(&mut self, head: &str, parameters: &[String]) {
        self.list(&format!("{head}("), parameters, ", ", ",", ")");
        self.open("");
    }

    /// Writes a function whose body may not use all its parameters: casts the unused ones to void.
    pub fn function_with(&mut self, head: &str, parameters: &[String], write: impl FnOnce(&mut Self)) {
        self.function(head, parameters);
        let start = self.text.len();
        write(self);
        let body = self.text.split_off(start);
        for name in parameters.iter().map(|parameter| name(parameter)).filter(|name| !uses(&body, name)) {
            self.line(&format!("(void){name};"));
        }
        self.text.push_str(&body);
        self.close();
    }

    /// Writes an `if` with terms that must all hold, and its opening brace.
    pub fn open_if(&mut self, terms: &[String]) {
        // A single term needs no parentheses.
        if let [term] = terms
            && let Some(bare) = term.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'))
            && is_balanced(bare)
        {
            let alternatives: Vec<String> = bare.split(" || ").map(str::to_owned).collect();
            self.list("if (", &alternatives, " || ", " ||", ") {");
        } else {
            self.list("if (", terms, " && ", " &&", ") {");
        }
        self.depth += 1;
    }

    /// Writes `left = a & b & c;`.
    pub fn assign_all(&mut self, left: &str, masks: &[String]) {
        self.list(&format!("{left} = "), masks, " & ", " &", ";");
    }

    /// Writes `if (!(a && b))`.
    pub fn unless(&mut self, terms: &[String]) {
        match terms {
            [term] if is_call(term) => self.line(&format!("if (!{term})")),
            [term] if term.strip_prefix('!').is_some_and(is_call) => self.line(&format!("if ({})", &term[1..])),
            _ => self.list("if (!(", terms, " && ", " &&", "))"),
        }
    }

    /// Writes a list. It is broken after separators, and lines are aligned with the first item.
    fn list(&mut self, start: &str, items: &[String], separator: &str, at_break: &str, end: &str) {
        let column = self.depth * 8 + start.len();
        let margin = format!("{}{}", "\t".repeat(column / 8), " ".repeat(column % 8));
        let mut line = start.to_owned();
        let mut width = column;
        self.text.extend(std::iter::repeat_n('\t', self.depth));
        for (index, item) in items.iter().enumerate() {
            if index > 0 && width + separator.len() + item.len() + end.len() + 2 > COLUMNS {
                line.push_str(at_break);
                line.push('\n');
                line.push_str(&margin);
                width = column;
            } else if index > 0 {
                line.push_str(separator);
                width += separator.len();
            }
            line.push_str(item);
            width += item.len();
        }
        self.text.push_str(&line);
        self.text.push_str(end);
        self.text.push('\n');
    }

    fn fits(&self, line: &str) -> bool {
        self.depth * 8 + line.len() <= COLUMNS
    }

    /// Writes an empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Writes a line with an opening brace. An empty `line` writes only the brace.
    pub fn open(&mut self, line: &str) {
        if line.is_empty() {
            self.line("{");
        } else {
            self.line(&format!("{line} {{"));
        }
        self.depth += 1;
    }

    /// Writes the closing brace.
    pub fn close(&mut self) {
        self.close_with("");
    }

    /// Writes the closing brace and `after`.
    pub fn close_with(&mut self, after: &str) {
        self.depth -= 1;
        self.line(&format!("}}{after}"));
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// The name of a declared parameter.
fn name(parameter: &str) -> &str {
    parameter.rsplit(['*', ' ']).next().unwrap_or(parameter)
}

/// Whether code uses a name outside of comments.
fn uses(code: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let outside = code.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    outside.flat_map(|code| code.split(|c| !is_word(c))).any(|word| word == name)
}

/// Whether the text is a single function call.
fn is_call(text: &str) -> bool {
    let named = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let arguments = named.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    named.len() < text.len() && arguments.is_some_and(is_balanced)
}

/// Whether each closing parenthesis has an opening one before it.
fn is_balanced(text: &str) -> bool {
    let mut depth = 0i32;
    text.chars().all(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth >= 0
    })
}

/// Makes a text safe inside a comment. Backslashes are replaced first, because the slash that replaces one may be next
/// to a star.
pub fn comment(text: &str) -> String {
    text.replace('\\', "/").replace("*/", "* /").replace("/*", "/ *")
}

#[cfg(test)]
mod tests {
    use super::{Writer, comment};

    #[test]
    fn parameters_that_a_body_does_not_use_are_cast_to_void() {
        let mut out = Writer::default();
        let parameters = ["const int *first", "int second", "int third"].map(str::to_owned);
        out.function_with("static int f", &parameters, |out| out.line("return *first + seconds; /* third */"));
        let lines = "\t(void)second;\n\t(void)third;\n\treturn *first + seconds; /* third */\n";
        assert_eq!(out.finish(), format!("static int f({})\n{{\n{lines}}}\n", parameters.join(", ")));
    }

    #[test]
    fn no_text_begins_or_ends_a_comment() {
        let alphabet = ['*', '/', '\\', 'x'];
        for number in 0..4usize.pow(6) {
            let text: String = (0..6).map(|index| alphabet[number >> (2 * index) & 3]).collect();
            let safe = comment(&text);
            assert!(!safe.contains("*/") && !safe.contains("/*") && !safe.contains('\\'), "{text} becomes {safe}");
        }
    }
}
