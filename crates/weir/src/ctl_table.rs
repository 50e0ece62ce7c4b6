//! `weir ctl table`: changes and reads tables of a running Weir.

use crate::cli::{CtlOptions, Given, Order, TableAction};
use crate::ctl_question;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::report;
use weir_command::values::timeout_ms;
use weir_control::{
    Client, GivenEntries, ListOrder, Listing, Request, TABLE_ENTRIES_MAX, TableChanged, TableEntries, TableEntry,
    TableFound, TableOperation,
};
use weir_policy::diag::printable::printable;

/// Lines of a stream that are sent together, at most. Requests of so many bytes fit into the buffers of the connection.
const LINES_AT_ONCE: usize = 256;
/// Maximum number of bytes of these lines, unless it is one line.
const BYTES_AT_ONCE: usize = 1 << 14;

/// Runs the command for the table `name`.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn run(options: &CtlOptions, name: &str, action: &TableAction) -> Result<(), Failure> {
    if let TableAction::Stream { atomic } = action {
        return stream(options, name, *atomic);
    }
    let operation = operation(action)?;
    let Some(value) = ctl_question::ask(options, &request(name, &operation))? else { return Ok(()) };
    match action {
        TableAction::Count => {
            let entries: TableEntries = weir_control::read(value)?;
            match options.json {
                true => report::print_json(&count_json(&entries)),
                false => report::print(&count_text(&entries)),
            }
        }
        _ if options.json => report::print_json(&value),
        _ => report::print(&text(&operation, value)?),
    }
}

fn request(name: &str, operation: &TableOperation) -> Request {
    Request::Table { table: name.to_owned(), operation: operation.clone() }
}

/// The number of entries. Dynamic tables also report their size and what they refused.
fn count_json(TableEntries { table, total, size, refused, .. }: &TableEntries) -> Value {
    match (size, refused) {
        (Some(size), Some(refused)) => json!({ "table": table, "entries": total, "size": size, "refused": refused }),
        _ => json!({ "table": table, "entries": total }),
    }
}

fn count_text(TableEntries { table, total, size, refused, .. }: &TableEntries) -> String {
    let (table, total) = (printable(table), figures::grouped(*total as u64));
    let room = size.map(|size| format!(" of {}", figures::grouped(size as u64))).unwrap_or_default();
    let refused = refused.filter(|&refused| refused > 0).map(figures::grouped);
    let refused = refused.map(|refused| format!(", {refused} refused")).unwrap_or_default();
    format!("{table}: {total}{room} entries{refused}\n")
}

fn operation(action: &TableAction) -> Result<TableOperation, Failure> {
    Ok(match action {
        TableAction::Add { given: entries, timeout } => TableOperation::Add(given(entries, timeout.timeout_ms)?),
        TableAction::Update { given: entries, timeout } => TableOperation::Update(given(entries, timeout.timeout_ms)?),
        TableAction::Del { given: entries } => TableOperation::Del(given(entries, None)?),
        TableAction::Replace { file, atomic, force } => {
            TableOperation::Replace { file: absolute(file)?, atomic: *atomic, force: *force }
        }
        TableAction::Flush => TableOperation::Flush,
        TableAction::Get { address } => TableOperation::Get { address: address.clone() },
        TableAction::Count => TableOperation::List(Listing::default()),
        TableAction::List { top, by, idle_ms, from } => {
            let by = by.map(|by| match by {
                Order::Packets => ListOrder::Packets,
                Order::Rate => ListOrder::Rate,
            });
            TableOperation::List(Listing { top: *top, by, idle_ms: *idle_ms, from: *from })
        }
        TableAction::Stream { .. } => unreachable!("a stream has an operation in each line"),
    })
}

fn given(Given { entries, file, atomic }: &Given, timeout_ms: Option<u64>) -> Result<GivenEntries, Failure> {
    let file = file.as_deref().map(absolute).transpose()?;
    Ok(GivenEntries { entries: entries.clone(), file, timeout_ms, atomic: *atomic })
}

fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(file).map_err(|error| Failure::file(file, error))
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
        TableOperation::List(wanted) => {
            let TableEntries { entries, total, .. } = weir_control::read(value)?;
            entries.iter().for_each(|entry| _ = writeln!(text, "{}", shown(entry)));
            let shows_all = wanted.by.is_some() || wanted.idle_ms.is_some();
            if shows_all && entries.is_empty() {
                let _ = writeln!(text, "none of {} entries", figures::grouped(total as u64));
            } else if total == 0 {
                text += "no entry\n";
            } else if entries.len() < total && (!shows_all || entries.len() == wanted.top) {
                let total = figures::grouped(total as u64);
                let _ = writeln!(text, "{} of {total} entries (--top N, at most {TABLE_ENTRIES_MAX})", entries.len());
            }
        }
        _ => {
            let TableChanged { table, changed, refreshed, entries, reload_undoes, notices } =
                weir_control::read(value)?;
            notices.iter().for_each(|notice| _ = writeln!(text, "note: {}", printable(notice)));
            let (changed, entries) = (figures::grouped(changed as u64), figures::grouped(entries as u64));
            let refreshed = refreshed.map(|refreshed| format!(", {} refreshed", figures::grouped(refreshed as u64)));
            let refreshed = refreshed.unwrap_or_default();
            let until = if reload_undoes { " (until the lists are read again)" } else { "" };
            let _ = writeln!(text, "{}: {changed} changed{refreshed}, {entries} entries now{until}", printable(&table));
        }
    }
    Ok(text)
}

fn shown(TableEntry { entry, label, packets, bytes, last_s, pps, bps, timeout_s }: &TableEntry) -> String {
    let label = label.as_ref().map(|label| format!(",{}", printable(label))).unwrap_or_default();
    let expires = timeout_s.map(|seconds| format!(" expires in {seconds} s")).unwrap_or_default();
    let counted = packets
        .zip(*bytes)
        .map(|(packets, bytes)| format!(" {} packets {} bytes", figures::grouped(packets), figures::grouped(bytes)));
    let last = last_s.map(|seconds| format!(", last {seconds} s ago")).unwrap_or_default();
    let rate = pps.zip(*bps).map(|(pps, bps)| format!(", {pps} packets/s {bps} bit/s")).unwrap_or_default();
    format!("{entry}{label}{}{last}{rate}{expires}", counted.unwrap_or_default())
}

/// Sends each line of standard input and prints a line for it. A line that is refused does not end the stream. Lines
/// that arrive together are sent together.
fn stream(options: &CtlOptions, name: &str, atomic: bool) -> Result<(), Failure> {
    let mut client = Client::connect(&options.control)?;
    let mut input = BufReader::with_capacity(BYTES_AT_ONCE, io::stdin().lock());
    let (mut lines, mut refused) = (0u64, 0u64);
    loop {
        let together = next_lines(&mut input).map_err(|error| Failure::system("standard input", error))?;
        if together.is_empty() {
            break;
        }
        let operations: Vec<Result<TableOperation, String>> =
            together.iter().filter_map(|line| line_operation(line, atomic)).collect();
        let requests: Vec<Request> = operations.iter().flatten().map(|operation| request(name, operation)).collect();
        let mut answers = Vec::new();
        let outcome = ask_all(&mut client, options, &requests, &mut answers);
        let mut answers = answers.into_iter();
        let mut printed = String::new();
        for operation in &operations {
            let done = match operation {
                Ok(operation) => answers.next().map(|answer| answer.map(|value| (operation, value))),
                Err(problem) => Some(Err(weir_control::Error::Refused(format!("weir: {problem}")))),
            };
            let Some(done) = done else { break };
            lines += 1;
            refused += u64::from(done.is_err());
            printed.push_str(&line_answer(options, done)?);
        }
        report::print(&printed)?;
        outcome?;
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::Rejected(format!("weir: {refused} of {lines} lines were refused"))),
    }
}

/// The text for a line of a stream.
fn line_answer(
    options: &CtlOptions,
    done: Result<(&TableOperation, Value), weir_control::Error>,
) -> Result<String, Failure> {
    match done {
        Ok((_, value)) if options.json => Ok(format!("{value}\n")),
        Ok((operation, value)) => text(operation, value),
        Err(error) => {
            let problem = error.to_string();
            let problem = problem.trim_start_matches("weir: ");
            Ok(match options.json {
                true => format!("{}\n", json!({ "error": problem })),
                false => format!("error: {}\n", printable(problem)),
            })
        }
    }
}

/// Waits for a line. Returns it and those that have arrived with it; none at the end.
fn next_lines(input: &mut BufReader<impl Read>) -> io::Result<Vec<String>> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        bytes += input.read_line(&mut line)?;
        if line.is_empty() {
            return Ok(lines);
        }
        lines.push(line);
        let next = input.buffer().iter().position(|&byte| byte == b'\n');
        if next.is_none_or(|next| bytes + next >= BYTES_AT_ONCE) || lines.len() == LINES_AT_ONCE {
            return Ok(lines);
        }
    }
}

/// Sends requests and appends their answers. A server disconnects clients that were silent for long, so a closed
/// connection is opened again. Requests may then be executed twice, with the same result.
fn ask_all(
    client: &mut Client,
    options: &CtlOptions,
    requests: &[Request],
    answers: &mut Vec<Result<Value, weir_control::Error>>,
) -> Result<(), weir_control::Error> {
    match client.ask_all(requests, answers) {
        Err(weir_control::Error::NoAnswer { .. } | weir_control::Error::Connection { .. }) => {
            *client = Client::connect(&options.control)?;
            client.ask_all(&requests[answers.len()..], answers)
        }
        result => result,
    }
}

/// The operation of a line of a stream; `None` if the line is empty.
fn line_operation(line: &str, atomic: bool) -> Option<Result<TableOperation, String>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [verb, rest @ ..] = words.as_slice() else { return None };
    Some(operation_of(verb, rest, atomic))
}

fn operation_of(verb: &str, rest: &[&str], atomic: bool) -> Result<TableOperation, String> {
    let given =
        |entries: &[&str], timeout_ms: Option<u64>| GivenEntries { timeout_ms, atomic, ..GivenEntries::of(entries) };
    match (verb, rest) {
        ("add" | "update", [entries @ .., "timeout", time]) if !entries.is_empty() => {
            let timeout_ms = timeout_ms(time).map_err(|expected| format!("`timeout {time}`: not {expected}"))?;
            Ok(match verb {
                "add" => TableOperation::Add(given(entries, Some(timeout_ms))),
                _ => TableOperation::Update(given(entries, Some(timeout_ms))),
            })
        }
        ("add", [_, ..]) => Ok(TableOperation::Add(given(rest, None))),
        ("update", [_, ..]) => Ok(TableOperation::Update(given(rest, None))),
        ("del", [_, ..]) => Ok(TableOperation::Del(given(rest, None))),
        ("flush", []) => Ok(TableOperation::Flush),
        ("get", [address]) => Ok(TableOperation::Get { address: (*address).to_owned() }),
        _ => Err(format!(
            "`{verb}`: not `add ENTRY... [timeout T]`, `update ENTRY... [timeout T]`, `del ENTRY...`, `flush` or `get \
             ADDRESS`"
        )),
    }
}
