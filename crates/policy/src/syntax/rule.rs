//! Parses rules: matches, then statements.

use super::cursor::{Cursor, Parse, Reported};
use super::foreign::{Foreign, Place};
use super::subject::{subject, unknown_header};
use super::token::TokenKind;
use super::tree::{AddKind, Match, Name, Operator, Rule, Statement, Subject};
use super::words::STATEMENT_WORDS;
use super::{addition, foreign, limit, reserved, slot, value};
use crate::diag::Diagnostic;
use crate::field::Field;
use weir_abi::Action;

/// Protocols that can be a match without a field.
const GUARD_WORDS: [&str; 4] = ["tcp", "udp", "icmp", "icmpv6"];

/// Parses a rule up to its end. After an error it skips the rest of the rule.
pub(super) fn rule(cursor: &mut Cursor) -> Parse<Rule> {
    let start = cursor.span();
    let mut rule = Rule { span: start, matches: Vec::new(), statements: Vec::new() };
    while !cursor.at_end_of_statement() {
        if let Err(Reported) = part(cursor, &mut rule) {
            // After an unterminated set, the next line is parsed as a new rule.
            if cursor.span() == start || !cursor.begins_line() {
                cursor.skip_statement();
            }
            return Err(Reported);
        }
    }
    rule.span = start.to(cursor.last_span());
    Ok(rule)
}

fn part(cursor: &mut Cursor, rule: &mut Rule) -> Parse<()> {
    if let Some(&Statement::Verdict(action, span)) = rule.statements.last() {
        if cursor.is_word("comment") {
            foreign::refuse(cursor, Place::Rule)?;
        }
        return Err(cursor.report(
            Diagnostic::error("E0108", cursor.span(), format!("{} comes after the verdict", cursor.found()))
                .label("never reached")
                .note(span, format!("`{}` ends the rule", action.name()))
                .help("put the verdict last, or begin a new rule on a new line"),
        ));
    }
    if let Some(action) = verdict(cursor) {
        rule.statements.push(Statement::Verdict(action, cursor.bump()));
        return Ok(());
    }
    match cursor.word() {
        Some("counter") => {
            let span = cursor.bump();
            no_counter_state(cursor)?;
            rule.statements.push(Statement::Counter(span));
        }
        Some("sample") => rule.statements.push(sample(cursor)?),
        Some("track") => rule.statements.push(Statement::Track(cursor.bump())),
        Some("synproxy") => rule.statements.push(synproxy(cursor)?),
        Some("add") => rule.statements.push(addition::of_rule(cursor, AddKind::Add)?),
        Some("update") => rule.statements.push(addition::of_rule(cursor, AddKind::Update)?),
        Some("limit") => rule.statements.push(limit::of_rule(cursor)?),
        Some("slot") => rule.statements.push(slot::of_rule(cursor)?),
        Some(reserved::REPLY) => return Err(cursor.report(reserved::reply(cursor.span()))),
        Some(_) => {
            unsupported(cursor)?;
            known_or_one_error(cursor, rule)?;
        }
        None if cursor.is(TokenKind::At) => condition(cursor, rule)?,
        None => return Err(cursor.unexpected("a match or a statement")),
    }
    Ok(())
}

fn verdict(cursor: &Cursor) -> Option<Action> {
    Action::from_name(cursor.word()?)
}

/// Reports words that only nftables has.
fn unsupported(cursor: &mut Cursor) -> Parse<()> {
    if let Some(row) = foreign::at(cursor, Place::Rule) {
        return Err(match braces_of_meter(cursor, row).and_then(|ahead| foreign::limit_each(cursor, ahead)) {
            Some(each) => foreign::report_with(cursor, row, format!("write `{each}`, which drops what exceeds it")),
            None => foreign::report(cursor, row),
        });
    }
    Ok(())
}

/// Parses a match. If its header is unknown and its rest is no match either, only the header is reported: what follows
/// an unknown word is no mistake of its own.
fn known_or_one_error(cursor: &mut Cursor, rule: &mut Rule) -> Parse<()> {
    let word = Name { text: cursor.slice().to_owned(), span: cursor.span() };
    let is_known = Field::ALL.iter().any(|field| field.name().split(' ').next() == Some(&word.text));
    let before = cursor.mark();
    condition(cursor, rule).map_err(|reported| match is_known {
        true => reported,
        false => {
            cursor.back_to(before);
            cursor.report(unknown_header(&word))
        }
    })
}

/// The number of tokens up to the inside of a meter's braces: `meter NAME { ip saddr limit rate 5/second }`.
fn braces_of_meter(cursor: &Cursor, row: &Foreign) -> Option<usize> {
    let words = row.words.split(' ').count();
    let has_braces = cursor.kind_ahead(words + 1) == TokenKind::OpenBrace;
    (has_braces && matches!(row.words, "meter" | "flow table")).then_some(words + 2)
}

fn no_counter_state(cursor: &mut Cursor) -> Parse<()> {
    let what = match cursor.kind() {
        TokenKind::Word if matches!(cursor.slice(), "packets" | "bytes") => "counters that start at a value",
        TokenKind::Word if cursor.is_word("name") => "named counters",
        TokenKind::String => "named counters",
        _ => return Ok(()),
    };
    Err(cursor.report(
        Diagnostic::error("E0106", cursor.span(), format!("Weir does not have {what}"))
            .help("write only `counter`; every rule has its own counter, named by file and line"),
    ))
}

fn sample(cursor: &mut Cursor) -> Parse<Statement> {
    cursor.bump();
    let copies = value::number(cursor, "`1/N` after `sample`")?;
    cursor.expect(TokenKind::Slash, "`/` and the number of packets")?;
    let packets = value::number(cursor, "the number of packets after `/`")?;
    Ok(Statement::Sample { copies, packets })
}

fn synproxy(cursor: &mut Cursor) -> Parse<Statement> {
    let span = cursor.bump();
    match cursor.word() {
        Some("mss" | "wscale" | "sack-perm" | "timestamp" | "name") => Err(cursor.report(
            Diagnostic::error("E0106", cursor.span(), "Weir does not have options of `synproxy` in rules")
                .help("all rules share them: `tracking { synproxy mss 1460 wscale 7 sack-perm timestamp }`"),
        )),
        _ => Ok(Statement::Synproxy(span)),
    }
}

/// Parses a match, or a statement that begins like one (`ip saddr limit @customers`).
fn condition(cursor: &mut Cursor, rule: &mut Rule) -> Parse<()> {
    let start = cursor.span();
    if let Some(guard) = guard(cursor)? {
        after_statement(cursor, rule, start)?;
        rule.matches.push(Match::Guard(guard));
        return Ok(());
    }
    let subject = subject(cursor)?;
    if cursor.is_word("limit") {
        rule.statements.push(limit::of_list(cursor, subject)?);
        return Ok(());
    }
    after_statement(cursor, rule, start)?;
    rule.matches.push(comparison(cursor, subject)?);
    Ok(())
}

fn after_statement(cursor: &mut Cursor, rule: &Rule, start: crate::source::Span) -> Parse<()> {
    if rule.statements.is_empty() {
        return Ok(());
    }
    Err(cursor.report(
        Diagnostic::error("E0107", start, "a match comes after a statement")
            .label("this is tested too late")
            .note(rule.statements[0].span(), "the statements begin here")
            .help(
                "write all matches first, then `counter`, `sample`, `limit`, `add`, `update`, `track`, `synproxy` and the verdict",
            ),
    ))
}

/// Parses `tcp` without a field.
fn guard(cursor: &mut Cursor) -> Parse<Option<Name>> {
    let Some(word) = cursor.word().filter(|word| GUARD_WORDS.contains(word)) else { return Ok(None) };
    let next = cursor.kind_ahead(1);
    let ends = matches!(next, TokenKind::Newline | TokenKind::Semicolon | TokenKind::CloseBrace | TokenKind::End);
    let field = || Field::from_name(&format!("{} {}", cursor.slice_ahead(1), cursor.slice_ahead(2)));
    let statement = next == TokenKind::Word
        && (STATEMENT_WORDS.contains(&cursor.slice_ahead(1)) || cursor.slice_ahead(3) == "limit" && field().is_some());
    Ok((ends || statement).then(|| Name { text: word.to_owned(), span: cursor.bump() }))
}

fn operator(cursor: &mut Cursor) -> Operator {
    let operator = match cursor.kind() {
        TokenKind::Equal => Operator::Equal,
        TokenKind::NotEqual => Operator::NotEqual,
        TokenKind::Bang => Operator::NoneOf,
        TokenKind::Less => Operator::Less,
        TokenKind::LessEqual => Operator::LessEqual,
        TokenKind::Greater => Operator::Greater,
        TokenKind::GreaterEqual => Operator::GreaterEqual,
        TokenKind::Word => match cursor.slice() {
            "eq" => Operator::Equal,
            "ne" => Operator::NotEqual,
            "lt" => Operator::Less,
            "le" => Operator::LessEqual,
            "gt" => Operator::Greater,
            "ge" => Operator::GreaterEqual,
            _ => Operator::Implicit,
        },
        _ => Operator::Implicit,
    };
    if operator != Operator::Implicit {
        cursor.bump();
    }
    operator
}

fn comparison(cursor: &mut Cursor, subject: Subject) -> Parse<Match> {
    match cursor.kind() {
        TokenKind::Dot => {
            return Err(cursor.report(
                Diagnostic::error("E0106", cursor.span(), "Weir does not have concatenations")
                    .label("`.` joins two fields in nftables")
                    .help("write both matches in one rule: `ip saddr 192.0.2.1 tcp dport 22`"),
            ));
        }
        TokenKind::Assign => {
            return Err(cursor.report(
                Diagnostic::error("E0103", cursor.span(), "`=` is not a comparison").help("write `==` or no operator"),
            ));
        }
        _ => {}
    }
    foreign::refuse(cursor, Place::Comparison)?;
    let mask = match cursor.eat(TokenKind::Ampersand) {
        true => Some(value::value(cursor, "a mask after `&`")?),
        false => None,
    };
    let before = cursor.span();
    let operator = operator(cursor);
    let operator_span = if operator == Operator::Implicit { cursor.here() } else { before };
    if cursor.is(TokenKind::At) && mask.is_none() {
        return table(cursor, subject, operator, operator_span);
    }
    let of = match &subject {
        Subject::Named { layer, field } => format!("a value for `{} {}`", layer.text, field.text),
        Subject::Raw { .. } => "a value for the raw expression".to_owned(),
    };
    let values = value::values(cursor, &of)?;
    Ok(Match::Compare { subject, mask, operator, operator_span, values })
}

fn table(
    cursor: &mut Cursor,
    subject: Subject,
    operator: Operator,
    operator_span: crate::source::Span,
) -> Parse<Match> {
    if !matches!(operator, Operator::Implicit | Operator::Equal | Operator::NotEqual) {
        return Err(cursor.report(
            Diagnostic::error("E0310", operator_span, format!("`{}` cannot be used with a table", operator.text()))
                .help("an address is in a table (`@table`) or not (`!= @table`)"),
        ));
    }
    let table = cursor.referred("a table")?;
    let labels = match cursor.is(TokenKind::OpenBrace) {
        true => Some(value::set(cursor, "a label", &mut |cursor| value::label(cursor))?.0),
        false => None,
    };
    let span = subject.span().to(cursor.last_span());
    Ok(Match::Table { subject, operator, table, labels, span })
}
