//! The `limit each` for an address with a rate or a number of connections in braces, as nftables writes them:
//! `{ ip saddr limit rate over 5/second }`, `{ ip saddr ct count over 20 }`.

use super::super::cursor::Cursor;
use super::super::token::TokenKind;
use crate::field::{Field, Notation};

/// Tokens that are looked at behind the brace. More are no rate of an address.
const TOKENS_MAX: usize = 24;

/// `limit each ip saddr 5/second burst 10 packets`, from the braces `ahead` tokens before it. `None` if the braces hold
/// something else than an address with a rate that Weir has.
pub(in crate::syntax) fn limit_each(cursor: &Cursor, ahead: usize) -> Option<String> {
    let inner: Vec<(TokenKind, &str)> = (ahead..ahead + TOKENS_MAX)
        .map(|at| (cursor.kind_ahead(at), cursor.slice_ahead(at)))
        .take_while(|(kind, _)| !matches!(kind, TokenKind::CloseBrace | TokenKind::Newline | TokenKind::End))
        .collect();
    let words: Vec<&str> = inner.iter().map(|&(_, text)| text).collect();
    let (address, rest) = words.split_at_checked(2)?;
    let name = address.join(" ");
    let is_address = |field: &Field| matches!(field.notation(), Notation::Ipv4Address | Notation::Ipv6Address);
    Field::from_name(&name).filter(is_address)?;
    let rest = match rest {
        ["timeout", _, rest @ ..] => rest,
        rest => rest,
    };
    if let ["ct", "count", "over", number] = rest {
        return Some(format!("limit each {name} connections {number}"));
    }
    let rest = rest.strip_prefix(&["limit", "rate"])?;
    let rest = rest.strip_prefix(&["over"]).or(rest.strip_prefix(&["until"])).unwrap_or(rest);
    let (rate, rest) = match rest {
        [number, "/", unit @ ("second" | "minute" | "hour"), rest @ ..] => (format!("{number}/{unit}"), rest),
        _ => return None,
    };
    let burst = match rest {
        [] => String::new(),
        ["burst", number] | ["burst", number, "packets"] => format!(" burst {number} packets"),
        _ => return None,
    };
    Some(format!("limit each {name} {rate}{burst}"))
}
