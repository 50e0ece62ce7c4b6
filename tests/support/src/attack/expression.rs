//! Expressions of attack files: numbers and addresses, `$` and `$name`, `+ - * / %`, parentheses, and `mix(N)`.

use std::iter::Peekable;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::Chars;

/// Names with their values, the innermost last. The innermost loop without a name is called ``.
pub type Names = Vec<(String, i128)>;

/// What a number stands for, which decides how it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Ipv4,
    Ipv6,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    number: i128,
    kind: Kind,
}

impl Value {
    fn print(self) -> Result<String, String> {
        let outside = |_| format!("{} is no address", self.number);
        match self.kind {
            Kind::Number => Ok(self.number.to_string()),
            Kind::Ipv4 => u32::try_from(self.number).map(|bits| Ipv4Addr::from(bits).to_string()).map_err(outside),
            Kind::Ipv6 => Ok(Ipv6Addr::from(self.number as u128).to_string()),
        }
    }
}

/// Replaces `[EXPRESSION]`, `$` and `$name` in a text by their values.
pub fn filled(text: &str, names: &Names) -> Result<String, String> {
    if !text.contains(['$', '[']) {
        return Ok(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '[']) {
        out += &rest[..at];
        let (inside, after) = match rest[at..].strip_prefix('[') {
            Some(tail) => tail.split_once(']').ok_or_else(|| format!("`{rest}` has no `]`"))?,
            None => {
                let end = rest[at + 1..].find(|c: char| !is_name(c)).map_or(rest.len(), |end| at + 1 + end);
                rest[at..].split_at(end - at)
            }
        };
        out += &evaluate(inside, names)?;
        rest = after;
    }
    Ok(out + rest)
}

/// Whether a character can be part of a name.
pub fn is_name(c: char) -> bool {
    c.is_ascii_lowercase() || c == '_'
}

/// The value of an expression as text.
pub fn evaluate(text: &str, names: &Names) -> Result<String, String> {
    let mut parser = Parser { rest: text.chars().peekable(), names };
    let value = parser.sum()?;
    match parser.peek() {
        None => value.print(),
        Some(left) => Err(format!("`{left}` is not expected in `{text}`")),
    }
}

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    names: &'a Names,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn word(&mut self, is_part: fn(char) -> bool) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.next_if(|&c| is_part(c)) {
            word.push(c);
        }
        word
    }

    fn sum(&mut self) -> Result<Value, String> {
        let mut sum = self.product()?;
        while let Some(operator) = self.peek().filter(|c| matches!(c, '+' | '-')) {
            self.rest.next();
            let other = self.product()?;
            let number = if operator == '+' { sum.number + other.number } else { sum.number - other.number };
            sum = Value { number, kind: if sum.kind == Kind::Number { other.kind } else { sum.kind } };
        }
        Ok(sum)
    }

    fn product(&mut self) -> Result<Value, String> {
        let mut product = self.operand()?;
        while let Some(operator) = self.peek().filter(|c| matches!(c, '*' | '/' | '%')) {
            self.rest.next();
            let other = self.operand()?;
            if product.kind != Kind::Number || other.kind != Kind::Number {
                return Err("an address has only `+` and `-`".into());
            }
            let (one, two) = (product.number, other.number);
            product.number = match operator {
                '*' => one.checked_mul(two),
                '/' => one.checked_div_euclid(two),
                _ => one.checked_rem_euclid(two),
            }
            .ok_or_else(|| format!("{one} {operator} {two} has no value"))?;
        }
        Ok(product)
    }

    fn operand(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some('(') => {
                self.rest.next();
                self.closed()
            }
            Some('$') => {
                self.rest.next();
                let name = self.word(is_name);
                let found = self.names.iter().rev().find(|(known, _)| *known == name);
                let (_, number) = found.ok_or_else(|| format!("`${name}` is unknown"))?;
                Ok(Value { number: *number, kind: Kind::Number })
            }
            _ => {
                let word = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | ':'));
                if word == "mix" && self.peek() == Some('(') {
                    self.rest.next();
                    let Value { number, .. } = self.closed()?;
                    return Ok(Value { number: i128::from(mix(number as u64)), kind: Kind::Number });
                }
                literal(&word).ok_or_else(|| format!("`{word}` is neither a number nor an address"))
            }
        }
    }

    /// A sum behind `(`.
    fn closed(&mut self) -> Result<Value, String> {
        let value = self.sum()?;
        match self.peek() {
            Some(')') => {
                self.rest.next();
                Ok(value)
            }
            _ => Err("`)` is missing".into()),
        }
    }
}

fn literal(word: &str) -> Option<Value> {
    if let Some(number) = crate::args::number::<u64>(word) {
        return Some(Value { number: number.into(), kind: Kind::Number });
    }
    match word.parse().ok()? {
        IpAddr::V4(address) => Some(Value { number: address.to_bits().into(), kind: Kind::Ipv4 }),
        IpAddr::V6(address) => Some(Value { number: address.to_bits() as i128, kind: Kind::Ipv6 }),
    }
}

/// 32 bits that look random: the finalizer of SplitMix64. The same in every run.
fn mix(number: u64) -> u32 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

#[cfg(test)]
mod tests {
    use super::filled;

    fn value(text: &str) -> Result<String, String> {
        filled(text, &vec![("n".into(), 7), (String::new(), 260)])
    }

    #[test]
    fn numbers_and_addresses() {
        for (text, expected) in [
            ("sport=[1024 + $n * 2] $", "sport=1038 260"),
            ("[10.0.0.0 + $].", "10.0.1.4."),
            ("[2001:db8::1 + $n]", "2001:db8::8"),
            ("[($ - 10) / 4 % 60] [0xff + 1]", "2 256"),
            ("198.51.100.$n:$", "198.51.100.7:260"),
            ("plain", "plain"),
        ] {
            assert_eq!(value(text).as_deref(), Ok(expected), "{text}");
        }
        let random = value("[mix($n)]").expect("a number");
        assert_eq!(Ok(random), value("[mix(7)]"));
    }

    #[test]
    fn mistakes_are_errors() {
        for (text, message) in [
            ("$m", "`$m` is unknown"),
            ("[1 + ]", "`` is neither a number nor an address"),
            ("[1", "`[1` has no `]`"),
            ("[(1]", "`)` is missing"),
            ("[1 2]", "`2` is not expected in `1 2`"),
            ("[1 / 0]", "1 / 0 has no value"),
            ("[255.255.255.255 + 1]", "4294967296 is no address"),
            ("[10.0.0.1 * 2]", "an address has only `+` and `-`"),
        ] {
            assert_eq!(value(text), Err(message.to_owned()), "{text}");
        }
    }
}
