//! What the card does, as the control protocol shows it.

use super::state::State;
use std::cmp::Reverse;
use weir_control::{CardEntry, CardPlace, CardStatus, CardTableStatus, Stats};

/// The card. `stats` are all counters, with the counters of the card.
pub fn status(state: &State, card: String, placement: &str, stats: &Stats, top: usize) -> CardStatus {
    let tables = state.blocked.iter().enumerate().map(|(of, blocked)| {
        let table = state.name(of).to_owned();
        match blocked {
            Ok(blocked) => CardTableStatus {
                table,
                rule: Some(blocked.rule.at.clone()),
                problem: None,
                unseen: blocked.unseen.clone(),
            },
            Err(problem) => CardTableStatus { table, rule: None, problem: Some(problem.clone()), unseen: vec![] },
        }
    });
    let places = state.places.iter().map(|place| CardPlace {
        place: place.name.to_owned(),
        capacity: place.capacity(),
        entries: place.len(),
        update_ms: place.update_ns() as f64 / 1e6,
        updates: place.updates,
        refused: place.refused,
        packets: place.dropped.packets,
        bytes: place.dropped.bytes,
    });
    let all = stats.upstream.current.packets;
    let share = if all == 0 { 0.0 } else { state.accounts.current() as f64 / all as f64 };
    CardStatus {
        card,
        placement: placement.to_owned(),
        tables: tables.collect(),
        places: places.collect(),
        share: rounded(share),
        share_blocked: rounded(state.last.share),
        blocked_pps: rounded(state.last.blocked_pps),
        entries: entries(state, top),
    }
}

fn entries(state: &State, top: usize) -> Vec<CardEntry> {
    if top == 0 {
        return Vec::new();
    }
    let now_ns = weir_state::now_ns();
    let all =
        state.places.iter().flat_map(|place| place.hits().map(|(source, of, hits)| (place.name, source, of, hits)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, source, _, hits)| (Reverse(hits.packets), *source));
    all.truncate(top);
    let entries = all.into_iter().map(|(place, source, of, hits)| CardEntry {
        entry: source.to_string(),
        table: state.name(of).to_owned(),
        place: place.to_owned(),
        packets: hits.packets,
        bytes: hits.bytes,
        last_s: (hits.packets > 0).then(|| rounded(now_ns.saturating_sub(hits.last_ns) as f64 / 1e9)),
    });
    entries.collect()
}

/// To three digits behind the point.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
