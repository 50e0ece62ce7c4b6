//! All scenarios, one after the other. Each has a process of its own: scenarios pin their threads, and DPDK starts once
//! a process.

use crate::options::Options;
use crate::plan::SMOKE;
use crate::scale::Scale;
use serde::Serialize;
use serde_json::Value;
use std::env;
use std::process::{Command, Stdio};
use weir_command::failure::Failure;
use weir_command::report;

/// The JSON objects of all scenarios. The object of a scenario that failed has its `error`.
#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    scenarios: Vec<Value>,
    failed: Vec<&'static str>,
}

/// Runs the scenarios. One that fails does not keep the others from running.
///
/// # Errors
/// A scenario failed.
pub fn run(names: &[&'static str], options: &Options) -> Result<(), Failure> {
    let mut report =
        Report { note: (options.scale() == Scale::Smoke).then_some(SMOKE), scenarios: Vec::new(), failed: Vec::new() };
    for name in names {
        let (succeeded, result) = run_one(name, options)?;
        report.scenarios.extend(result);
        if !succeeded {
            report.failed.push(name);
        }
    }
    if options.json {
        report::print_json(&report)?;
    }
    let failed = report.failed;
    if failed.is_empty() {
        return Ok(());
    }
    let failure =
        Failure::Runtime(format!("{} of {} scenarios failed: {}", failed.len(), names.len(), failed.join(", ")));
    Err(if options.json { failure.reported() } else { failure })
}

/// Runs a scenario with the same options. Returns whether it succeeded, and its JSON object if one is printed.
fn run_one(name: &str, options: &Options) -> Result<(bool, Option<Value>), Failure> {
    let own = |error| Failure::Runtime(format!("this program: {error}"));
    let mut command = Command::new(env::current_exe().map_err(own)?);
    command.arg(name).args(["--of-all", "--data"]).arg(&options.data).stdin(Stdio::null()).stderr(Stdio::inherit());
    command.args(match options.scale() {
        Scale::Full => None,
        Scale::Quick => Some("--quick"),
        Scale::Smoke => Some("--smoke"),
    });
    if !options.json {
        return Ok((command.stdout(Stdio::inherit()).status().map_err(own)?.success(), None));
    }
    let output = command.arg("--json").output().map_err(own)?;
    let mut object = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| Value::Object(Default::default()));
    object["scenario"] = name.into();
    Ok((output.status.success(), Some(object)))
}
