//! `weir ctl`: sends a request to a running Weir and prints the answer, as text or as JSON. It uses only the protocol,
//! no code of `weir run`.

use crate::cli::{Cli, CtlCommand, CtlOptions};
use crate::ctl_attacks;
use crate::ctl_capture;
use crate::ctl_card;
use crate::ctl_export;
use crate::ctl_features;
use crate::ctl_flows;
use crate::ctl_question;
use crate::ctl_shadow;
use crate::ctl_slot;
use crate::ctl_stats;
use crate::ctl_table;
use crate::ctl_updates;
use crate::ctl_upgrade;
use clap::CommandFactory;
use std::fmt::Write;
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::limit_counts;
use weir_command::report;
use weir_control::{
    Activating, Active, AutomaticPosture, FlowsStatus, InterfaceStatus, KeptStatus, LimitsStatus, LinkState, Ready,
    Request, ShadowStatus, StateStatus, Status,
};
use weir_policy::diag::printable::printable;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn run(options: &CtlOptions) -> Result<(), Failure> {
    let request = match &options.command {
        CtlCommand::Attacks { action } => return ctl_attacks::run(options, action.as_ref()),
        CtlCommand::Capture(capture) => return ctl_capture::run(options, capture),
        CtlCommand::Flows(flows) => return ctl_flows::run(options, flows),
        CtlCommand::Help { request } => return help(request),
        CtlCommand::Shadow { action } => return ctl_shadow::run(options, action.as_ref()),
        CtlCommand::Slot { name, action } => return ctl_slot::run(options, name, action),
        CtlCommand::Stats(stats) => return ctl_stats::run(options, stats),
        CtlCommand::Table { name, action } => return ctl_table::run(options, name, action),
        CtlCommand::Upgrade => return ctl_upgrade::run(options),
        CtlCommand::Status => Request::Status,
        CtlCommand::Limits { top, list } => Request::Limits { top: *top, list: list.clone() },
        CtlCommand::Features { top } => Request::Features { top: *top },
        CtlCommand::Load { policy } => {
            let policy = std::path::absolute(policy).map_err(|error| Failure::file(policy, error))?;
            Request::Load { policy }
        }
        CtlCommand::Unload { generation } => Request::Unload { generation: *generation },
        CtlCommand::Activate { generation, confirm } => {
            Request::Activate { generation: *generation, confirm_s: confirm.map(|time| time.as_secs_f64()) }
        }
        CtlCommand::Reconfigure { confirm } => {
            Request::Reconfigure { confirm_s: confirm.map(|time| time.as_secs_f64()) }
        }
        CtlCommand::Confirm => Request::Confirm,
        CtlCommand::Rollback => Request::Rollback,
        CtlCommand::Posture { name } => Request::Posture { name: name.clone() },
        CtlCommand::Reload { force } => Request::Reload { force: *force },
        CtlCommand::Card { top } => Request::Card { top: *top },
    };
    let Some(value) = ctl_question::ask(options, &request)? else { return Ok(()) };
    if options.json {
        return report::print_json(&value);
    }
    report::print(&match request {
        Request::Limits { .. } => limits(&weir_control::read(value)?),
        Request::Features { .. } => ctl_features::text(&weir_control::read(value)?),
        Request::Load { .. } => ready(weir_control::read(value)?),
        Request::Reconfigure { .. } => ctl_updates::reconfigured(&weir_control::read(value)?),
        Request::Card { .. } => ctl_card::report(&weir_control::read(value)?),
        Request::Reload { .. } => ctl_updates::reloaded(&weir_control::read(value)?),
        _ => status(&weir_control::read(value)?),
    })
}

/// Prints the help of a request.
fn help(request: &[String]) -> Result<(), Failure> {
    let mut cli = Cli::command();
    cli.build();
    let mut command = &mut cli;
    for word in std::iter::once("ctl").chain(request.iter().map(String::as_str)) {
        let unknown = || Failure::Rejected(format!("weir: there is no request `{}`", printable(&request.join(" "))));
        command = command.find_subcommand_mut(word).ok_or_else(unknown)?;
    }
    report::print(&command.render_help().to_string())
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
    if let Some(kept) = &status.kept {
        text += &kept_policy(kept);
    }
    if let Some(FlowsStatus { size, used, closing, is_short, refused }) = status.flows {
        let short = if is_short { ": room is short" } else { "" };
        let refused =
            if refused > 0 { format!("; {} packets refused", figures::grouped(refused)) } else { String::new() };
        let [used, size, closing] = [used, size, closing].map(figures::grouped);
        let _ = writeln!(text, "{used} flows and {closing} closing, size {size}{short}{refused}");
    }
    text += &beside(status);
    text += &status.export.as_ref().map(ctl_export::text).unwrap_or_default();
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

/// What looks at packets beside the active policy.
fn beside(status: &Status) -> String {
    let mut text = String::new();
    if let Some(ShadowStatus { policy, every, failed, .. }) = &status.shadow {
        let _ = match failed {
            None => writeln!(text, "shadow {} judges one packet in {every}", printable(policy)),
            Some(why) => writeln!(text, "shadow {} judges no more packets: {}", printable(policy), printable(why)),
        };
    }
    if status.captures > 0 {
        let _ = writeln!(text, "{} captures", status.captures);
    }
    text
}

/// Which policy is kept, and whether it decides.
fn kept_policy(KeptStatus { folder, policy, kept, error, in_place_of, .. }: &KeptStatus) -> String {
    let mut text = String::new();
    let since = kept.as_deref().unwrap_or_default();
    if let Some(why) = in_place_of {
        let _ = writeln!(text, "STARTED WITH THE LAST CONFIRMED POLICY, of {since}, because: {}", printable(why));
    }
    let _ = match (error, policy) {
        (Some(error), _) => writeln!(text, "the confirmed policy is not kept: {}", printable(error)),
        (None, Some(policy)) => writeln!(text, "the confirmed policy is kept: {}, {since}", printable(policy)),
        (None, None) => writeln!(text, "no confirmed policy is kept in {} yet", printable(folder)),
    };
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

fn limits(status: &LimitsStatus) -> String {
    if status.total.limits == 0 {
        return "no limits are counted: no list that a rule uses has `log exceeded` or `log all`\n".to_owned();
    }
    let (limits, exceeded) = (figures::grouped(status.total.limits), figures::grouped(status.total.exceeded));
    format!("{limits} limits, {exceeded} of them exceeded\n{}", limit_counts::describe(&status.limits))
}

#[cfg(test)]
mod tests {
    use super::status;
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
}
