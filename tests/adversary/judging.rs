//! Compares what happened with what must happen.

use crate::deciding::{Decided, Words};
use crate::detecting::Detected;
use std::collections::HashSet;
use weir_abi::{Action, FlowState, Reason};
use weir_command::inside::Inside;
use weir_mitigate::prefix::Prefix;
use weir_test_support::attack::expectation::{Amount, Claim, Whose};
use weir_test_support::attack::{Attack, EVERYONE, Step};

/// The verdicts, as words of packets and of sums.
const VERDICTS: [(Action, &str, &str); 4] = [
    (Action::Accept, "accept", "accepted"),
    (Action::Drop, "drop", "dropped"),
    (Action::Divert, "divert", "diverted"),
    (Action::Reply, "reply", "replied"),
];
/// The states that a rule can show.
const STATES: [&str; 4] = ["new", "established", "related", "untracked"];

/// The fate of a packet that may have any.
const ANY: &str = "any";

/// Whether a packet has a fate.
fn has(seen: &Words, fate: &str) -> Result<bool, String> {
    if fate == ANY {
        return Ok(true);
    }
    if let Some((action, ..)) = VERDICTS.iter().find(|(_, one, all)| fate == *one || fate == *all) {
        return Ok(seen.action == *action);
    }
    if STATES.contains(&fate) {
        return Ok(seen.state.as_deref() == Some(fate));
    }
    if Reason::BUILTIN.iter().any(|(_, name)| *name == fate) {
        return Ok(seen.reason == Some(fate));
    }
    Err(format!("`{fate}` is no verdict, reason or state"))
}

fn is_of(step: &Step, whose: &Whose) -> bool {
    (whose.sender == EVERYONE || whose.sender == step.sender) && (whose.from_ns..whose.until_ns).contains(&step.time_ns)
}

/// Judges what engines did.
pub fn packets(attack: &Attack, decided: &Decided, wrong: &mut Vec<String>) -> Result<(), String> {
    // Of packets of the same line, the first is reported.
    let (mut lines, mut of_flows) = (HashSet::new(), HashSet::new());
    for (step, seen) in attack.steps.iter().zip(&decided.packets) {
        let line = step.line;
        if let Some(expected) = &step.expected
            && !has(decided.words(seen), expected).map_err(|error| format!("line {line}: {error}"))?
            && lines.insert(line)
        {
            let seen = decided.words(seen);
            let state = seen.state.as_deref().unwrap_or("no state");
            let at_s = step.time_ns as f64 / 1e9;
            wrong.push(format!("line {line}: at {at_s} s: {expected} is expected, it is {} ({state})", seen.shown));
        }
        if let (Some(expected), Some(flows)) = (&step.flows, &seen.flows)
            && expected != flows
            && of_flows.insert(line)
        {
            let (expected, flows) = (expected.join(","), flows.join(","));
            wrong.push(format!("line {line}: flows `{expected}` are expected, there are `{flows}`"));
        }
    }
    for expectation in &attack.expectations {
        let line = expectation.line;
        match &expectation.claim {
            Claim::Packets { fate, .. } if fate == ANY => {
                return Err(format!("line {line}: `{ANY}` is no fate to count"));
            }
            Claim::Packets { whose, fate, amount } => {
                let (mut part, mut all) = (0, 0);
                for (_, seen) in attack.steps.iter().zip(&decided.packets).filter(|(step, _)| is_of(step, whose)) {
                    all += 1;
                    part += u64::from(has(decided.words(seen), fate).map_err(|error| format!("line {line}: {error}"))?);
                }
                judge(line, (part, all), *amount, fate, &whose.sender, wrong);
            }
            Claim::Flows { state, amount } => {
                if state != "all" && FlowState::ALL.iter().all(|(_, name)| name != state) {
                    return Err(format!("line {line}: `{state}` is no state of flows"));
                }
                let flows = decided.flows.as_ref().ok_or_else(|| format!("line {line}: the policy does not track"))?;
                let part = flows.iter().filter(|name| state == "all" || *name == state).count() as u64;
                if !amount.holds(part, flows.len() as u64) {
                    let all = flows.len();
                    wrong.push(format!("line {line}: {amount} flows {state} are expected, there are {part} of {all}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Judges the packets of a sender. There must be at least one packet. Returns whether all is well.
fn judge(
    line: usize,
    (part, all): (u64, u64),
    amount: Amount,
    fate: &str,
    sender: &str,
    wrong: &mut Vec<String>,
) -> bool {
    let problem = match amount.holds(part, all) {
        _ if all == 0 => format!("{sender} sends no packet in this time"),
        true => return true,
        false => format!("{amount} of {sender} {fate} is expected, it is {part} of {all}"),
    };
    wrong.push(format!("line {line}: {problem}"));
    false
}

/// Judges what detection did.
pub fn detection(attack: &Attack, detected: &Detected, wrong: &mut Vec<String>) -> Result<(), String> {
    for expectation in &attack.expectations {
        let line = expectation.line;
        let prefix = |text: &str| {
            text.parse::<Inside>()
                .map(|inside| inside.prefix())
                .map_err(|error| format!("line {line}: {text}: {error}"))
        };
        match &expectation.claim {
            Claim::Detect { whose, amount } => {
                let fates = attack.steps.iter().zip(&detected.drops).filter(|(step, _)| is_of(step, whose));
                let fates: Vec<bool> = fates.filter_map(|(_, fate)| *fate).collect();
                let part = fates.iter().filter(|is_dropped| **is_dropped).count() as u64;
                let all = fates.len() as u64;
                if !judge(line, (part, all), *amount, "dropped by detection", &whose.sender, wrong) {
                    wrong.push(format!("line {line}: {}", detected.described()));
                }
            }
            Claim::Attack { on, before_ns } => {
                let on = prefix(on)?;
                let is_it = |(victim, from_ns): &&(Prefix, u64)| {
                    *victim == on && before_ns.is_none_or(|before_ns| *from_ns < before_ns)
                };
                if detected.attacks.iter().find(is_it).is_none() {
                    wrong.push(format!("line {line}: no attack on {on} in time: {}", detected.described()));
                }
            }
            Claim::NoAttack if !detected.attacks.is_empty() => {
                wrong.push(format!("line {line}: no attack is expected: {}", detected.described()));
            }
            Claim::Blocks(source) => {
                let wanted = source.as_deref().map(prefix).transpose()?;
                if !detected.blocked.iter().any(|blocked| wanted.is_none_or(|wanted| wanted == *blocked)) {
                    wrong.push(format!("line {line}: the source is not blocked: {}", detected.described()));
                }
            }
            Claim::Spares(source) => {
                let spared = source.as_deref().map(prefix).transpose()?;
                if let Some(blocked) =
                    detected.blocked.iter().find(|blocked| spared.is_none_or(|spared| spared == **blocked))
                {
                    wrong.push(format!("line {line}: {blocked} is blocked: {}", detected.described()));
                }
            }
            Claim::NoAttack | Claim::Packets { .. } | Claim::Flows { .. } => {}
        }
    }
    Ok(())
}
