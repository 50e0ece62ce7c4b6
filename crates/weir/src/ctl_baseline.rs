//! `weir ctl attacks baseline`: lists, sets and resets what mitigation has learned.

use crate::cli::{BaselineAction, BaselineOptions};
use std::fmt::Write;
use weir_command::failure::Failure;
use weir_command::figures::grouped;
use weir_control::{AttackOperation, BaselineBounds, BaselineChanged, BaselineListed, PrefixBaseline};
use weir_policy::diag::printable::printable;

/// The request.
///
/// # Errors
/// A rate is not a number.
pub fn operation(options: &BaselineOptions) -> Result<AttackOperation, Failure> {
    Ok(match &options.action {
        None => AttackOperation::Baseline { top: options.top },
        Some(BaselineAction::Reset { of }) => AttackOperation::ResetBaseline { of: of.clone() },
        Some(BaselineAction::Set { of, values }) => {
            let (rate, pps) = match &values[..] {
                [rate, pps] => (Some(rate.clone()), pps),
                [pps, ..] => (None, pps),
                [] => unreachable!("one value is required"),
            };
            let wrong = |_| Failure::Rejected(format!("weir: `{}` is not a number of packets/s", pps.escape_debug()));
            AttackOperation::SetBaseline { of: of.clone(), rate, pps: pps.parse().map_err(wrong)? }
        }
    })
}

/// What was changed, as text.
pub fn changed(options: &BaselineOptions, BaselineChanged { of, changed }: &BaselineChanged) -> String {
    match options.action {
        Some(BaselineAction::Reset { .. }) => format!("{}: {} forgotten\n", printable(of), grouped(*changed as u64)),
        _ => format!("{}: {} set\n", printable(of), grouped(*changed as u64)),
    }
}

/// What was learned, as text.
pub fn listed(listed: &BaselineListed) -> String {
    let BaselineBounds { hourly_factor, crowd_factor, halving_s, follows_s } = listed.bounds;
    let seen = if listed.is_two_way { "both directions" } else { "one direction" };
    let mut text = format!(
        "{:.0} s of {seen}; rates follow for {follows_s} s, then are at most {hourly_factor} times as high after an hour, \
         {crowd_factor} times more in a crowd, and halve in {halving_s} s\n",
        listed.seen_s,
    );
    let headers: Vec<String> = listed
        .reference
        .iter()
        .map(|(kind, count)| format!("{} {}", printable(kind), grouped(*count as u64)))
        .collect();
    let _ = writeln!(text, "source: {} packets/s", listed.source_pps);
    let _ = writeln!(text, "known: {} sources", grouped(listed.known_sources as u64));
    let _ = writeln!(text, "reference: {} headers", headers.join(", "));
    let _ = writeln!(text, "signatures: {}", listed.signatures);
    let _ = writeln!(text, "prefixes: {} of {}", listed.prefixes.len(), grouped(listed.prefixes_total as u64));
    listed.prefixes.iter().for_each(|prefix| text += &line(prefix));
    text
}

fn line(PrefixBaseline { prefix, is_frozen, rates_pps }: &PrefixBaseline) -> String {
    let rates: Vec<String> = rates_pps.iter().map(|(name, pps)| format!("{} {pps}", printable(name))).collect();
    let frozen = if *is_frozen { " (frozen: under attack)" } else { "" };
    format!("  {}{frozen}: {}\n", printable(prefix), rates.join(", "))
}
