//! The room of tables, flows, slots and limits, and the age of feeds.

use super::page::Page;
use super::theme::Role;
use crate::model::Model;
use crate::text::{UNKNOWN, cut, duration, grouped, printable, share, size as count};
use ratatui::text::Span;
use std::collections::BTreeMap;
use weir_control::{CardReport, CountedLimit, Limited, LimitsStatus, Room, SlotRoom, Status, TableRoom};

/// The lines: at least `least`, and more if there is something to say and `is_tall`.
pub fn lines(page: &Page<'_>, model: &Model, least: usize, is_tall: bool) -> Vec<Vec<Span<'static>>> {
    let snapshot = model.snapshot.as_ref();
    let status = snapshot.and_then(|snapshot| snapshot.status.as_ref());
    let limits = snapshot.and_then(|snapshot| snapshot.limits.as_ref());
    let room = snapshot.and_then(|snapshot| snapshot.room.as_ref());
    let mut parts = vec![tables(room), flows(status, room, limits)];
    if least > 2 || is_tall {
        parts.extend(model.current().and_then(|rates| workers(&rates.busy)));
        parts.push(feeds(status));
    }
    if is_tall {
        parts.extend(snapshot.and_then(|snapshot| snapshot.card.as_ref()).map(card));
        parts.extend(limits.into_iter().flat_map(|limits| limits.limits.iter().take(3)).filter_map(exceeded));
    }
    let line = |(name, text, is_bad): (&str, String, bool)| {
        let text = cut(&text, page.width().saturating_sub(10));
        let role = if is_bad { Role::Bad } else { Role::Plain };
        vec![page.span(Role::Dim, format!(" {name:<8}")), page.span(role, text)]
    };
    parts.into_iter().map(line).collect()
}

type Part = (&'static str, String, bool);

fn tables(room: Option<&Room>) -> Part {
    let Some(Room { tables, .. }) = room else {
        return ("tables", UNKNOWN.to_owned(), false);
    };
    let mut is_bad = false;
    let one = |table: &TableRoom| {
        let size = table.size.map(|size| format!("/{}", count(size as f64))).unwrap_or_default();
        let refused = table.refused.filter(|refused| *refused > 0);
        is_bad |= refused.is_some();
        let refused = refused.map(|refused| format!(" ({} refused)", grouped(refused))).unwrap_or_default();
        format!("{} {}{size}{refused}", printable(&table.table), count(table.entries as f64))
    };
    let texts: Vec<String> = tables.iter().map(one).collect();
    ("tables", if texts.is_empty() { "none".to_owned() } else { texts.join("  ") }, is_bad)
}

fn flows(status: Option<&Status>, room: Option<&Room>, limits: Option<&LimitsStatus>) -> Part {
    let flows = match status.map(|status| status.flows) {
        Some(Some(flows)) => {
            let [used, closing] = [flows.used, flows.closing].map(grouped);
            format!("{used} (+{closing} closing), size {}", count(flows.size as f64))
        }
        // Without tracking there are no flows to count.
        _ => UNKNOWN.to_owned(),
    };
    let is_short = status.and_then(|status| status.flows).is_some_and(|flows| flows.is_short);
    let slots = match room.map(|room| &room.slots) {
        None => UNKNOWN.to_owned(),
        Some(slots) if slots.is_empty() => "none".to_owned(),
        Some(slots) => {
            let one = |slot: &SlotRoom| format!("{} {}/{}", printable(&slot.slot), slot.rules, slot.size);
            slots.iter().map(one).collect::<Vec<_>>().join(" ")
        }
    };
    let limits = match limits {
        Some(limits) if limits.total.limits > 0 => {
            let [exceeded, all] = [limits.total.exceeded, limits.total.limits].map(|number| count(number as f64));
            format!("{exceeded}/{all} over")
        }
        _ => UNKNOWN.to_owned(),
    };
    ("flows", format!("{flows}; slots {slots}; limits {limits}"), is_short)
}

/// How busy workers are. A worker that polls always is.
fn workers(busy: &BTreeMap<usize, f64>) -> Option<Part> {
    let one = |(worker, busy): (&usize, &f64)| format!("{worker} {}", share(*busy));
    let texts: Vec<String> = busy.iter().map(one).collect();
    (!texts.is_empty()).then(|| ("workers", format!("busy: {}", texts.join(", ")), false))
}

fn feeds(status: Option<&Status>) -> Part {
    let Some(updates) = status.map(|status| &status.updates) else { return ("feeds", UNKNOWN.to_owned(), false) };
    if updates.watched.is_empty() && updates.applied + updates.refused == 0 {
        return ("feeds", "none".to_owned(), false);
    }
    let mut texts: Vec<String> = Vec::new();
    for update in &updates.last {
        let changed = &update.changed;
        let (list, ago) = (printable(&changed.list.to_string()), duration(update.ago_s));
        texts.push(format!("{list} {} entries, {ago} ago", count(changed.entries as f64)));
    }
    for name in &updates.watched {
        let name = format!("table {}", printable(name));
        if !texts.iter().any(|text| text.starts_with(&format!("{name} "))) {
            texts.push(format!("{name} unchanged since start"));
        }
    }
    let is_bad = !updates.refusals.is_empty();
    ("feeds", format!("refused {}; {}", grouped(updates.refused), texts.join("; ")), is_bad)
}

fn card(card: &CardReport) -> Part {
    let (text, is_bad) = match card {
        CardReport::Hybrid(card) => {
            let problem = card.problem.as_ref().or(card.alone.as_ref());
            let problem_text = problem.map(|problem| format!("; {}", printable(problem))).unwrap_or_default();
            (
                format!("{}: {} packets dropped{problem_text}", printable(&card.card), grouped(card.packets)),
                problem.is_some(),
            )
        }
        CardReport::Tables(card) => {
            let packets = card.places.iter().map(|place| place.packets).sum();
            (format!("{}: {} packets dropped", printable(&card.card), grouped(packets)), false)
        }
    };
    ("card", text, is_bad)
}

fn exceeded(limit: &CountedLimit) -> Option<Part> {
    if limit.exceeded == 0 {
        return None;
    }
    let what = match &limit.what {
        None => String::new(),
        Some(Limited::Prefix(of) | Limited::Address(of) | Limited::Label(of) | Limited::Default(of)) => {
            format!(" {}", printable(of))
        }
    };
    let (list, rate) = (printable(&limit.list), printable(&limit.rate));
    Some(("limit", format!("{list}{what}, {rate}: {} packets over it", grouped(limit.exceeded)), false))
}
