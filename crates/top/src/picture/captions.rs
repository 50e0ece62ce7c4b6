//! Captions of a picture: a file with a line for each, the time at which it begins (seconds since 1970) and its text.

use crate::Error;
use std::path::Path;

/// A text above the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Caption {
    /// When it begins, seconds since 1970.
    pub time_s: f64,
    /// The text; nothing ends the one before.
    pub text: String,
}

/// Captions by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Captions(Vec<Caption>);

impl Captions {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line has no time.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        Captions::parse(&text).map_err(|line| Error::NotACaption { path: path.to_owned(), line })
    }

    /// Reads a text. The error is the number of a line without a time.
    ///
    /// # Errors
    /// A line has no time.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let one = |(at, line): (usize, &str)| -> Result<Caption, usize> {
            let (time, text) = line.split_once(' ').unwrap_or((line, ""));
            let time_s = time.parse().ok().filter(|time: &f64| time.is_finite()).ok_or(at + 1)?;
            Ok(Caption { time_s, text: text.to_owned() })
        };
        let mut captions: Vec<Caption> = text.lines().enumerate().map(one).collect::<Result<_, usize>>()?;
        captions.sort_by(|one, other| one.time_s.total_cmp(&other.time_s));
        Ok(Captions(captions))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The caption at a time.
    pub fn at(&self, time_s: f64) -> Option<&str> {
        let begun = self.0.iter().take_while(|caption| caption.time_s <= time_s);
        begun.last().map(|caption| caption.text.as_str())
    }
}
