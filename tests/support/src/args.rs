//! The words after a layer's name: `key=value` and bare flags. Each is taken once, and a word that is left over is an
//! error.

use std::str::FromStr;

/// The words of one layer.
pub struct Args<'a> {
    layer: &'a str,
    words: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Args<'a> {
    /// Splits a layer into its name and words.
    pub fn new(layer: &'a str) -> Self {
        let mut words = layer.split_whitespace();
        let name = words.next().unwrap_or("");
        let split = |word: &'a str| word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
        Args { layer: name, words: words.map(split).collect() }
    }

    /// The words of a segment without a name.
    pub fn nameless(segment: &'a str) -> Self {
        let mut args = Args::new(segment);
        let first = args.layer.split_once('=').map_or((args.layer, None), |(key, value)| (key, Some(value)));
        args.words.insert(0, first);
        args.layer = "capture";
        args
    }

    /// The layer's name.
    pub fn layer(&self) -> &'a str {
        self.layer
    }

    /// Takes the value of `key`.
    pub fn value(&mut self, key: &str) -> Result<Option<&'a str>, String> {
        let Some(at) = self.words.iter().position(|(word, _)| *word == key) else { return Ok(None) };
        let (_, value) = self.words.remove(at);
        value.map(Some).ok_or_else(|| format!("{}: {key} needs a value, {key}=...", self.layer))
    }

    /// Takes the bare word `key`.
    pub fn flag(&mut self, key: &str) -> bool {
        let at = self.words.iter().position(|word| *word == (key, None));
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// Takes the first bare word.
    pub fn bare(&mut self) -> Option<&'a str> {
        let at = self.words.iter().position(|(_, value)| value.is_none())?;
        Some(self.words.remove(at).0)
    }

    /// Takes a number, decimal or `0x` hexadecimal, that fits `T`.
    pub fn number<T: TryFrom<u64>>(&mut self, key: &str) -> Result<Option<T>, String> {
        let Some(text) = self.value(key)? else { return Ok(None) };
        number(text).map(Some).ok_or_else(|| format!("{}: {key}={text} is no number that fits", self.layer))
    }

    /// Takes a number below `limit`.
    pub fn below(&mut self, key: &str, limit: u64) -> Result<Option<u64>, String> {
        match self.number::<u64>(key)? {
            Some(n) if n >= limit => Err(format!("{}: {key}={n} is not below {limit}", self.layer)),
            n => Ok(n),
        }
    }

    /// Takes an address.
    pub fn parsed<T: FromStr>(&mut self, key: &str, otherwise: T) -> Result<T, String> {
        let Some(text) = self.value(key)? else { return Ok(otherwise) };
        text.parse().map_err(|_| format!("{}: cannot read {key}={text}", self.layer))
    }

    /// Takes bytes in hexadecimal.
    pub fn hex(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(text) = self.value(key)? else { return Ok(None) };
        hex(text).map(Some).ok_or_else(|| format!("{}: {key}={text} is not hexadecimal", self.layer))
    }

    /// Checks that no word is left.
    pub fn finish(self) -> Result<(), String> {
        match self.words.first() {
            None => Ok(()),
            Some((word, _)) => Err(format!("{} does not know `{word}`", self.layer)),
        }
    }
}

/// `17` or `0x11`.
pub fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    T::try_from(number.ok()?).ok()
}

/// `00ff12`, with colons or without.
pub fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
