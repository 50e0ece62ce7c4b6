//! The attacks as rows: what is shown of each, their order, and which are left out.

use crate::rates::{Rates, dropped};
use crate::text;
use weir_control::{AttackAction, AttackEntry};

/// The order of attacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Attacks that last before those that are over, then the highest rate now.
    #[default]
    Now,
    /// The highest rate ever first.
    Peak,
    /// The most dropped packets first.
    Dropped,
    /// The latest first.
    Latest,
}

impl Order {
    /// The next order.
    pub fn next(self) -> Self {
        match self {
            Order::Now => Order::Peak,
            Order::Peak => Order::Dropped,
            Order::Dropped => Order::Latest,
            Order::Latest => Order::Now,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Now => "now",
            Order::Peak => "peak",
            Order::Dropped => "dropped",
            Order::Latest => "latest",
        }
    }
}

/// What becomes of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// So many actions are carried out.
    Acting(usize),
    /// So many actions wait for `accept`.
    Waiting(usize),
    /// So many actions would be taken in another mode.
    Watched(usize),
    /// So many actions could not be carried out, and none is.
    Failed(usize),
    /// Nothing is done.
    NoAction,
    /// It is over.
    Over,
}

/// An attack on the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its number.
    pub attack: u32,
    /// The attacked address or prefix.
    pub victim: String,
    /// Its kinds.
    pub kinds: String,
    /// Packets a second now, with what actions hold back.
    pub now: Option<f64>,
    /// The highest rate.
    pub peak: f64,
    /// Packets that its actions have dropped.
    pub dropped: Option<u64>,
    /// Share of the rate now that its actions drop.
    pub held: Option<f64>,
    /// Share of proven sources among the packets that actions have hit.
    pub proven: Option<f64>,
    /// What becomes of it.
    pub state: State,
    /// Seconds since it was detected.
    pub age_s: f64,
    /// Seconds since it was last seen.
    pub seen_s: f64,
}

impl Row {
    /// The row of an attack. Without current rates, what is true only now is unknown.
    pub fn of(entry: &AttackEntry, rates: Option<&Rates>) -> Self {
        let current = entry.vectors.iter().filter(|vector| !vector.is_over);
        let rate = current.map(|vector| vector.pps).reduce(|one, other| one + other);
        let now = rate.filter(|_| rates.is_some() && !entry.is_over);
        let held_pps = rates.and_then(|rates| rates.held.get(&entry.attack));
        let hit: u64 = entry.actions.iter().map(|action| action.packets).sum();
        let proven: u64 = entry.actions.iter().map(|action| action.proven).sum();
        Row {
            attack: entry.attack,
            victim: text::printable(&entry.victim),
            kinds: text::printable(&kinds(entry)),
            now,
            peak: entry.peak_pps.max(rate.unwrap_or(0.0)),
            dropped: dropped(entry),
            held: now.zip(held_pps).filter(|(now, _)| *now > 0.0).map(|(now, held)| (held / now).min(1.0)),
            proven: (hit > 0).then(|| proven as f64 / hit as f64),
            state: state(entry),
            age_s: entry.age_s,
            seen_s: entry.seen_s,
        }
    }

    /// The state in a word or two.
    pub fn state_text(&self) -> String {
        match self.state {
            State::Acting(count) => format!("acting {count}"),
            State::Waiting(count) => format!("WAITS {count}"),
            State::Watched(count) => format!("watched {count}"),
            State::Failed(count) => format!("FAILED {count}"),
            State::NoAction => "no action".to_owned(),
            State::Over => format!("over {}", text::duration(self.seen_s)),
        }
    }
}

/// The kind of an attack and of its vectors that last, or of all if it is over.
fn kinds(entry: &AttackEntry) -> String {
    let mut kinds = vec![entry.kind.as_str()];
    for vector in entry.vectors.iter().filter(|vector| entry.is_over || !vector.is_over) {
        if !kinds.contains(&vector.kind.as_str()) {
            kinds.push(&vector.kind);
        }
    }
    kinds.join(", ")
}

fn state(entry: &AttackEntry) -> State {
    let count = |state: &str| entry.actions.iter().filter(|AttackAction { state: of, .. }| of == state).count();
    let [active, proposed, watched, failed] = ["active", "proposed", "watched", "failed"].map(count);
    match () {
        () if entry.is_over => State::Over,
        () if proposed > 0 => State::Waiting(proposed),
        () if active > 0 => State::Acting(active),
        () if failed > 0 => State::Failed(failed),
        () if watched > 0 => State::Watched(watched),
        () => State::NoAction,
    }
}

/// The rows that match a filter, in an order. The filter is a part of the victim, the kinds or the state.
pub fn rows(entries: &[AttackEntry], rates: Option<&Rates>, filter: &str, order: Order) -> Vec<Row> {
    let filter = filter.to_lowercase();
    let matches = |row: &Row| {
        [&row.victim, &row.kinds, &row.state_text()].iter().any(|text| text.to_lowercase().contains(&filter))
    };
    let mut rows: Vec<Row> = entries.iter().map(|entry| Row::of(entry, rates)).filter(matches).collect();
    let over = |row: &Row| row.state == State::Over;
    rows.sort_by(|one, other| {
        let by_order = match order {
            Order::Now => other.now.unwrap_or(0.0).total_cmp(&one.now.unwrap_or(0.0)),
            Order::Peak => other.peak.total_cmp(&one.peak),
            Order::Dropped => other.dropped.cmp(&one.dropped),
            Order::Latest => one.age_s.total_cmp(&other.age_s),
        };
        let lasting = if order == Order::Now { over(one).cmp(&over(other)) } else { std::cmp::Ordering::Equal };
        lasting.then(by_order).then(other.attack.cmp(&one.attack))
    });
    rows
}
