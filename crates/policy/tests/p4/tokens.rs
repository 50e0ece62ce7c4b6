//! Tokens of P4, and the position of a reader among them.

/// A text as tokens.
pub struct Tokens {
    all: Vec<String>,
    at: usize,
}

/// Symbols of two characters. `>>` is one where an expression is read; types are closed by single ones.
const PAIRS: [&str; 9] = ["..", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>"];

impl Tokens {
    pub fn of(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with("#include")) {
            let mut rest = line.split("//").next().unwrap_or_default().trim_start();
            while let Some(first) = rest.chars().next() {
                let length = if first.is_ascii_alphanumeric() || first == '_' {
                    rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
                } else if PAIRS.iter().any(|pair| rest.starts_with(pair)) {
                    2
                } else if "(){}<>;:,.=+-&|!@\"".contains(first) {
                    1
                } else {
                    return Err(format!("no token of P4: {rest}"));
                };
                all.push(rest[..length].to_owned());
                rest = rest[length..].trim_start();
            }
        }
        Ok(Tokens { all, at: 0 })
    }

    pub fn peek(&self) -> &str {
        self.all.get(self.at).map_or("", String::as_str)
    }

    /// The token behind the next ones.
    pub fn ahead(&self, count: usize) -> &str {
        self.all.get(self.at + count).map_or("", String::as_str)
    }

    pub fn next(&mut self) -> Result<String, String> {
        let token = self.all.get(self.at).cloned().ok_or("the text ends too early")?;
        self.at += 1;
        Ok(token)
    }

    /// Whether the next token is this one, which is then taken.
    pub fn take(&mut self, token: &str) -> bool {
        let is_next = self.peek() == token;
        self.at += usize::from(is_next);
        is_next
    }

    pub fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) {
            return Ok(());
        }
        let from = self.at.saturating_sub(6);
        Err(format!("{token} is missing in: {}", self.all[from..(self.at + 3).min(self.all.len())].join(" ")))
    }

    pub fn name(&mut self) -> Result<String, String> {
        let token = self.next()?;
        match token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !RESERVED.contains(&&*token) {
            true => Ok(token),
            false => Err(format!("{token} is no name")),
        }
    }

    pub fn number(&mut self) -> Result<u64, String> {
        let token = self.next()?;
        let number = match token.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => token.parse(),
        };
        number.map_err(|_| format!("{token} is no number"))
    }

    /// `bit<32>`
    pub fn bits(&mut self) -> Result<u64, String> {
        self.expect("bit")?;
        self.expect("<")?;
        let bits = self.number()?;
        self.expect(">")?;
        Ok(bits)
    }
}

/// Words of P4_16 that are no names of fields, states or objects.
#[rustfmt::skip]
const RESERVED: [&str; 48] = [
    "abstract", "action", "actions", "apply", "bit", "bool", "break", "const", "continue", "control", "default",
    "else", "entries", "enum", "error", "exit", "extern", "false", "for", "header", "header_union", "if", "in",
    "inout", "int", "key", "list", "match_kind", "out", "package", "parser", "priority", "return", "select", "state",
    "string", "struct", "switch", "table", "this", "transition", "true", "tuple", "type", "typedef", "value_set",
    "varbit", "void",
];
