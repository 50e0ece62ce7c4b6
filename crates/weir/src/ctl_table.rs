//! `weir ctl table`: changes and reads tables of a running Weir.

use crate::cli::{CtlOptions, TableAction};
use crate::failure::Failure;
use crate::figures;
use crate::report;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, BufRead};
use weir_control::{
    Client, Request, TABLE_ENTRIES_MAX, TableChanged, TableEntries, TableEntry, TableFound, TableOperation,
};
use weir_policy::diag::printable::printable;

/// Runs the command for the table `name`.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn run(options: &CtlOptions, name: &str, action: &TableAction) -> Result<(), Failure> {
    if let TableAction::Stream = action {
        return stream(options, name);
    }
    let operation = operation(action)?;
    let value = weir_control::ask(&options.control, &request(name, &operation))?;
    match action {
        TableAction::Count => {
            let entries: TableEntries = weir_control::read(value)?;
            let TableEntries { table, total, .. } = entries;
            match options.json {
                true => report::print_json(&json!({ "table": table, "entries": total })),
                false => report::print(&format!("{}: {} entries\n", printable(&table), figures::grouped(total as u64))),
            }
        }
        _ if options.json => report::print_json(&value),
        _ => report::print(&text(&operation, value)?),
    }
}

fn request(name: &str, operation: &TableOperation) -> Request {
    Request::Table { table: name.to_owned(), operation: operation.clone() }
}

fn operation(action: &TableAction) -> Result<TableOperation, Failure> {
    Ok(match action {
        TableAction::Add { entries } => TableOperation::Add { entries: entries.clone() },
        TableAction::Del { entries } => TableOperation::Del { entries: entries.clone() },
        TableAction::Replace { file, force } => {
            let absolute = std::path::absolute(file).map_err(|error| Failure::file(file, error))?;
            TableOperation::Replace { file: absolute, force: *force }
        }
        TableAction::Flush => TableOperation::Flush,
        TableAction::Get { address } => TableOperation::Get { address: address.clone() },
        TableAction::Count => TableOperation::List { top: 0 },
        TableAction::List { top } => TableOperation::List { top: *top },
        TableAction::Stream => unreachable!("a stream has an operation in each line"),
    })
}

/// The answer to an operation as text.
fn text(operation: &TableOperation, value: Value) -> Result<String, Failure> {
    let mut text = String::new();
    match operation {
        TableOperation::Get { address } => {
            let TableFound { table, found } = weir_control::read(value)?;
            let found = found.map_or_else(|| "not in the table".to_owned(), |entry| shown(&entry));
            let _ = writeln!(text, "{}: {}: {found}", printable(&table), printable(address));
        }
        TableOperation::List { .. } => {
            let TableEntries { entries, total, .. } = weir_control::read(value)?;
            entries.iter().for_each(|entry| _ = writeln!(text, "{}", shown(entry)));
            if entries.len() < total {
                let total = figures::grouped(total as u64);
                let _ = writeln!(text, "{} of {total} entries (--top N, at most {TABLE_ENTRIES_MAX})", entries.len());
            }
        }
        _ => {
            let TableChanged { table, changed, entries, notices } = weir_control::read(value)?;
            notices.iter().for_each(|notice| _ = writeln!(text, "note: {}", printable(notice)));
            let (changed, entries) = (figures::grouped(changed as u64), figures::grouped(entries as u64));
            let _ = writeln!(text, "{}: {changed} changed, {entries} entries now", printable(&table));
        }
    }
    Ok(text)
}

fn shown(TableEntry { entry, label }: &TableEntry) -> String {
    match label {
        Some(label) => format!("{entry},{}", printable(label)),
        None => entry.clone(),
    }
}

/// Sends each line of standard input and prints a line for it. A line that is refused does not end the stream.
fn stream(options: &CtlOptions, name: &str) -> Result<(), Failure> {
    let mut client = Client::connect(&options.control)?;
    let (mut lines, mut refused) = (0u64, 0u64);
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::system("standard input", error))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [verb, rest @ ..] = words.as_slice() else { continue };
        lines += 1;
        let done = match line_operation(verb, rest) {
            Ok(operation) => ask(&mut client, options, &request(name, &operation)).map(|value| (operation, value)),
            Err(problem) => Err(weir_control::Error::Refused(format!("weir: {problem}"))),
        };
        let answer = match done {
            Ok((_, value)) if options.json => format!("{value}\n"),
            Ok((operation, value)) => text(&operation, value)?,
            Err(weir_control::Error::Refused(problem) | weir_control::Error::Failed(problem)) => {
                refused += 1;
                let problem = problem.trim_start_matches("weir: ");
                match options.json {
                    true => format!("{}\n", json!({ "error": problem })),
                    false => format!("error: {}\n", printable(problem)),
                }
            }
            Err(error) => return Err(error.into()),
        };
        report::print(&answer)?;
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::Rejected(format!("weir: {refused} of {lines} lines were refused"))),
    }
}

/// Sends a request. A server disconnects clients that were silent for long, so a closed connection is opened again. The
/// request may then be executed twice, with the same result.
fn ask(client: &mut Client, options: &CtlOptions, request: &Request) -> Result<Value, weir_control::Error> {
    match client.ask(request) {
        Err(weir_control::Error::NoAnswer { .. } | weir_control::Error::Connection { .. }) => {
            *client = Client::connect(&options.control)?;
            client.ask(request)
        }
        result => result,
    }
}

/// The operation of a line of a stream.
fn line_operation(verb: &str, rest: &[&str]) -> Result<TableOperation, String> {
    let entries = || rest.iter().map(|&entry| entry.to_owned()).collect();
    match (verb, rest) {
        ("add", [_, ..]) => Ok(TableOperation::Add { entries: entries() }),
        ("del", [_, ..]) => Ok(TableOperation::Del { entries: entries() }),
        ("flush", []) => Ok(TableOperation::Flush),
        ("get", [address]) => Ok(TableOperation::Get { address: (*address).to_owned() }),
        _ => Err(format!("`{verb}`: not `add ENTRY...`, `del ENTRY...`, `flush` or `get ADDRESS`")),
    }
}
