//! `weir ctl upgrade`: begins an upgrade, and waits until the new program answers.

use crate::cli::CtlOptions;
use std::fmt::Write;
use std::thread;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_command::report;
use weir_control::{Carried, Error, Request, UpgradeStatus};
use weir_policy::diag::printable::printable;

/// Pause between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs the command.
///
/// # Errors
/// The new program is refused, or cannot take over.
pub fn run(options: &CtlOptions) -> Result<(), Failure> {
    let ask = |begin: bool| -> Result<UpgradeStatus, Error> {
        weir_control::read(weir_control::ask(&options.control, &Request::Upgrade { begin })?)
    };
    let begun = ask(true)?;
    let done = loop {
        match ask(false) {
            Ok(status) if status.upgrades > begun.upgrades => break status,
            Ok(UpgradeStatus { refused: Some(why), .. }) => {
                return Err(Failure::Runtime(format!("weir: not upgraded: {why}")));
            }
            // The old program was asked. Its connections end when the new one begins, and the next one waits for it.
            Ok(_) | Err(Error::Connection { .. } | Error::NoAnswer { .. } | Error::Failed(_)) => thread::sleep(PAUSE),
            Err(error @ Error::Connect { .. }) => {
                return Err(Failure::Runtime(format!("weir has ended during the upgrade; its log says why: {error}")));
            }
            Err(error) => return Err(error.into()),
        }
    };
    match options.json {
        true => report::print_json(&done),
        false => report::print(&text(&done)),
    }
}

fn text(done: &UpgradeStatus) -> String {
    let mut text = String::new();
    let carried = done.carried.clone().unwrap_or_default();
    let Carried { from_version, interfaces, flow_tables, flows_from_file, tables, missing } = carried;
    let _ = writeln!(text, "upgraded from {} to {}, process {}", printable(&from_version), done.version, done.pid);
    let _ = match interfaces {
        0 => writeln!(text, "the engine was stopped and started: packets were lost or bypassed meanwhile"),
        count => writeln!(text, "programs of {count} interfaces replaced, each without a moment in between"),
    };
    let flows = if flows_from_file { ", flows from a file as after a restart" } else { "" };
    let _ = writeln!(text, "carried over: {flow_tables} tables of flows, {tables} dynamic tables{flows}");
    missing.iter().for_each(|missing| _ = writeln!(text, "not carried over: {}", printable(missing)));
    text
}
