//! Requests of `weir ctl`, and what it says if there is nothing to show.

use crate::cli::CtlOptions;
use serde_json::{Value, json};
use weir_command::failure::Failure;
use weir_command::report;
use weir_control::Request;
use weir_policy::diag::printable::printable;

/// Sends a request. If it is a question and there is nothing to show, says why and returns `None`: that is an answer
/// (docs/reference/commands.md), so the exit code is 0.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn ask(options: &CtlOptions, request: &Request) -> Result<Option<Value>, Failure> {
    match weir_control::ask(&options.control, request) {
        Err(weir_control::Error::Nothing(why)) if request.is_question() => {
            if options.json {
                report::print_json(&json!({ "nothing": why }))?;
            } else {
                report::print(&format!("{}\n", printable(&why)))?;
            }
            Ok(None)
        }
        answer => Ok(Some(answer?)),
    }
}
