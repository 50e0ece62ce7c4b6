//! Requests about slots of rules.

use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{Reply, SlotChanged, SlotListed, SlotOperation, SlotRuleListed};
use weir_policy::slot_rule::{self, SlotRule};
use weir_state::SharedState;
use weir_state::slot_store::{BoundSlot, SlotBinding};
use weir_state::slots::{Listed, SlotError};

/// The time over which rates are measured.
const RATE_TIME: Duration = Duration::from_millis(100);

/// Executes a request about a slot of the active generation, whose slots are `bound`.
///
/// # Errors
/// There is no such slot, the rule is wrong, or the slot cannot be changed. Nothing has changed then.
pub fn perform(
    name: &str,
    operation: SlotOperation,
    bound: &SlotBinding,
    shared: &SharedState,
) -> Result<Reply, Failure> {
    let named = || bound.named();
    let Some((_, BoundSlot { slot, .. })) = named().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = named().map(|(name, _)| name).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        let message = format!("weir: the active policy has no slot `{}`; {known}", name.escape_debug());
        return Err(Failure::Rejected(message));
    };
    let room = || shared.slots().room(slot);
    let refused = |error: SlotError| Failure::Rejected(format!("weir: slot {name}: {error}"));
    let now_ns = weir_state::now_ns();
    let expires = |timeout_ms: Option<u64>| {
        timeout_ms.filter(|&ms| ms > 0).map(|ms| now_ns.saturating_add(ms.saturating_mul(1_000_000)))
    };
    let number = match operation {
        SlotOperation::List => return Ok(list(name, &slot.list(), || slot.list(), room()).into()),
        SlotOperation::Add { rule, timeout_ms } => {
            Some(slot.add(read(&rule)?.record, expires(timeout_ms), room(), now_ns).map_err(refused)?)
        }
        SlotOperation::Replace { number, rule, timeout_ms } => {
            slot.replace(number, read(&rule)?.record, expires(timeout_ms), now_ns).map_err(refused)?;
            Some(number)
        }
        SlotOperation::Del { number } => {
            slot.remove(number).map_err(refused)?;
            None
        }
        SlotOperation::Flush => {
            slot.flush().map_err(refused)?;
            None
        }
    };
    Ok(SlotChanged { number, rules: slot.count(), size: room() }.into())
}

/// What happened to a rule since it was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The rule stands, and has dropped so many packets.
    Stands(u64),
    /// The rule is not in the slot any more.
    Gone,
    /// The active policy has no such slot.
    NoSlot,
}

/// Makes a rule of a slot expire at a time, ns.
pub fn renew(bound: &SlotBinding, name: &str, number: u32, expires_ns: u64) -> Renewal {
    let mut named = bound.named();
    match named.find(|(known, _)| *known == name) {
        None => Renewal::NoSlot,
        Some((_, bound)) => match bound.slot.renew(number, Some(expires_ns)) {
            Ok(counts) => Renewal::Stands(counts.dropped),
            Err(_) => Renewal::Gone,
        },
    }
}

fn read(rule: &str) -> Result<SlotRule, Failure> {
    SlotRule::parse(rule).map_err(|refused| Failure::Rejected(refused.to_string()))
}

/// Lists the rules, with the rates since they were listed `before`.
fn list(name: &str, before: &[Listed], again: impl Fn() -> Vec<Listed>, size: usize) -> SlotListed {
    let started = Instant::now();
    if !before.is_empty() {
        thread::sleep(RATE_TIME);
    }
    let (now, seconds) = (again(), started.elapsed().as_secs_f64());
    let now_ns = weir_state::now_ns();
    let rule = |listed: &Listed| {
        let Listed { record, counts, expires_ns } = listed;
        let earlier = before.iter().find(|before| before.record == *record);
        let since = earlier.map_or(0, |earlier| counts.packets.saturating_sub(earlier.counts.packets));
        SlotRuleListed {
            number: record.number,
            rule: slot_rule::text(record),
            packets: counts.packets,
            bytes: counts.bytes,
            dropped: counts.dropped,
            rate_pps: since as f64 / seconds,
            timeout_s: expires_ns.map(|at| at.saturating_sub(now_ns) as f64 / 1e9),
        }
    };
    SlotListed { slot: name.to_owned(), size, rules: now.iter().map(rule).collect() }
}
