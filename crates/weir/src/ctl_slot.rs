//! `weir ctl slot`: lists and changes the rules of a slot.

use crate::cli::{CtlOptions, SlotAction};
use crate::ctl_question;
use std::fmt::Write;
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::report;
use weir_control::{Request, SlotChanged, SlotListed, SlotOperation};
use weir_policy::diag::printable::printable;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn run(options: &CtlOptions, slot: &str, action: &SlotAction) -> Result<(), Failure> {
    let operation = match action {
        SlotAction::Add { rule, timeout } => {
            SlotOperation::Add { rule: rule.join(" "), timeout_ms: timeout.timeout_ms }
        }
        SlotAction::Replace { number, rule, timeout } => {
            SlotOperation::Replace { number: *number, rule: rule.join(" "), timeout_ms: timeout.timeout_ms }
        }
        SlotAction::Del { number } => SlotOperation::Del { number: *number },
        SlotAction::Flush => SlotOperation::Flush,
        SlotAction::List => SlotOperation::List,
    };
    let lists = operation == SlotOperation::List;
    let Some(value) = ctl_question::ask(options, &Request::Slot { slot: slot.to_owned(), operation })? else {
        return Ok(());
    };
    if options.json {
        return report::print_json(&value);
    }
    report::print(&if lists { listed(&weir_control::read(value)?) } else { changed(&weir_control::read(value)?) })
}

fn changed(SlotChanged { number, rules, size }: &SlotChanged) -> String {
    let number = number.map(|number| format!("rule {number}; ")).unwrap_or_default();
    format!("{number}{rules} of {size} rules\n")
}

fn listed(SlotListed { slot, size, rules }: &SlotListed) -> String {
    let mut text = format!("{}: {} of {size} rules\n", printable(slot), rules.len());
    for rule in rules {
        let timeout = rule.timeout_s.map(|seconds| format!(", {seconds:.0} s left")).unwrap_or_default();
        let dropped = match rule.dropped == rule.packets {
            true => String::new(),
            false => format!(", {} dropped", figures::grouped(rule.dropped)),
        };
        let _ = writeln!(
            text,
            "{:>4}  {}\n      {} packets, {}{dropped}, {:.0} pps{timeout}",
            rule.number,
            printable(&rule.rule),
            figures::grouped(rule.packets),
            figures::bytes(rule.bytes),
            rule.rate_pps
        );
    }
    text
}
