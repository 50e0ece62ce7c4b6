//! Parses `inside { ... }`.

use super::cursor::{Cursor, Parse};
use super::token::TokenKind;
use super::tree::{Inside, InsideMember, Name};
use super::value;

/// What a member is, for messages.
const MEMBER: &str = "an address, prefix or `@table`";

/// Parses `inside { ... }`.
pub(super) fn inside(cursor: &mut Cursor) -> Parse<Inside> {
    let keyword = cursor.bump();
    let (members, span) = value::set(cursor, MEMBER, &mut member)?;
    Ok(Inside { span: keyword.to(span), members })
}

fn member(cursor: &mut Cursor) -> Parse<InsideMember> {
    if !cursor.is(TokenKind::At) {
        return value::value(cursor, MEMBER).map(InsideMember::Addresses);
    }
    let at = cursor.expect(TokenKind::At, MEMBER)?;
    let name = cursor.name("the name of a table after `@`")?;
    Ok(InsideMember::Table(Name { span: at.to(name.span), ..name }))
}
