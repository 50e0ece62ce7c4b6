//! What needs attention, beside attacks.

use super::page::Page;
use super::theme::Role;
use crate::model::Model;
use crate::text::{cut, duration, grouped, printable};
use weir_control::{LinkState, ShadowStatus, Status};

/// Draws at most `most` notices. The last line says how many are left out.
pub fn draw(page: &mut Page<'_>, model: &Model, most: usize) {
    let notices = notices(model);
    let left_out = notices.len().saturating_sub(most);
    let count = notices.len().min(most);
    for (at, (role, text)) in notices.into_iter().take(most).enumerate() {
        let more = if left_out > 0 && at + 1 == count { format!(" (+{left_out} more)") } else { String::new() };
        let text = cut(&text, page.width().saturating_sub(2 + more.len()));
        page.line(vec![page.span(role, format!(" {text}{more}"))]);
    }
}

/// The notices, the most urgent first.
fn notices(model: &Model) -> Vec<(Role, String)> {
    let mut notices = Vec::new();
    let snapshot = model.snapshot.as_ref();
    if let Some(status) = snapshot.and_then(|snapshot| snapshot.status.as_ref()) {
        trial(status, &mut notices);
        interfaces(status, &mut notices);
        state(status, &mut notices);
    }
    if model.was_restarted() {
        notices.push((Role::Warn, "Weir was restarted: counts begin at 0".to_owned()));
    }
    if let Some(attacks) = snapshot.and_then(|snapshot| snapshot.attacks.as_ref()) {
        if let Some(problem) = &attacks.samples.problem {
            notices.push((Role::Bad, format!("nothing is measured: {}", printable(problem))));
        }
        for (reason, times) in &attacks.not_carried_out {
            notices.push((Role::Bad, format!("{} actions not carried out: {}", grouped(*times), printable(reason))));
        }
        for problem in &attacks.events.problems {
            notices.push((Role::Warn, printable(problem)));
        }
        if attacks.samples.directions == "one" {
            notices.push((Role::Warn, "only one direction is seen: a missing answer is no evidence".to_owned()));
        }
    }
    notices
}

fn trial(status: &Status, notices: &mut Vec<(Role, String)>) {
    let Some(left) = status.confirm_left_s else { return };
    let then = match status.rollback_to {
        Some(generation) => format!("rolls back to generation {generation}"),
        None => "Weir ends and everything passes".to_owned(),
    };
    let keys = if status.rollback_to.is_some() { "c keeps it, r rolls back" } else { "c keeps it" };
    notices.push((Role::Warn, format!("TRIAL: {then} in {}; {keys}", duration(left))));
}

fn interfaces(status: &Status, notices: &mut Vec<(Role, String)>) {
    for port in &status.interfaces {
        let name = printable(&port.interface);
        let state = match port.state {
            LinkState::Up => None,
            LinkState::NoLink => Some("has no link"),
            LinkState::Down => Some("is down"),
            LinkState::Gone => Some("is removed"),
        };
        if let Some(state) = state {
            notices.push((Role::Bad, format!("{} interface {name} {state}", port.side)));
        }
        if let Some(problem) = &port.problem {
            notices.push((Role::Warn, format!("{name}: {}", printable(problem))));
        }
    }
    for name in &status.taken_down {
        notices.push((Role::Bad, format!("{} is down, because the opposite interface has no link", printable(name))));
    }
}

fn state(status: &Status, notices: &mut Vec<(Role, String)>) {
    if let Some(activating) = &status.activating {
        let since = duration(activating.since_s);
        notices.push((Role::Warn, format!("generation {} is being activated for {since}", activating.generation)));
    }
    for stray in &status.mixed {
        notices.push((Role::Bad, format!("mixed: {}", printable(stray))));
    }
    if let Some(ShadowStatus { policy, failed: Some(why), .. }) = &status.shadow {
        let text = format!("the shadow {} judges no more packets: {}", printable(policy), printable(why));
        notices.push((Role::Warn, text));
    }
    if let Some(flows) = status.flows.filter(|flows| flows.is_short) {
        let refused = grouped(flows.refused);
        notices.push((Role::Bad, format!("room for flows is short; {refused} packets were refused")));
    }
    for refusal in &status.updates.refusals {
        let (list, reason) = (printable(&refusal.list.to_string()), printable(&refusal.reason));
        let since = duration(refusal.since_s);
        notices.push((Role::Bad, format!("{list}: {} updates refused for {since}: {reason}", refusal.times)));
    }
    if let Some(error) = status.state.as_ref().and_then(|state| state.error.as_ref()) {
        notices.push((Role::Bad, format!("state is not saved: {}", printable(error))));
    }
}
