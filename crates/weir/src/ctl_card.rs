//! `weir ctl card` as text.

use std::fmt::Write;
use weir_command::figures::grouped;
use weir_control::{
    CardCost, CardEntry, CardFrames, CardPlace, CardReport, CardStatus, CardTableStatus, FollowChange, FollowStatus,
    FollowWindow, FramesShare, HybridRule, HybridStatus,
};
use weir_policy::diag::printable::printable;

/// What the card does.
pub fn report(report: &CardReport) -> String {
    match report {
        CardReport::Hybrid(hybrid) => hybrid_status(hybrid),
        CardReport::Tables(tables) => status(tables),
    }
}

fn hybrid_status(status: &HybridStatus) -> String {
    let HybridStatus { card, profile, epoch, changes, sealed, alone, problem, rules, lookups, .. } = status;
    let sealed = if *sealed { "sealed" } else { "not sealed" };
    let mut text = format!("{}: {}, {sealed}, epoch {epoch}, {changes} changes", printable(card), printable(profile));
    text += &if status.reopened > 0 { format!(", opened again {} times\n", status.reopened) } else { "\n".to_owned() };
    if let Some(problem) = problem {
        let _ = writeln!(text, "problem: {}", printable(problem));
    }
    if let Some(alone) = alone {
        let _ = writeln!(text, "the software decides alone: {}", printable(alone));
    }
    let _ = writeln!(
        text,
        "a trailer has {} bytes: {} bits of flags, {} lookups, a body of {} bytes",
        status.trailer_bytes,
        status.flag_bits,
        lookups.len(),
        status.body_bytes
    );
    let _ = writeln!(
        text,
        "the card has dropped {} packets ({} bytes), {:.1} % of all packets upstream",
        grouped(status.packets),
        grouped(status.bytes),
        status.share * 100.0
    );
    let CardFrames { answered, alone, control, unsealed } = &status.frames;
    let of = |kind: &FramesShare, name: &str| format!("{} {name} ({:.1} %)", grouped(kind.frames), kind.share * 100.0);
    let _ = writeln!(
        text,
        "frames: {}, {}, {}, {}",
        of(answered, "answered"),
        of(alone, "alone"),
        of(control, "control"),
        of(unsealed, "unsealed")
    );
    if let Some(follow) = &status.follow {
        following(&mut text, follow);
    }
    for HybridRule { at, category, offload, dropped, .. } in rules {
        let dropped = if *dropped > 0 { format!("  {} packets dropped", grouped(*dropped)) } else { String::new() };
        let _ = writeln!(text, "  {at:<20} {category:<8} {offload:<8}{dropped}");
    }
    text
}

/// How the choice of rules follows traffic.
fn following(text: &mut String, follow: &FollowStatus) {
    let FollowStatus { thinks, rules, window, changes, failed, last } = follow;
    let listed = |rules: &[String]| {
        if rules.is_empty() { "nothing".to_owned() } else { printable(&rules.join(", ")).into_owned() }
    };
    let cost = |cost: &CardCost| format!("{:.1} cycles and {} bits", cost.cycles_per_packet, cost.trailer_bits);
    let _ = writeln!(text, "follows traffic, and offloads {}: {}", listed(rules), printable(thinks));
    if let Some(window) = window {
        let FollowWindow { seconds, packets, pps, answered, current, alone, all, chosen, rules } = window;
        let _ = writeln!(
            text,
            "  in {seconds:.1} s, {} packets ({pps:.0}/s, {:.1} % answered) cost {} each, and the link is loaded {:.1} %",
            grouped(*packets),
            answered * 100.0,
            cost(current),
            current.link_load * 100.0
        );
        let _ = writeln!(text, "  alone {}, all {}, best {} ({})", cost(alone), cost(all), cost(chosen), listed(rules));
    }
    let _ = writeln!(text, "  {} changes, {} failed", grouped(*changes), grouped(*failed));
    if let Some(FollowChange { ago_s, took_s, generation, why, before, after, rules }) = last {
        let _ = writeln!(
            text,
            "  last change {ago_s:.1} s ago, in {took_s:.1} s: generation {generation} offloads {}, because {}: {} instead of {}",
            listed(rules),
            printable(why),
            cost(after),
            cost(before)
        );
    }
}

fn status(status: &CardStatus) -> String {
    let CardStatus { card, placement, tables, places, share, share_blocked, blocked_pps, entries } = status;
    let mut text = format!("{}, placement {placement}\n", printable(card));
    let percent = |share: f64| share * 100.0;
    let _ = writeln!(
        text,
        "drops {:.1} % of all packets upstream; of {blocked_pps:.0} packets/s of blocked sources, {:.1} %",
        percent(*share),
        percent(*share_blocked)
    );
    for CardTableStatus { table, rule, problem, unseen } in tables {
        match (rule, problem) {
            (_, Some(problem)) => _ = writeln!(text, "nothing: {}", printable(problem)),
            (rule, None) => {
                let _ = writeln!(text, "table {table}: counted for {}", rule.as_deref().unwrap_or("no rule"));
            }
        }
        if !unseen.is_empty() {
            let _ = writeln!(text, "  not seen by the rules {}", unseen.join(", "));
        }
    }
    for CardPlace { place, capacity, entries, update_ms, updates, refused, packets, bytes } in places {
        let _ = writeln!(
            text,
            "{place}: {} of {} entries, {} packets dropped ({} bytes), {} updates of {update_ms} ms, {} refused",
            grouped(*entries as u64),
            grouped(*capacity as u64),
            grouped(*packets),
            grouped(*bytes),
            grouped(*updates),
            grouped(*refused)
        );
    }
    for CardEntry { entry, table, place, packets, bytes, last_s } in entries {
        let last = last_s.map(|last_s| format!(", last {last_s:.0} s ago")).unwrap_or_default();
        let (packets, bytes) = (grouped(*packets), grouped(*bytes));
        let _ = writeln!(text, "  {entry} of {table} in the {place}: {packets} packets, {bytes} bytes{last}");
    }
    text
}
