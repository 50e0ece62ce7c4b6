//! `weir ctl`: asks a running Weir, and shows what it says.

use crate::cli::{CtlCommand, CtlOptions};
use crate::control::{Request, client};
use crate::failure::Failure;
use crate::report;
use crate::run::stats::{DirectionStats, Stats, Status};
use serde_json::Value;
use std::fmt::Write;

/// Runs the command.
///
/// # Errors
/// Nobody listens, or the request is refused.
pub fn run(options: &CtlOptions) -> Result<(), Failure> {
    let request = match &options.command {
        CtlCommand::Status => Request::Status,
        CtlCommand::Stats => Request::Stats,
        CtlCommand::Load { policy } => {
            let policy = std::path::absolute(policy).map_err(|error| Failure::file(policy, error))?;
            Request::Load { policy }
        }
        CtlCommand::Activate { generation, confirm } => {
            Request::Activate { generation: *generation, confirm_s: confirm.map(|time| time.as_secs_f64()) }
        }
        CtlCommand::Confirm => Request::Confirm,
        CtlCommand::Rollback => Request::Rollback,
        CtlCommand::Posture { name } => Request::Posture { name: name.clone() },
    };
    let value = client::ask(&options.control, &request)?;
    if options.json {
        return report::print_json(&value);
    }
    report::print(&match request {
        Request::Stats => stats(&read(value)?),
        Request::Load { .. } => format!("generation {} stands ready\n", value["generation"]),
        _ => status(&read(value)?),
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|error| Failure::Runtime(format!("not an answer of this weir: {error}")))
}

fn status(status: &Status) -> String {
    let posture = status.posture.as_deref().map(|name| format!(", posture {name}")).unwrap_or_default();
    let mut text = format!(
        "generation {}{posture}; {} workers, up {:.0} s, {} activations\n",
        status.generation, status.workers, status.uptime_s, status.activations
    );
    for access in &status.access {
        let _ = writeln!(text, "{access}");
    }
    if let Some(left) = status.confirm_left_s {
        let _ = writeln!(text, "goes back in {left:.0} s unless confirmed");
    }
    for generation in &status.generations {
        let marks =
            [(generation.id == status.generation, " active"), (status.rollback_to == Some(generation.id), " rollback")];
        let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        let _ = writeln!(text, "  {:>4}  {} ({} rules){marks}", generation.id, generation.policy, generation.rules);
    }
    text
}

fn stats(stats: &Stats) -> String {
    let mut text = String::new();
    for (name, direction) in [("upstream", &stats.upstream), ("downstream", &stats.downstream)] {
        let DirectionStats { current, total } = direction;
        let _ = writeln!(
            text,
            "{name}: {} packets ({} in total), {} passed, {} dropped, {} diverted",
            report::grouped(current.packets),
            report::grouped(total.packets),
            report::grouped(current.passed),
            report::grouped(current.dropped),
            report::grouped(current.diverted)
        );
        for (reason, packets) in &current.reasons {
            let _ = writeln!(text, "  {:>14}  {reason}", report::grouped(*packets));
        }
    }
    for port in &stats.interfaces {
        let dropped = &port.tx_dropped;
        let lost = dropped.tx_full + dropped.link_down + dropped.tx_too_long + dropped.no_divert;
        let _ = writeln!(
            text,
            "{} ({}): {} received, {} sent, {} missed, {} not sent",
            port.interface,
            port.side,
            report::grouped(port.rx_packets),
            report::grouped(port.tx_packets),
            report::grouped(port.rx_missed),
            report::grouped(lost)
        );
    }
    text
}
