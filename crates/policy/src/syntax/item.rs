//! Parses the items of a file. Tables and lists of limits have separate files.

use super::cursor::{Cursor, ITEM_WORDS, Parse, Reported};
use super::foreign::Place;
use super::token::TokenKind;
use super::tree::{Defaults, Define, DirectionBlock, Include, Item, Name, OnExit, Posture};
use super::words::STATEMENT_WORDS;
use super::{foreign, inside, limits, observe, rule, slot, table, tracking, value};
use crate::diag::{Diagnostic, nearest};
use crate::direction::Direction;

/// Parses all items of a file.
pub(super) fn items(cursor: &mut Cursor) -> Vec<Item> {
    let mut items = Vec::new();
    loop {
        cursor.skip_separators();
        if cursor.is(TokenKind::End) {
            return items;
        }
        match item(cursor) {
            Ok(item) => {
                items.push(item);
                if !cursor.at_item() {
                    cursor.end_of_statement("the item");
                }
            }
            Err(Reported) => cursor.skip_statement(),
        }
        // A `}` without a block.
        if cursor.is(TokenKind::CloseBrace) {
            cursor.report(
                Diagnostic::error("E0103", cursor.span(), "this `}` closes no block")
                    .help("remove it, or check whether an earlier `}` is wrong"),
            );
            cursor.bump();
        }
    }
}

fn item(cursor: &mut Cursor) -> Parse<Item> {
    match cursor.word() {
        Some("include") => include(cursor).map(Item::Include),
        Some("define") => define(cursor).map(Item::Define),
        Some("table") => table::table(cursor).map(Item::Table),
        Some("limits") => limits::limits(cursor).map(Item::Limits),
        Some("defaults") => defaults(cursor).map(Item::Defaults),
        Some("slot") => slot::slot(cursor).map(Item::Slot),
        Some("tracking") => tracking::tracking(cursor).map(Item::Tracking),
        Some("observe") => observe::observe(cursor).map(Item::Observe),
        Some("inside") => inside::inside(cursor).map(Item::Inside),
        Some("on-exit") => on_exit(cursor).map(Item::OnExit),
        Some("upstream" | "downstream") => direction(cursor).map(Item::Direction),
        Some("posture") => posture(cursor).map(Item::Posture),
        Some(word) => Err(unknown_item(cursor, word)),
        None if cursor.is(TokenKind::CloseBrace) => Err(Reported),
        None => Err(cursor.unexpected(&format!("one of {}", ITEM_WORDS.join(", ")))),
    }
}

fn unknown_item(cursor: &mut Cursor, word: &str) -> Reported {
    let span = cursor.span();
    let rule_like = STATEMENT_WORDS.contains(&word)
        || crate::field::Field::ALL.iter().any(|f| f.name().split(' ').next() == Some(word));
    if let Some(row) = foreign::at(cursor, Place::Item) {
        return foreign::report(cursor, row);
    }
    let diagnostic = if rule_like {
        Diagnostic::error("E0105", span, "this rule is outside of a direction")
            .help("rules go into `upstream { ... }` or `downstream { ... }`")
    } else {
        let diagnostic = Diagnostic::error("E0105", span, format!("`{word}` does not begin an item"));
        match nearest(word, ITEM_WORDS) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("a policy consists of {}", ITEM_WORDS.join(", "))),
        }
    };
    cursor.report(diagnostic)
}

fn include(cursor: &mut Cursor) -> Parse<Include> {
    let keyword = cursor.bump();
    let path = cursor.string("a path in quotes after `include`")?;
    Ok(Include { span: keyword.to(path.span), path, file: None })
}

fn define(cursor: &mut Cursor) -> Parse<Define> {
    let keyword = cursor.bump();
    let name = cursor.name("a name after `define`")?;
    cursor.expect(TokenKind::Assign, "`=` after the name")?;
    // The name is kept even if the value is invalid. Otherwise each use would be an error too.
    let values = match value::values(cursor, "a value") {
        Ok(values) => Some(values),
        Err(Reported) => {
            cursor.skip_statement();
            None
        }
    };
    Ok(Define { span: keyword.to(cursor.last_span()), name, values })
}

fn defaults(cursor: &mut Cursor) -> Parse<Defaults> {
    let keyword = cursor.bump();
    let open = cursor.open_block("`defaults`")?;
    let mut entries = Vec::new();
    // `on-exit` is parsed as a default, which the checker refuses.
    while cursor.block_goes_on(open, &["on-exit"]) {
        match default_entry(cursor) {
            Ok(entry) => {
                entries.push(entry);
                cursor.end_of_statement("the default");
            }
            Err(Reported) => cursor.skip_statement(),
        }
    }
    Ok(Defaults { span: keyword.to(cursor.last_span()), entries })
}

fn default_entry(cursor: &mut Cursor) -> Parse<(Name, Name)> {
    let kind = cursor.name("a kind of packet")?;
    Ok((kind, cursor.name("accept, drop, divert or rules")?))
}

fn on_exit(cursor: &mut Cursor) -> Parse<OnExit> {
    let keyword = cursor.bump();
    let value = cursor.name("`forward` or `block` after `on-exit`")?;
    Ok(OnExit { span: keyword.to(value.span), value })
}

fn direction(cursor: &mut Cursor) -> Parse<DirectionBlock> {
    let direction = if cursor.is_word("upstream") { Direction::Upstream } else { Direction::Downstream };
    let keyword = cursor.bump();
    let open = cursor.open_block(&format!("`{}`", direction.name()))?;
    let mut rules = Vec::new();
    while cursor.block_goes_on(open, &[]) {
        rules.extend(rule::rule(cursor));
    }
    Ok(DirectionBlock { span: keyword.to(cursor.last_span()), direction, keyword, rules })
}

fn posture(cursor: &mut Cursor) -> Parse<Posture> {
    let keyword = cursor.bump();
    let name = cursor.name("a name after `posture`")?;
    let open = cursor.open_block("the posture's name")?;
    let mut directions = Vec::new();
    while cursor.block_goes_on(open, &["upstream", "downstream", "on-exit"]) {
        if cursor.is_word("on-exit") {
            let diagnostic = cursor.unexpected_here("`upstream { ... }` or `downstream { ... }`");
            cursor.report(diagnostic.help("`on-exit` applies to all postures: write it at the top level"));
            cursor.skip_statement();
            continue;
        }
        if !matches!(cursor.word(), Some("upstream" | "downstream")) {
            cursor.unexpected("`upstream { ... }` or `downstream { ... }`");
            cursor.skip_statement();
            continue;
        }
        match direction(cursor) {
            Ok(direction) => directions.push(direction),
            Err(Reported) => cursor.skip_statement(),
        }
    }
    Ok(Posture { span: keyword.to(cursor.last_span()), name, directions })
}
