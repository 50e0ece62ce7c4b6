//! `weir ctl flows`: asks for tracked flows, and ends them.

use crate::cli::{CtlOptions, FlowsAction, FlowsOptions};
use crate::ctl_question;
use std::fmt::Write;
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::report;
use weir_control::{FlowEntry, FlowOperation, FlowsCounted, FlowsKilled, FlowsListed, Request};
use weir_policy::diag::printable::printable;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn run(options: &CtlOptions, flows: &FlowsOptions) -> Result<(), Failure> {
    let operation = match &flows.action {
        None => FlowOperation::List { top: flows.top, state: flows.state.clone(), matches: flows.matches.clone() },
        Some(FlowsAction::Count) => FlowOperation::Count,
        Some(FlowsAction::Kill { matches }) => FlowOperation::Kill { matches: matches.join(" ") },
    };
    let Some(value) = ctl_question::ask(options, &Request::Flows { operation: operation.clone() })? else {
        return Ok(());
    };
    if options.json {
        return report::print_json(&value);
    }
    report::print(&match operation {
        FlowOperation::List { .. } => listed(&weir_control::read(value)?),
        FlowOperation::Count => counted(&weir_control::read(value)?),
        FlowOperation::Kill { .. } => {
            let FlowsKilled { killed } = weir_control::read(value)?;
            format!("{} ended\n", figures::grouped(killed as u64))
        }
    })
}

fn listed(FlowsListed { total, flows }: &FlowsListed) -> String {
    let mut text: String = flows.iter().map(shown).collect();
    if flows.is_empty() {
        text += "no flow\n";
    } else if flows.len() < *total {
        let total = figures::grouped(*total as u64);
        let _ = writeln!(text, "{} of {total} flows (--top N)", flows.len());
    }
    text
}

fn shown(flow: &FlowEntry) -> String {
    let end = |address: std::net::IpAddr, port: Option<u16>| match port {
        Some(port) => std::net::SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    };
    let FlowEntry { protocol, saddr, sport, daddr, dport, vlan, state, replied, liberal, idle_s, expires_s } = flow;
    let mut text = format!("{} {} -> {} {}", printable(protocol), end(*saddr, *sport), end(*daddr, *dport), state);
    if let Some([outer, inner]) = vlan {
        let _ = write!(text, " vlan {outer} {inner}");
    }
    for (note, holds) in [("unreplied", !replied), ("liberal", *liberal)] {
        let _ = if holds { write!(text, " {note}") } else { Ok(()) };
    }
    let _ = writeln!(text, " idle {idle_s:.1} s, expires in {expires_s:.0} s");
    text
}

fn counted(counted: &FlowsCounted) -> String {
    let FlowsCounted { size, flows, embryonic, unproven, closing, states } = counted;
    let grouped = figures::grouped;
    let mut text = format!("{} flows, size {}", grouped(*flows), grouped((*size).into()));
    for (count, class) in [(embryonic, "embryonic"), (unproven, "unproven"), (closing, "closing")] {
        let _ = write!(text, ", {} {class}", grouped(*count));
    }
    text.push('\n');
    for (state, count) in states {
        let _ = writeln!(text, "{:>12}  {}", grouped(*count), printable(state));
    }
    text
}
