//! A row of the table: words of nftables, and what to write instead.

/// What to write instead of the words of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// A rule, and what to know about it (may be empty).
    Rule(&'static str, &'static str),
    /// An item, and what to know about it (may be empty).
    Item(&'static str, &'static str),
    /// Nothing is the same. The text says what comes nearest, or why there is nothing.
    Nothing(&'static str),
}

/// A row: words of nftables that Weir does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The words, separated by blanks.
    pub words: &'static str,
    /// What Weir does not have, in messages: "Weir does not have `what`".
    pub what: &'static str,
    /// The words in use, as nftables accepts them.
    pub example: &'static str,
    /// What to write instead.
    pub instead: Instead,
}

pub(super) const fn rule(
    words: &'static str,
    what: &'static str,
    example: &'static str,
    instead: &'static str,
    note: &'static str,
) -> Foreign {
    Foreign { words, what, example, instead: Instead::Rule(instead, note) }
}

pub(super) const fn item(
    words: &'static str,
    what: &'static str,
    example: &'static str,
    instead: &'static str,
    note: &'static str,
) -> Foreign {
    Foreign { words, what, example, instead: Instead::Item(instead, note) }
}

pub(super) const fn none(words: &'static str, what: &'static str, example: &'static str, why: &'static str) -> Foreign {
    Foreign { words, what, example, instead: Instead::Nothing(why) }
}

impl Foreign {
    /// The help of the error.
    pub fn help(&self) -> String {
        match self.instead {
            Instead::Rule(text, "") | Instead::Item(text, "") => format!("write `{text}`"),
            Instead::Rule(text, note) | Instead::Item(text, note) => format!("write `{text}`; {note}"),
            Instead::Nothing(why) => why.to_owned(),
        }
    }
}
