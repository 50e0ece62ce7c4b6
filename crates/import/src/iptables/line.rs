//! The words of a line of iptables-save.

use std::collections::VecDeque;

/// Words from left to right. Quotes are removed.
#[derive(Clone, Debug)]
pub struct Words(VecDeque<String>);

impl Words {
    /// Divides a line. Text in double quotes is one word, in which a backslash makes the next letter literal.
    ///
    /// # Errors
    /// A quote has no end.
    pub fn new(line: &str) -> Result<Self, String> {
        let mut words = VecDeque::new();
        let mut word: Option<String> = None;
        let mut is_quoted = false;
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '"' => {
                    is_quoted = !is_quoted;
                    word.get_or_insert_default();
                }
                '\\' if is_quoted => word.get_or_insert_default().extend(letters.next()),
                letter if letter.is_whitespace() && !is_quoted => words.extend(word.take()),
                letter => word.get_or_insert_default().push(letter),
            }
        }
        if is_quoted {
            return Err("a quote has no end".to_owned());
        }
        words.extend(word);
        Ok(Words(words))
    }

    /// Removes and returns the first word.
    pub fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }

    /// Removes the first word if it is this one.
    pub fn take(&mut self, word: &str) -> bool {
        let is_there = self.peek() == Some(word);
        if is_there {
            self.0.pop_front();
        }
        is_there
    }

    /// The first word.
    pub fn peek(&self) -> Option<&str> {
        self.0.front().map(String::as_str)
    }

    /// Removes the words of an option that is not known: all up to the next option.
    pub fn skip_values(&mut self) {
        while self.peek().is_some_and(|word| !is_option(word) && word != "!") {
            self.0.pop_front();
        }
    }
}

/// Whether a word begins an option. A negative number does not.
fn is_option(word: &str) -> bool {
    let rest = word.strip_prefix('-');
    rest.is_some_and(|rest| rest.starts_with(|letter: char| letter == '-' || letter.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_word() {
        let mut words = Words::new(r#"-A INPUT -m comment --comment "a \"b\" c" -j DROP"#).expect("it is a line");
        let all: Vec<String> = std::iter::from_fn(|| words.next()).collect();
        assert_eq!(all[5], r#"a "b" c"#);
        assert_eq!(all.len(), 8);
        assert!(Words::new("--comment \"a").is_err());
    }
}
