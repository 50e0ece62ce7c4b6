//! `weir ctl`: sends a request to a running Weir and prints the answer, as text or as JSON. It uses only the protocol,
//! no code of `weir run`.

use crate::cli::{CtlCommand, CtlOptions};
use crate::ctl_attacks;
use crate::ctl_card;
use crate::ctl_features;
use crate::ctl_flows;
use crate::ctl_slot;
use crate::ctl_table;
use crate::ctl_updates;
use crate::ctl_upgrade;
use std::fmt::Write;
use weir_command::additions;
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::limit_counts;
use weir_command::report;
use weir_control::{
    Activating, Active, AutomaticPosture, DirectionStats, FlowsStatus, InterfaceStats, InterfaceStatus, LimitsStatus,
    LinkState, Ready, Request, StateStatus, Stats, Status, TxDropped, WorkerStats,
};
use weir_policy::diag::printable::printable;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn run(options: &CtlOptions) -> Result<(), Failure> {
    if let CtlCommand::Table { name, action } = &options.command {
        return ctl_table::run(options, name, action);
    }
    if let CtlCommand::Slot { name, action } = &options.command {
        return ctl_slot::run(options, name, action);
    }
    if let CtlCommand::Attacks { action } = &options.command {
        return ctl_attacks::run(options, action.as_ref());
    }
    if let CtlCommand::Flows(flows) = &options.command {
        return ctl_flows::run(options, flows);
    }
    if let CtlCommand::Upgrade = &options.command {
        return ctl_upgrade::run(options);
    }
    let request = match &options.command {
        CtlCommand::Status => Request::Status,
        CtlCommand::Stats => Request::Stats,
        CtlCommand::Limits { top, list } => Request::Limits { top: *top, list: list.clone() },
        CtlCommand::Features { top } => Request::Features { top: *top },
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
        CtlCommand::Reload { force } => Request::Reload { force: *force },
        CtlCommand::Card { top } => Request::Card { top: *top },
        CtlCommand::Upgrade
        | CtlCommand::Attacks { .. }
        | CtlCommand::Flows(_)
        | CtlCommand::Slot { .. }
        | CtlCommand::Table { .. } => {
            unreachable!("it has a module of its own")
        }
    };
    let value = weir_control::ask(&options.control, &request)?;
    if options.json {
        return report::print_json(&value);
    }
    report::print(&match request {
        Request::Stats => stats(&weir_control::read(value)?),
        Request::Limits { .. } => limits(&weir_control::read(value)?),
        Request::Features { .. } => ctl_features::text(&weir_control::read(value)?),
        Request::Load { .. } => ready(weir_control::read(value)?),
        Request::Card { .. } => ctl_card::report(&weir_control::read(value)?),
        Request::Reload { .. } => ctl_updates::reloaded(&weir_control::read(value)?),
        _ => status(&weir_control::read(value)?),
    })
}

fn ready(ready: Ready) -> String {
    format!("generation {} is ready\n", ready.generation)
}

fn status(status: &Status) -> String {
    let active = |generation: u64, posture: &Option<String>| Active { generation, posture: posture.clone() };
    let mut text = format!(
        "{}; {} workers, up {:.0} s, {} activations\n",
        active(status.generation, &status.posture),
        status.workers,
        status.uptime_s,
        status.activations
    );
    for access in &status.access {
        let _ = writeln!(text, "{access}");
    }
    let _ = writeln!(text, "on exit {}", status.on_exit);
    status.interfaces.iter().for_each(|interface| text += &state_of(interface));
    for interface in &status.taken_down {
        let _ = writeln!(text, "{interface} is down, because the opposite interface has no link");
    }
    if let Some(AutomaticPosture { posture, in_place_of }) = &status.automatic {
        let instead = in_place_of.as_ref().map_or("the base policy".to_owned(), |posture| format!("posture {posture}"));
        let _ = writeln!(text, "posture {posture} is automatic, in place of {instead}");
    }
    if let Some(Activating { generation, posture, since_s }) = &status.activating {
        let _ = writeln!(text, "activating {} for {since_s:.0} s", active(*generation, posture));
    }
    for stray in &status.mixed {
        let _ = writeln!(text, "mixed: {stray}");
    }
    if let Some(StateStatus { folder, error, unread, .. }) = &status.state {
        let _ = match error {
            None => writeln!(text, "state in {}", printable(folder)),
            Some(error) => writeln!(text, "state is not saved to {}: {}", printable(folder), printable(error)),
        };
        for name in unread {
            let _ = writeln!(text, "state that was not restored is kept as {}", printable(name));
        }
    }
    if let Some(FlowsStatus { size, used, closing, is_short, refused }) = status.flows {
        let short = if is_short { ": room is short" } else { "" };
        let refused =
            if refused > 0 { format!("; {} packets refused", figures::grouped(refused)) } else { String::new() };
        let [used, size, closing] = [used, size, closing].map(figures::grouped);
        let _ = writeln!(text, "{used} of {size} flows, and {closing} closing{short}{refused}");
    }
    let target = status.rollback_to.map(|generation| active(generation, &status.rollback_posture));
    match (status.confirm_left_s, target) {
        (Some(left), Some(target)) => {
            _ = writeln!(text, "on trial: rolls back to {target} in {left:.0} s unless confirmed")
        }
        (Some(left), None) => {
            _ = writeln!(text, "on trial: weir ends in {left:.0} s and everything passes, unless confirmed")
        }
        (None, Some(target)) => _ = writeln!(text, "rollback target: {target}"),
        (None, None) => {}
    }
    text += &ctl_updates::status(&status.updates);
    for generation in &status.generations {
        let active = if status.confirm_left_s.is_some() { " on trial" } else { " active" };
        let mark = if generation.id == status.generation { active } else { "" };
        let _ = writeln!(text, "  {:>4}  {} ({} rules){mark}", generation.id, generation.policy, generation.rules);
    }
    text
}

/// The state of an interface, in one line.
fn state_of(interface: &InterfaceStatus) -> String {
    let InterfaceStatus { interface, side, state, mtu, longest_frame, too_long, problem } = interface;
    let state = match state {
        LinkState::Up => "up",
        LinkState::NoLink => "NO LINK",
        LinkState::Down => "DOWN",
        LinkState::Gone => "REMOVED",
    };
    let mut text = format!("{side} {}: {state}", printable(interface));
    if let Some(mtu) = mtu {
        let _ = write!(text, ", MTU {mtu}");
    }
    if let Some(longest) = longest_frame {
        let _ = write!(text, ", receives frames of up to {} bytes", figures::grouped((*longest).into()));
    }
    if *too_long > 0 {
        let _ = write!(text, ", {} packets were too long", figures::grouped(*too_long));
    }
    if let Some(problem) = problem {
        let _ = write!(text, ": {}", printable(problem));
    }
    text + "\n"
}

fn stats(stats: &Stats) -> String {
    let mut text = String::new();
    for (name, direction) in [("upstream", &stats.upstream), ("downstream", &stats.downstream)] {
        let DirectionStats { current, total } = direction;
        let replied = match current.replied {
            0 => String::new(),
            replied => format!(" {} answered,", figures::grouped(replied)),
        };
        let _ = writeln!(
            text,
            "{name}: {} packets ({} in total), {} passed, {} dropped, {} diverted,{replied} {} sampled",
            figures::grouped(current.packets),
            figures::grouped(total.packets),
            figures::grouped(current.passed),
            figures::grouped(current.dropped),
            figures::grouped(current.diverted),
            figures::grouped(current.sampled)
        );
        for (reason, packets) in &current.reasons {
            let _ = writeln!(text, "  {:>14}  {reason}", figures::grouped(*packets));
        }
        for table in &current.tables {
            let _ = writeln!(text, "  {:>14}  by rules with @{}", figures::grouped(table.packets), table.table);
        }
    }
    let busy = |worker: &&WorkerStats| worker.upstream.current.packets + worker.downstream.current.packets > 0;
    // With a single worker this would repeat the sums.
    for worker in stats.workers.iter().filter(|_| stats.workers.len() > 1).filter(busy) {
        let _ = writeln!(
            text,
            "worker {}: {} packets upstream, {} downstream",
            worker.worker,
            figures::grouped(worker.upstream.current.packets),
            figures::grouped(worker.downstream.current.packets)
        );
    }
    if let Some(card) = &stats.card {
        let (now, total) = (card.upstream.current.dropped, card.upstream.total.dropped);
        let _ =
            writeln!(text, "card: {} packets dropped ({} in total)", figures::grouped(now), figures::grouped(total));
    }
    stats.interfaces.iter().for_each(|port| text += &interface(port));
    text + &additions::describe(&stats.additions)
}

fn limits(status: &LimitsStatus) -> String {
    if status.total.limits == 0 {
        return "no limits are counted: no list that a rule uses has `log exceeded` or `log all`\n".to_owned();
    }
    let (limits, exceeded) = (figures::grouped(status.total.limits), figures::grouped(status.total.exceeded));
    format!("{limits} limits, {exceeded} of them exceeded\n{}", limit_counts::describe(&status.limits))
}

fn interface(port: &InterfaceStats) -> String {
    let InterfaceStats {
        interface,
        side,
        rx_packets,
        rx_bytes: _,
        tx_packets,
        tx_bytes: _,
        rx_missed,
        rx_too_long,
        sampled: _,
        tx_dropped,
    } = port;
    let TxDropped { tx_full, link_down, tx_too_long, tx_unsupported, tx_error, no_divert } = *tx_dropped;
    let (received, sent) = (figures::grouped(*rx_packets), figures::grouped(*tx_packets));
    let mut text = format!("{interface} ({side}): {received} received, {sent} sent");
    let losses = [
        ("missed", rx_missed.unwrap_or_default()),
        ("too long to receive", *rx_too_long),
        ("not sent: tx-full", tx_full),
        ("not sent: link-down", link_down),
        ("not sent: tx-too-long", tx_too_long),
        ("not sent: tx-unsupported", tx_unsupported),
        ("not sent: tx-error", tx_error),
        ("not diverted: no-divert", no_divert),
    ];
    for (what, packets) in losses.into_iter().filter(|(_, packets)| *packets > 0) {
        let _ = write!(text, ", {} {what}", figures::grouped(packets));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::{stats, status};
    use serde_json::json;

    #[test]
    fn status_shows_the_trial_and_the_rollback_target() {
        let generation =
            |id: u64| json!({ "id": id, "policy": format!("/p{id}.weir"), "postures": ["high"], "rules": 2 });
        let mut value = json!({
            "uptime_s": 7.0, "workers": 2, "access": [], "generation": 1, "posture": null, "on_exit": "block", "taken_down": [],
            "activations": 3, "confirm_left_s": null, "rollback_to": 1, "rollback_posture": "high", "activating": null, "mixed": [],
            "generations": [generation(1), generation(2)],
        });
        let mut text = |changes: serde_json::Value| {
            value.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
            status(&serde_json::from_value(value.clone()).expect("a status"))
        };
        // The rollback target of the base policy is a posture of the same generation.
        assert_eq!(
            text(json!({})),
            "generation 1; 2 workers, up 7 s, 3 activations\non exit block\nrollback target: generation 1, posture high\n     \
             1  /p1.weir (2 rules) active\n     2  /p2.weir (2 rules)\n"
        );
        let activating = json!({ "generation": 1, "posture": null, "since_s": 12.3 });
        assert_eq!(
            text(
                json!({ "generation": 2, "confirm_left_s": 30.2, "activating": activating, "mixed": ["worker 1 decides by generation 1"] })
            ),
            "generation 2; 2 workers, up 7 s, 3 activations\non exit block\nactivating generation 1 for 12 s\n\
             mixed: worker 1 decides by generation 1\non trial: rolls back to generation 1, posture high in 30 s unless confirmed\n     \
             1  /p1.weir (2 rules)\n     2  /p2.weir (2 rules) on trial\n"
        );
        // The first policy, with nothing before it.
        assert_eq!(
            text(json!({ "rollback_to": null, "rollback_posture": null, "activating": null, "mixed": [] })),
            "generation 2; 2 workers, up 7 s, 3 activations\non exit block\n\
             on trial: weir ends in 30 s and everything passes, unless confirmed\n     \
             1  /p1.weir (2 rules)\n     2  /p2.weir (2 rules) on trial\n"
        );
        for (in_place_of, said) in [(json!(null), "the base policy"), (json!("low"), "posture low")] {
            let automatic = json!({ "posture": "high", "in_place_of": in_place_of });
            let said = format!("\nposture high is automatic, in place of {said}\n");
            assert!(text(json!({ "posture": "high", "automatic": automatic })).contains(&said), "{said}");
        }
    }

    #[test]
    fn status_shows_the_state_of_each_interface() {
        let status = |interfaces: serde_json::Value| {
            let value = json!({
                "uptime_s": 7.0, "workers": 1, "access": [], "generation": 1, "posture": null, "on_exit": "block",
                "interfaces": interfaces, "taken_down": [], "activations": 0, "confirm_left_s": null,
                "rollback_to": null, "rollback_posture": null, "activating": null, "mixed": [], "generations": [],
            });
            status(&serde_json::from_value(value).expect("a status"))
        };
        let one = |name: &str, state: &str, mtu: Option<u32>, longest: Option<u32>| {
            json!({
                "interface": name, "side": "lower", "state": state, "mtu": mtu, "longest_frame": longest, "too_long": 0
            })
        };
        let mut long = one("eth0", "up", Some(9000), Some(3840));
        (long["too_long"], long["problem"]) = (json!(1234), json!("they are lost"));
        let text = status(json!([
            long,
            one("eth1", "no-link", Some(1500), None),
            one("net_ring0", "up", None, None),
            one("e\u{1b}", "down", Some(1500), None),
            one("eth3", "gone", None, None),
        ]));
        let lines: Vec<&str> = text.lines().skip(2).take(5).collect();
        assert_eq!(
            lines,
            [
                "lower eth0: up, MTU 9000, receives frames of up to 3,840 bytes, 1,234 packets were too long: they are lost",
                "lower eth1: NO LINK, MTU 1500",
                "lower net_ring0: up",
                "lower e\\x1b: DOWN, MTU 1500",
                "lower eth3: REMOVED",
            ]
        );
    }

    #[test]
    fn stats_as_text() {
        let outcome = json!({ "packets": 1234, "bytes": 99, "passed": 1000, "dropped": 234, "diverted": 0 });
        let tally = |packets: u64| {
            json!({ "packets": packets, "bytes": 99, "passed": 1000, "dropped": 234, "diverted": 0, "sampled": 7, "rules": [],
                "reasons": { "no-match": 1000, "edge.weir:9": 234 }, "tables": [{ "table": "bad", "packets": 234, "bytes": 9 }] })
        };
        let both = |current: &serde_json::Value, total: serde_json::Value| {
            let mut both = current.clone();
            both["total"] = total;
            both
        };
        let worker = |number: u64| {
            let share = both(&outcome, outcome.clone());
            json!({ "worker": number, "upstream": share, "downstream": share, "interfaces": [] })
        };
        let direction = both(&tally(1234), tally(5000));
        let value = json!({
            "upstream": direction, "downstream": direction, "workers": [worker(0), worker(1)],
            "interfaces": [{
                "interface": "eth0", "side": "lower", "rx_packets": 1234, "rx_bytes": 99, "tx_packets": 5, "tx_bytes": 6, "rx_missed": 2,
                "sampled": 0, "tx_dropped": { "tx-full": 0, "link-down": 3, "tx-too-long": 0, "tx-unsupported": 0, "tx-error": 0,
                                "no-divert": 0 },
            }],
            "additions": { "added": 3, "updated": 0, "additions-overflow": 1, "table-full": 0, "protected": 0 },
        });
        let text = stats(&serde_json::from_value(value).expect("stats"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "upstream: 1,234 packets (5,000 in total), 1,000 passed, 234 dropped, 0 diverted, 7 sampled",
                "             234  edge.weir:9",
                "           1,000  no-match",
                "             234  by rules with @bad",
            ]
        );
        assert_eq!(
            lines[8..],
            [
                "worker 0: 1,234 packets upstream, 1,234 downstream",
                "worker 1: 1,234 packets upstream, 1,234 downstream",
                "eth0 (lower): 1,234 received, 5 sent, 2 missed, 3 not sent: link-down",
                "rules added 3 entries to tables and updated 0, additions-overflow 1",
            ]
        );
    }
}
