//! What was dropped, by reason, beside what passed, by what it is.

use super::page::Page;
use super::theme::Role;
use crate::model::Model;
use crate::text::{UNKNOWN, cut, grouped, known, printable, share, short};
use std::collections::BTreeMap;
use weir_control::{AddressFeatures, FeaturesShown, Share, Stats};

/// Draws both in `height` lines.
pub fn draw(page: &mut Page<'_>, model: &Model, height: u16) {
    if height < 2 {
        return;
    }
    let (x, width) = (page.area.x, page.area.width);
    let left = width / 2;
    let rows = usize::from(height - 1);
    let (begin, end) = (page.y, page.y + height);
    page.heading(x, left, "Dropped by reason: /s, in all");
    draw_lines(page, (x, left), reasons(model, left.into(), rows));
    page.y = begin;
    let (x, right) = (x + left, width - left);
    page.heading(x, right, &passed_heading(model));
    draw_lines(page, (x, right), passed(model, right.into(), rows));
    page.y = end;
}

fn draw_lines(page: &mut Page<'_>, (x, width): (u16, u16), lines: Vec<(Role, String)>) {
    for (role, text) in lines {
        page.y += 1;
        let text = cut(&text, usize::from(width).saturating_sub(1));
        page.put(x, width, vec![page.span(role, text)]);
    }
}

/// A reason of verdicts.
struct Reason<'a> {
    name: &'a str,
    packets: u64,
    rate: Option<f64>,
    is_drop: bool,
}

/// The reasons of drops, those with the highest rate first, and then what passed.
fn reasons(model: &Model, width: usize, rows: usize) -> Vec<(Role, String)> {
    let Some(stats) = model.snapshot.as_ref().and_then(|snapshot| snapshot.stats.as_ref()) else {
        return vec![(Role::Dim, format!(" {UNKNOWN}"))];
    };
    let total = &stats.upstream.total;
    // A Weir that does not say which reasons dropped packets says all reasons.
    let knows = total.dropped == 0 || !total.drops.is_empty();
    let rates = model.current();
    let listed = |counts: &'_ BTreeMap<String, u64>, is_drop: bool| -> Vec<(String, u64, Option<f64>, bool)> {
        let rates = rates.map(|rates| if is_drop { &rates.upstream.drops } else { &rates.upstream.reasons });
        let rate = |name: &String| rates.map(|rates| rates.get(name).copied().unwrap_or(0.0));
        counts.iter().map(|(name, packets)| (name.clone(), *packets, rate(name), is_drop)).collect()
    };
    let mut all = listed(&total.drops, true);
    let others = listed(&total.reasons, false);
    all.extend(others.into_iter().filter(|(name, ..)| !total.drops.contains_key(name)));
    all.sort_by(|one, other| {
        let rate = |of: &(String, u64, Option<f64>, bool)| of.2.unwrap_or(0.0);
        other.3.cmp(&one.3).then(rate(other).total_cmp(&rate(one))).then(other.1.cmp(&one.1))
    });
    let mut lines: Vec<(Role, String)> = Vec::new();
    if knows && total.drops.is_empty() {
        lines.push((Role::Dim, " nothing was dropped".to_owned()));
    }
    for (name, packets, rate, is_drop) in &all {
        let reason = Reason { name, packets: *packets, rate: *rate, is_drop: *is_drop };
        lines.push(line(&reason, stats, width, knows));
    }
    lines.truncate(rows);
    lines
}

fn line(reason: &Reason<'_>, stats: &Stats, width: usize, knows: bool) -> (Role, String) {
    let what = match (knows, reason.is_drop) {
        (true, true) => "drop",
        (true, false) => "pass",
        (false, _) => "",
    };
    let mut rules = stats.upstream.total.rules.iter().filter(|rule| rule.at == reason.name);
    let text = rules.next_back().map(|rule| format!("  {}", printable(&rule.rule))).unwrap_or_default();
    let name = printable(reason.name);
    let packets = short(reason.packets as f64);
    let text = format!(" {:>5} {packets:>6} {what:<4} {name}{text}", known(reason.rate));
    let role = match (reason.is_drop, reason.rate) {
        (true, Some(rate)) if rate > 0.0 => Role::Warn,
        (true, _) => Role::Plain,
        (false, _) => Role::Dim,
    };
    (role, cut(&text, width.saturating_sub(1)))
}

fn passed_heading(model: &Model) -> String {
    match features(model) {
        Some(shown) => format!("Passed, {:.1}s: who and what", shown.seconds),
        None => "Passed: who and what".to_owned(),
    }
}

fn features(model: &Model) -> Option<&FeaturesShown> {
    model.snapshot.as_ref()?.features.as_ref()
}

/// What passed: the most frequent values of each field, and then the protected addresses.
fn passed(model: &Model, width: usize, rows: usize) -> Vec<(Role, String)> {
    let Some(shown) = features(model) else {
        let why = model.snapshot.as_ref().and_then(|snapshot| snapshot.absent.get("features"));
        let why = why.map(|why| format!(" ({})", printable(why.trim_start_matches("weir: ")))).unwrap_or_default();
        return crate::text::wrapped(&format!("{UNKNOWN}{why}"), width.saturating_sub(2))
            .into_iter()
            .take(rows)
            .map(|line| (Role::Dim, format!(" {line}")))
            .collect();
    };
    let samples = &shown.upstream.samples;
    let to: Vec<String> = shown.addresses.iter().filter(|of| of.upstream.packets > 0).map(|of| to(of, shown)).collect();
    let mut lines = vec![field("to", &to, width)];
    let fields = [
        ("from", &samples.sources),
        ("sport", &samples.source_ports),
        ("dport", &samples.destination_ports),
        ("length", &samples.lengths),
        ("ttl", &samples.ttls),
    ];
    for (name, shares) in fields {
        let values: Vec<String> = shares.iter().map(value).collect();
        lines.push(field(name, &values, width));
    }
    if rows > lines.len() + 2 {
        lines.push((
            Role::Dim,
            format!("{:>16} {:>6} {:>6} {:>6} {:>6}  answers/s", "to", "/s", "bit/s", "peers", "new"),
        ));
        lines.extend(shown.addresses.iter().map(|of| (Role::Plain, address(of, shown))));
    }
    lines.truncate(rows);
    lines
}

fn per_second(count: u64, shown: &FeaturesShown) -> Option<f64> {
    (shown.seconds > 0.0).then(|| count as f64 / shown.seconds)
}

fn to(of: &AddressFeatures, shown: &FeaturesShown) -> String {
    format!("{} {}/s", printable(&of.address), known(per_second(of.upstream.packets, shown)))
}

fn address(of: &AddressFeatures, shown: &FeaturesShown) -> String {
    let AddressFeatures { address, upstream, downstream, new_sources } = of;
    format!(
        "{:>16} {:>6} {:>6} {:>6} {:>6}  {}",
        cut(&printable(address), 24),
        known(per_second(upstream.packets, shown)),
        known(per_second(upstream.bytes.saturating_mul(8), shown)),
        grouped(upstream.peers),
        grouped(*new_sources),
        known(per_second(downstream.packets, shown))
    )
}

fn value(of: &Share) -> String {
    format!("{} {}", printable(&of.value), share(of.share))
}

/// A field with as many of its values as fit.
fn field(name: &str, values: &[String], width: usize) -> (Role, String) {
    let mut text = format!(" {name:<6} ");
    if values.is_empty() {
        text += UNKNOWN;
    }
    for (at, value) in values.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        if at > 0 && text.chars().count() + separator.len() + value.chars().count() >= width {
            break;
        }
        text += separator;
        text += value;
    }
    (Role::Plain, cut(&text, width.saturating_sub(1)))
}
