//! Every word of nftables that Weir does not have, in one table. A row has what to write instead.
//!
//! The words are those of `nft(8)`. Each word gives exactly one error. Tests check each row: its example is refused
//! with its words, and its policy text passes the check. `docs/reference/nftables.md` prints the table.

mod commands;
mod each;
mod expressions;
mod headers;
mod row;
mod statements;
mod transports;

pub(super) use each::limit_each;
pub use row::{Foreign, Instead};

use super::cursor::{Cursor, Parse, Reported};
use super::token::TokenKind;
use crate::diag::Diagnostic;

/// Where the words of a row stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a rule: where a match or a statement begins.
    Rule,
    /// In a rule, behind the left side of a match.
    Comparison,
    /// In the braces of `add @NAME { ... }`, behind the address.
    Addition,
    /// At the start of an item.
    Item,
    /// At the start of a setting of a table.
    Setting,
    /// Behind an element of a table.
    Element,
}

impl Place {
    /// All places, in the order of the table.
    pub const ALL: [Place; 6] =
        [Place::Rule, Place::Comparison, Place::Addition, Place::Item, Place::Setting, Place::Element];

    /// The rows of the place.
    fn lists(self) -> &'static [&'static [Foreign]] {
        match self {
            Place::Rule => &[
                statements::STATEMENTS,
                expressions::META,
                expressions::CONNTRACK,
                headers::LINK,
                headers::NETWORK,
                transports::TRANSPORT,
            ],
            Place::Comparison => &[statements::COMPARISONS],
            Place::Addition => &[statements::ADDITIONS],
            Place::Item => &[commands::ITEMS],
            Place::Setting => &[commands::SETTINGS],
            Place::Element => &[statements::ELEMENTS],
        }
    }
}

/// Families that nftables allows before the name of a table.
pub(super) const FAMILIES: [&str; 6] = ["inet", "bridge", "netdev", "arp", "ip", "ip6"];

/// Items that have the name of a statement. They are objects only with a name and a block.
const OBJECTS: [&str; 3] = ["counter", "limit", "synproxy"];

/// All rows, with their places.
pub fn table() -> impl Iterator<Item = (Place, &'static Foreign)> {
    Place::ALL.into_iter().flat_map(|place| place.lists().iter().copied().flatten().map(move |row| (place, row)))
}

/// The row of the words at the cursor. Of several, the one with the most words.
pub(super) fn at(cursor: &Cursor, place: Place) -> Option<&'static Foreign> {
    let matches = |row: &&Foreign, from: usize| {
        let mut words = (from..).zip(row.words.split(' '));
        words.all(|(ahead, word)| cursor.kind_ahead(ahead) == TokenKind::Word && cursor.slice_ahead(ahead) == word)
    };
    let is_meta = place == Place::Rule && cursor.is_word("meta");
    let object = cursor.kind_ahead(1) == TokenKind::Word && cursor.kind_ahead(2) == TokenKind::OpenBrace;
    if place == Place::Item && OBJECTS.iter().any(|word| cursor.is_word(word)) && !object {
        return None;
    }
    let rows = place.lists().iter().copied().flatten();
    let found = rows.filter(|row| matches(row, 0)).max_by_key(|row| row.words.len());
    found.or_else(|| expressions::META.iter().find(|row| is_meta && matches(row, 1)))
}

/// Reports the words of a row.
pub(super) fn report(cursor: &mut Cursor, row: &Foreign) -> Reported {
    report_with(cursor, row, row.help())
}

/// Reports the words of a row with another help.
pub(super) fn report_with(cursor: &mut Cursor, row: &Foreign, help: String) -> Reported {
    let span = (1..row.words.split(' ').count()).fold(cursor.span(), |span, ahead| span.to(cursor.span_ahead(ahead)));
    cursor.report(
        Diagnostic::error("E0106", span, format!("Weir does not have {}", row.what))
            .label(format!("`{}` is nftables syntax", row.words))
            .help(help),
    )
}

/// Reports the words at the cursor if Weir does not have them.
pub(super) fn refuse(cursor: &mut Cursor, place: Place) -> Parse<()> {
    match at(cursor, place) {
        Some(row) => Err(report(cursor, row)),
        None => Ok(()),
    }
}
