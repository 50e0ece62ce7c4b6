//! The head of the screen: who is looked at, whether it is attacked, and the rates.

use super::page::Page;
use super::theme::Role;
use crate::history::History;
use crate::model::Model;
use crate::rates::{DirectionRates, Losses};
use crate::rows::{Row, State};
use crate::text::{UNKNOWN, cut, duration, grouped, known, printable, share, short, size, time_of_day};
use ratatui::text::Span;
use weir_control::{ShadowStatus, Status};

/// Columns in front of the sparklines.
const BEFORE_SPARKLINE: usize = 31;

/// Draws the title and the answer.
pub fn draw(page: &mut Page<'_>, model: &Model) {
    let snapshot = model.snapshot.as_ref();
    let mut title = " weir".to_owned();
    let mark = match (model.is_paused, model.setup.is_recording, model.is_over) {
        (true, ..) => "PAUSED ",
        (_, true, true) => "end of recording ",
        (_, true, false) => "recording ",
        _ => "",
    };
    let time = snapshot.map(|snapshot| time_of_day(snapshot.time_s)).unwrap_or_default();
    let right = format!("{mark}{time} ");
    let room = page.width().saturating_sub(title.len() + right.chars().count() + 1);
    title += &match snapshot.and_then(|snapshot| snapshot.status.as_ref()) {
        Some(status) => {
            Some(about(status, false)).filter(|text| text.chars().count() <= room).unwrap_or(about(status, true))
        }
        None => format!("  {}", printable(&model.setup.from)),
    };
    let title = cut(&title, page.width().saturating_sub(right.chars().count() + 1));
    let gap = page.width().saturating_sub(title.chars().count() + right.chars().count());
    page.line(vec![page.span(Role::Bar, format!("{title}{}{right}", " ".repeat(gap)))]);
    let (role, answer) = answer(model);
    let answer = cut(&format!(" {answer}"), page.width());
    page.line(vec![page.span(role, answer)]);
}

/// Who is looked at.
fn about(status: &Status, is_narrow: bool) -> String {
    let posture = printable(status.posture.as_deref().unwrap_or("base"));
    let engine = status.engine.as_deref().map_or(UNKNOWN.to_owned(), printable);
    let (generation, workers, up) = (status.generation, status.workers, duration(status.uptime_s));
    let is_automatic = status.automatic.is_some();
    let beside = beside(status);
    if is_narrow {
        let automatic = if is_automatic { "!" } else { "" };
        return format!("  gen {generation} {posture}{automatic}  {engine} x{workers}  up {up}{beside}");
    }
    let automatic = if is_automatic { " (automatic)" } else { "" };
    let plural = if workers == 1 { "" } else { "s" };
    format!(
        "  generation {generation}  posture {posture}{automatic}  {engine}, {workers} worker{plural}  up {up}{beside}"
    )
}

/// What looks at packets beside the active policy.
fn beside(status: &Status) -> String {
    let shadow = match &status.shadow {
        None => String::new(),
        Some(ShadowStatus { failed: Some(_), .. }) => "  shadow FAILED".to_owned(),
        Some(ShadowStatus { every, .. }) => format!("  shadow 1/{every}"),
    };
    match status.captures {
        0 => shadow,
        1 => shadow + "  1 capture",
        count => format!("{shadow}  {count} captures"),
    }
}

/// The answer to "am I attacked, by what, is it held, who is hurt" in one line.
fn answer(model: &Model) -> (Role, String) {
    let Some(snapshot) = &model.snapshot else {
        let problem = model.problem.as_deref();
        return problem
            .map_or((Role::Dim, "waiting for an answer".to_owned()), |problem| (Role::Bad, problem.to_owned()));
    };
    if let Some(age) = model.age() {
        let why = model.problem.as_deref().unwrap_or("it does not answer");
        return (Role::Bad, format!("NO ANSWER for {}, all figures are as old: {why}", duration(age)));
    }
    let Some(attacks) = &snapshot.attacks else {
        let why = snapshot.absent.get("attacks").map_or(UNKNOWN, String::as_str);
        return (Role::Dim, format!("attacks: {UNKNOWN} ({})", printable(why.trim_start_matches("weir: "))));
    };
    let rows: Vec<Row> = attacks.attacks.iter().map(|entry| Row::of(entry, model.current())).collect();
    let lasting: Vec<&Row> = rows.iter().filter(|row| row.state != State::Over).collect();
    let worst = lasting.iter().max_by(|one, other| one.now.unwrap_or(0.0).total_cmp(&other.now.unwrap_or(0.0)));
    let Some(worst) = worst else {
        let over = match rows.len() {
            0 => String::new(),
            1 => "; 1 is over".to_owned(),
            count => format!("; {count} are over"),
        };
        return (Role::Good, format!("no attack now{over}; mitigation: {}", printable(&attacks.mode)));
    };
    let waiting = lasting.iter().filter(|row| matches!(row.state, State::Waiting(_))).count();
    let mut text = match lasting.len() {
        1 => "ATTACK".to_owned(),
        count => format!("{count} ATTACKS"),
    };
    if waiting > 0 {
        text += &format!(", {waiting} WAITS for you");
    }
    let done = match (worst.held, worst.state) {
        (Some(held), _) => format!("dropped {}", share(held)),
        (None, State::Acting(_)) => format!("dropped {UNKNOWN}"),
        (None, _) => "nothing is done".to_owned(),
    };
    let hurt = worst.proven.map(|proven| format!(", proven hit {}", share(proven))).unwrap_or_default();
    let (victim, kinds, now) = (&worst.victim, &worst.kinds, known(worst.now));
    text += &format!(": {victim} {kinds} {now}/s, {done}{hurt}");
    let is_held = waiting == 0 && worst.held.is_some_and(|held| held > 0.5);
    (if is_held { Role::Warn } else { Role::Bad }, text)
}

/// Draws the rates with their sparklines, and what was lost.
pub fn draw_rates(page: &mut Page<'_>, model: &Model, has_downstream: bool) {
    let none = DirectionRates::default();
    let rates = model.current();
    let up = rates.map_or(&none, |rates| &rates.upstream);
    let of_all = |part: Option<f64>| {
        let shared = part.zip(up.packets).filter(|(_, all)| *all > 0.0).map(|(part, all)| share(part / all));
        shared.unwrap_or(UNKNOWN.to_owned())
    };
    let histories = &model.histories;
    // Received, passed and dropped have one scale, so their heights compare.
    let scale = histories.packets.peak().unwrap_or(0.0);
    let bits = bit_rate(up.bits);
    let lost = rates.and_then(|rates| rates.lost);
    let losses = model.losses();
    let lost_role = if lost.unwrap_or(0.0) > 0.0 { Role::Bad } else { Role::Plain };
    // Where an interface does not count what it misses, 0 would not be true.
    let total = losses.filter(|losses| losses.missed.is_some() || losses.packets() > 0);
    let total = total.map_or(UNKNOWN.to_owned(), |losses| format!("{} in all", size(losses.packets() as f64)));
    rate(page, ("in", Role::Bold), up.packets, &bits, (&histories.packets, scale));
    rate(page, ("passed", Role::Good), up.passed, &of_all(up.passed), (&histories.passed, scale));
    rate(page, ("dropped", Role::Warn), up.dropped, &of_all(up.dropped), (&histories.dropped, scale));
    rate(page, ("lost", lost_role), lost, &total, (&histories.lost, histories.lost.peak().unwrap_or(0.0)));
    draw_losses(page, losses);
    if has_downstream {
        let down = rates.map_or(&none, |rates| &rates.downstream);
        let mut text = format!(
            " down    {:>6}/s {:>10}  passed {}/s, dropped {}/s",
            known(down.packets),
            bit_rate(down.bits),
            known(down.passed),
            known(down.dropped)
        );
        for (what, rate) in [("answered", up.replied), ("diverted", up.diverted)] {
            if let Some(rate) = rate.filter(|rate| *rate > 0.0) {
                text += &format!("; {what} upstream {}/s", short(rate));
            }
        }
        page.line(vec![page.span(Role::Plain, text)]);
    }
}

fn bit_rate(bits: Option<f64>) -> String {
    bits.map_or(UNKNOWN.to_owned(), |bits| format!("{}b/s", with_blank(&short(bits))))
}

/// `12.3M` as `12.3 M`, in front of a unit.
fn with_blank(number: &str) -> String {
    match number.char_indices().last() {
        Some((at, unit)) if unit.is_alphabetic() => format!("{} {unit}", &number[..at]),
        _ => format!("{number} "),
    }
}

/// A rate with its sparkline.
fn rate(
    page: &mut Page<'_>,
    (name, role): (&str, Role),
    value: Option<f64>,
    beside: &str,
    (history, scale): (&History, f64),
) {
    let width = page.width().saturating_sub(BEFORE_SPARKLINE + 1);
    let spans: Vec<Span<'static>> = vec![
        page.span(Role::Plain, format!(" {name:<8}")),
        page.span(role, format!("{:>6}/s", known(value))),
        page.span(Role::Plain, format!(" {beside:>10}  ")),
        page.span(if role == Role::Plain { Role::Bad } else { role }, history.sparkline(width, scale)),
    ];
    page.line(spans);
}

/// What Weir lost itself, each kind with its count since the start.
fn draw_losses(page: &mut Page<'_>, losses: Option<Losses>) {
    let role = match losses {
        Some(losses) if losses.is_any() => Role::Bad,
        _ => Role::Dim,
    };
    let is_narrow = page.width() < 80;
    let count = |of: fn(&Losses) -> Option<u64>| {
        let number = |count: u64| if is_narrow { size(count as f64) } else { grouped(count) };
        losses.as_ref().and_then(of).map_or(UNKNOWN.to_owned(), number)
    };
    let counts = [
        ("missed", count(|losses| losses.missed)),
        ("unsent", count(|losses| Some(losses.unsent))),
        (if is_narrow { "long" } else { "too long" }, count(|losses| Some(losses.too_long))),
        ("samples", count(|losses| losses.samples)),
        ("additions", count(|losses| Some(losses.additions))),
    ];
    let counts = counts.map(|(what, count)| format!("{what} {count}"));
    let (name, between) = if is_narrow { ("losses", " ") } else { ("our losses", "  ") };
    let text = format!(" {name}: {}", counts.join(between));
    let text = cut(&text, page.width());
    page.line(vec![page.span(role, text)]);
}
