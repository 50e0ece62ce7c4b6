//! Parses tables, and the `file` settings of tables and limits.

use super::cursor::{Cursor, Parse, Reported};
use super::foreign::Place;
use super::token::TokenKind;
use super::tree::{Atom, Element, ListFile, Name, Table, TableSetting};
use super::{foreign, value};
use crate::diag::{Diagnostic, nearest};

/// Parses `table NAME { ... }`.
pub(super) fn table(cursor: &mut Cursor) -> Parse<Table> {
    let keyword = cursor.bump();
    let family = cursor.word().filter(|word| foreign::FAMILIES.contains(word));
    if let Some(family) = family.filter(|_| cursor.kind_ahead(1) == TokenKind::Word) {
        return Err(cursor.report(
            Diagnostic::error("E0106", keyword.to(cursor.span()), "an nftables table with chains is not a policy")
                .label(format!("`table {family} NAME` is nftables syntax"))
                .help("rules go into `upstream { ... }` and `downstream { ... }`; a Weir table is a set of prefixes"),
        ));
    }
    let name = cursor.name("a name after `table`")?;
    let open = cursor.open_block("the table's name")?;
    let settings = cursor.settings(open, &[], table_setting);
    Ok(Table { span: keyword.to(cursor.last_span()), name, settings })
}

/// The settings of a table.
const TABLE_WORDS: [&str; 11] =
    ["type", "elements", "file", "dynamic", "size", "timeout", "layout", "counters", "watch", "protect", "max-change"];

fn table_setting(cursor: &mut Cursor) -> Parse<TableSetting> {
    let keyword = cursor.span();
    Ok(match cursor.word() {
        Some("type") => {
            cursor.bump();
            let family = cursor.name("`ipv4` or `ipv6`")?;
            let label = match cursor.eat(TokenKind::Colon) {
                true => Some(cursor.name("`label` after `:`")?),
                false => None,
            };
            TableSetting::Type { family, label }
        }
        Some("elements") => {
            cursor.bump();
            cursor.expect(TokenKind::Assign, "`=` after `elements`")?;
            let (elements, span) = value::set(cursor, "an element", &mut |cursor| element(cursor))?;
            TableSetting::Elements(elements, keyword.to(span))
        }
        Some("file") => TableSetting::File(list_file(cursor)?),
        Some("dynamic") => TableSetting::Dynamic(cursor.bump()),
        Some("size") => {
            cursor.bump();
            TableSetting::Size(value::number(cursor, "a number of entries after `size`")?)
        }
        Some("timeout") => {
            cursor.bump();
            TableSetting::Timeout(value::number(cursor, "a time such as `10m` after `timeout`")?)
        }
        Some("layout") => {
            cursor.bump();
            TableSetting::Layout(cursor.name("the name of a layout")?)
        }
        Some("counters") => TableSetting::Counters(cursor.bump()),
        Some("watch") => TableSetting::Watch(cursor.bump()),
        Some("protect") => {
            cursor.bump();
            let at = cursor.expect(TokenKind::At, "`@` and the name of a table after `protect`")?;
            let name = cursor.name("the name of a table after `@`")?;
            TableSetting::Protect(Name { span: at.to(name.span), ..name })
        }
        Some("max-change") => {
            cursor.bump();
            let number = value::number(cursor, "a share such as `20%` after `max-change`")?;
            let percent = cursor.expect(TokenKind::Percent, "`%` after the number")?;
            TableSetting::MaxChange(Atom { span: number.span.to(percent), ..number })
        }
        Some(word) => return Err(unknown_setting(cursor, word)),
        None => return Err(cursor.unexpected("a setting of the table")),
    })
}

fn unknown_setting(cursor: &mut Cursor, word: &str) -> Reported {
    let diagnostic = Diagnostic::error("E0113", cursor.span(), format!("a table has no setting `{word}`"));
    let diagnostic = match (foreign::at(cursor, Place::Setting), nearest(word, TABLE_WORDS)) {
        (Some(row), _) => diagnostic.help(row.help()),
        (None, Some(near)) => diagnostic.help(format!("did you mean `{near}`?")),
        (None, None) => diagnostic.help(format!("the settings are {}", TABLE_WORDS.join(", "))),
    };
    cursor.report(diagnostic)
}

fn element(cursor: &mut Cursor) -> Parse<Element> {
    let value = value::value(cursor, "an address, prefix or range")?;
    let label = match cursor.eat(TokenKind::Colon) {
        true => Some(value::label(cursor)?),
        false => None,
    };
    if let Some(row) = foreign::at(cursor, Place::Element) {
        // One error for the set: its other elements are written like this one.
        let reported = foreign::report(cursor, row);
        while !matches!(cursor.kind(), TokenKind::CloseBrace | TokenKind::End) && !cursor.at_item() {
            cursor.bump();
        }
        return Err(reported);
    }
    Ok(Element { value, label })
}

/// Parses a list file, such as `file "lists/bad.txt" lenient`.
pub(super) fn list_file(cursor: &mut Cursor) -> Parse<ListFile> {
    let keyword = cursor.bump();
    let path = cursor.string("a path in quotes after `file`")?;
    let mut file = ListFile { span: keyword, path, field: None, lenient: None };
    while let Some(word) = cursor.word() {
        match word {
            "field" if file.field.is_none() => {
                cursor.bump();
                file.field = Some(cursor.string("a path such as \"country.iso_code\" after `field`")?);
            }
            "lenient" if file.lenient.is_none() => file.lenient = Some(cursor.bump()),
            _ => break,
        }
    }
    file.span = keyword.to(cursor.last_span());
    Ok(file)
}
