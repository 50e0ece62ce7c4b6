//! Which sources are in the card: follows tables and policies at once, and exchanges entries once a period.

use super::accounts::Accounts;
use super::counted_rule::CountedRule;
use super::place::{Dropped, Place};
use super::policy::{Blocked, Policy};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::EntryCounts;
use weir_abi::entry::hit_time;
use weir_mitigate::offload::{Change, Hits, Rate, Selection, Thresholds};

/// Sources whose drops are kept for mitigation, at most. Mitigation takes them four times a second.
const UNTOLD_MAX: usize = 1 << 16;

/// Without requests, sources are looked at for at most a fifth of the time.
const PAUSES: u32 = 4;

/// The policy that decides, and a number that differs after each activation.
pub type Now = dyn Fn() -> (u64, Arc<dyn Policy>) + Send;

/// The card with all that is known of it.
pub struct State {
    now: Box<Now>,
    activation: u64,
    policy: Arc<dyn Policy>,
    names: Vec<String>,
    /// What the policy says about each table.
    pub blocked: Vec<Result<Blocked, String>>,
    /// The rules that dropped the sources of each table last.
    rules: Vec<Option<Arc<CountedRule>>>,
    /// Entries that were removed from each table when it was last looked at.
    removed: Vec<Option<u64>>,
    /// Tables with a source that the card has refused to delete.
    refused: HashSet<usize>,
    /// The time that all deletions took until now, which is the card's.
    deleting: Duration,
    /// The hardware table first, if there is one.
    pub places: Vec<Place>,
    selection: Selection<IpAddr>,
    period: Duration,
    software_pps: f64,
    pub accounts: Accounts,
    /// What mitigation was not told yet, by source.
    untold: HashMap<IpAddr, u64>,
    /// The packets of each source of a table at the end of the last period, and the tables that were measured then.
    before: HashMap<(usize, IpAddr), u64>,
    measured: HashSet<usize>,
    begun: Instant,
    /// Packets that the card has dropped in this period.
    card_packets: u64,
    /// When sources may be looked at again without a request.
    rested: Instant,
    /// The last period.
    pub last: Period,
}

/// What was measured in a period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Period {
    /// Packets of blocked sources a second.
    pub blocked_pps: f64,
    /// The share of them that the card has dropped.
    pub share: f64,
}

/// A change of a place.
#[derive(Clone, Copy, Debug)]
pub struct PlaceChange {
    place: usize,
    change: Change<IpAddr>,
    /// The table that the source is of.
    of: usize,
    activation: u64,
}

/// A source with its packets in a period.
struct Source {
    address: IpAddr,
    of: usize,
    packets: u64,
}

impl State {
    /// An empty card for these tables. `software_pps` is what this machine can drop.
    pub fn new(now: Box<Now>, names: Vec<String>, places: Vec<Place>, period: Duration, software_pps: f64) -> Self {
        let (activation, policy) = now();
        let mut state = State {
            now,
            activation,
            policy,
            blocked: Vec::new(),
            rules: vec![None; names.len()],
            removed: vec![None; names.len()],
            refused: HashSet::new(),
            deleting: Duration::ZERO,
            names,
            places,
            selection: Selection::new(0, 0, Thresholds::default()),
            period,
            software_pps,
            accounts: Accounts::default(),
            untold: HashMap::new(),
            before: HashMap::new(),
            measured: HashSet::new(),
            begun: Instant::now(),
            card_packets: 0,
            rested: Instant::now(),
            last: Period::default(),
        };
        state.ask_policy();
        // What was counted before is no rate.
        state.measure();
        state
    }

    /// Asks the policy which tables the card may drop by.
    fn ask_policy(&mut self) {
        let policy = &*self.policy;
        let blocked: Vec<_> = self.names.iter().map(|name| Blocked::of(policy, name)).collect();
        for (of, one) in blocked.iter().enumerate() {
            match one {
                Ok(blocked) => self.rules[of] = Some(blocked.rule.clone()),
                Err(problem) => warning!("weir: card: {problem}"),
            }
        }
        self.blocked = blocked;
    }

    /// Takes every source out of the card that the active policy would not drop now. Looks at sources only if the
    /// policy or a table has changed.
    pub fn follow(&mut self) {
        let (activation, policy) = (self.now)();
        let is_new = activation != self.activation;
        if is_new {
            self.look();
            (self.activation, self.policy) = (activation, policy);
            self.accounts.begin();
            self.ask_policy();
        }
        let (store, tables) = (self.policy.store(), self.policy.tables());
        let removed: Vec<_> = self.names.iter().map(|name| store.removed_so_far(tables, name)).collect();
        let is_changed = |of: &usize| is_new || removed[*of] != self.removed[*of] || self.refused.contains(of);
        let changed: HashSet<usize> = (0..self.names.len()).filter(is_changed).collect();
        // Before the look, so that what is removed meanwhile is seen the next time.
        self.removed = removed;
        if !changed.is_empty() {
            self.expel(&changed);
        }
    }

    /// Like `follow`, for periodic calls: no caller waits for the result. A place with many entries takes long to
    /// check, so there are pauses between checks.
    pub fn follow_paced(&mut self) {
        if Instant::now() >= self.rested || (self.now)().0 != self.activation {
            self.follow();
        }
    }

    /// Like `follow`, and checks all sources that may have become exempt.
    pub fn follow_all(&mut self) {
        self.follow();
        self.expel_where(Blocked::is_exempt_by_tables);
    }

    /// Like `follow`, if only a table has changed.
    pub fn follow_table(&mut self, table: &str) {
        self.follow();
        self.expel_where(|blocked| blocked.is_exempt_by(table));
    }

    /// Follows, looks at all sources that may have become exempt, and reads the counters of the card. Returns the time
    /// that this took, without the time of the card's changes.
    pub fn look_at_all(&mut self) -> Duration {
        let (begun, deleting) = (Instant::now(), self.deleting);
        self.follow_all();
        self.look();
        begun.elapsed().saturating_sub(self.deleting - deleting)
    }

    fn expel_where(&mut self, holds: impl Fn(&Blocked) -> bool) {
        let is_wanted = |of: &usize| self.blocked[*of].as_ref().is_ok_and(&holds);
        let tables: HashSet<usize> = (0..self.names.len()).filter(is_wanted).collect();
        self.expel(&tables);
    }

    /// Takes sources of some tables out of the card that the policy would not drop.
    fn expel(&mut self, tables: &HashSet<usize>) {
        let (begun, deleting) = (Instant::now(), self.deleting);
        self.refused.retain(|of| !tables.contains(of));
        for place in 0..self.places.len() {
            let mut leaving = Vec::new();
            for &of in tables {
                let own: Vec<IpAddr> =
                    self.places[place].sources().filter(|one| one.1 == of).map(|one| one.0).collect();
                let stay = match &self.blocked[of] {
                    Ok(blocked) if !own.is_empty() => blocked.may_drop(&*self.policy, &own),
                    _ => HashSet::new(),
                };
                leaving.extend(own.into_iter().filter(|source| !stay.contains(source)));
            }
            if !leaving.is_empty() {
                self.leave(place, &leaving);
            }
        }
        let looked = begun.elapsed().saturating_sub(self.deleting - deleting);
        self.rested = Instant::now() + looked * PAUSES;
    }

    fn leave(&mut self, place: usize, sources: &[IpAddr]) {
        let begun = Instant::now();
        let (dropped, all) = self.places[place].leave(sources);
        self.deleting += begun.elapsed();
        self.count(&dropped);
        let own = &self.places[place];
        // What the card has refused to delete is tried again at the next look.
        self.refused.extend(sources.iter().filter_map(|source| own.table_of(*source)));
        if self.places[place].name == TABLE {
            let gone: Vec<IpAddr> = match all {
                true => self.selection.entries().iter().copied().collect(),
                false => sources.to_vec(),
            };
            self.selection.remove(gone.into_iter().filter(|source| !self.places[place].has(*source)));
        }
    }

    /// Reads the counters of the card, and counts what is new.
    pub fn look(&mut self) {
        for place in 0..self.places.len() {
            let dropped = self.places[place].look();
            self.count(&dropped);
        }
    }

    fn count(&mut self, dropped: &[Dropped]) {
        let now = hit_time(weir_state::now_ns());
        for one in dropped {
            self.card_packets += one.hits.packets;
            if let Some(rule) = &self.rules[one.of] {
                self.accounts.add(rule, one.hits);
            }
            if self.untold.len() < UNTOLD_MAX || self.untold.contains_key(&one.source) {
                *self.untold.entry(one.source).or_default() += one.hits.packets;
            }
        }
        for (of, name) in self.names.iter().enumerate() {
            let own: Vec<&Dropped> = dropped.iter().filter(|one| one.of == of).collect();
            let Some(Ok(blocked)) = self.blocked.get(of).filter(|_| !own.is_empty()) else { continue };
            let length = blocked.full_length();
            // An entry that has left its table counts no more.
            let _gone = self.policy.store().read(self.policy.tables(), name, |view| {
                for one in own {
                    let entry = view.longest(one.source).filter(|entry| entry.len == length);
                    entry.iter().for_each(|entry| view.count_beside(entry, counts(one.hits), now));
                }
            });
        }
    }

    /// What the card has dropped by source since the last call.
    pub fn take_untold(&mut self) -> Vec<(IpAddr, u64)> {
        self.untold.drain().collect()
    }

    /// Ends a period: measures all sources, and chooses the changes.
    pub fn choose(&mut self) -> Vec<PlaceChange> {
        self.follow();
        self.look();
        let seconds = self.begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        self.begun = Instant::now();
        let sources = self.measure();
        let all: u64 = sources.iter().map(|source| source.packets).sum();
        let by_card = std::mem::take(&mut self.card_packets).min(all);
        let share = if all == 0 { 0.0 } else { by_card as f64 / all as f64 };
        self.last = Period { blocked_pps: all as f64 / seconds, share };
        let load = (all - by_card) as f64 / seconds / self.software_pps;
        let mut changes = Vec::new();
        // The CPU, whose changes take no time, comes before the table.
        for place in (0..self.places.len()).rev() {
            match self.places[place].name {
                TABLE => self.choose_for_table(place, &sources, load, &mut changes),
                _ => self.choose_for_cpu(place, &sources, &mut changes),
            }
        }
        changes
    }

    /// The sources of all tables with their packets in the period, the fastest first. Of software and card together. A
    /// table that was not measured in the last period has no rates yet.
    fn measure(&mut self) -> Vec<Source> {
        let now = hit_time(weir_state::now_ns());
        let (mut sources, mut counted, mut measured) = (Vec::new(), HashMap::new(), HashSet::new());
        for (of, blocked) in self.blocked.iter().enumerate() {
            let Ok(blocked) = blocked else { continue };
            let (before, is_first) = (&self.before, !self.measured.contains(&of));
            measured.insert(of);
            // A table that is gone has no sources.
            let _gone = self.policy.store().read(self.policy.tables(), &blocked.table, |view| {
                for entry in view.entries().filter(|entry| entry.len == blocked.full_length()) {
                    let packets = view.counts(&entry, now).unwrap_or_default().packets;
                    // An entry that came back counts anew.
                    let earlier = before.get(&(of, entry.addr)).filter(|&&earlier| earlier <= packets).copied();
                    let earlier = earlier.unwrap_or(if is_first { packets } else { 0 });
                    sources.push(Source { address: entry.addr, of, packets: packets - earlier });
                    if packets > 0 {
                        counted.insert((of, entry.addr), packets);
                    }
                }
            });
        }
        (self.before, self.measured) = (counted, measured);
        sources.sort_unstable_by(|one, other| {
            other.packets.cmp(&one.packets).then(one.address.cmp(&other.address)).then(one.of.cmp(&other.of))
        });
        // An address may be in several tables. The first one has it.
        let mut known = HashSet::new();
        sources.retain(|source| known.insert(source.address));
        sources
    }

    fn choose_for_table(&mut self, place: usize, sources: &[Source], load: f64, changes: &mut Vec<PlaceChange>) {
        let (capacity, update_ns) = (self.places[place].capacity(), self.places[place].update_ns());
        self.selection.set_room(capacity, Selection::<IpAddr>::budget(self.period.as_nanos() as u64, update_ns));
        let busy = sources.iter().take_while(|source| source.packets > 0);
        let candidates = self.not_exempt(busy, capacity);
        let entries = self.selection.entries();
        let others = sources.iter().filter(|source| entries.contains(&source.address));
        let mut known = HashSet::new();
        let chosen = candidates.iter().copied().chain(others).filter(|source| known.insert(source.address));
        let (mut rates, mut of) = (Vec::new(), HashMap::new());
        for source in chosen {
            rates.push(Rate { key: source.address, packets: source.packets });
            of.insert(source.address, source.of);
        }
        for change in self.selection.choose(&rates, load) {
            let (Change::Add(source) | Change::Delete(source)) = change;
            let of = of.get(&source).copied().unwrap_or(0);
            changes.push(PlaceChange { place, change, of, activation: self.activation });
        }
    }

    /// The CPU has all sources, if there is room: the fastest ones.
    fn choose_for_cpu(&self, place: usize, sources: &[Source], changes: &mut Vec<PlaceChange>) {
        let wanted = self.not_exempt(sources.iter(), self.places[place].capacity());
        let names: HashSet<IpAddr> = wanted.iter().map(|source| source.address).collect();
        let own = &self.places[place];
        let (activation, change) = (self.activation, |source: &Source| Change::Add(source.address));
        let leaving = own.sources().filter(|one| !names.contains(&one.0));
        changes.extend(leaving.map(|(source, of)| PlaceChange {
            place,
            change: Change::Delete(source),
            of,
            activation,
        }));
        let new = wanted.into_iter().filter(|source| !own.has(source.address));
        changes.extend(new.map(|source| PlaceChange { place, change: change(source), of: source.of, activation }));
    }

    /// The first `wanted` sources that the card may drop.
    fn not_exempt<'a>(&self, sources: impl Iterator<Item = &'a Source>, wanted: usize) -> Vec<&'a Source> {
        let (mut sources, mut found) = (sources.peekable(), Vec::new());
        while found.len() < wanted && sources.peek().is_some() {
            let some: Vec<&Source> = sources.by_ref().take(wanted - found.len()).collect();
            let mut may: HashSet<(usize, IpAddr)> = HashSet::new();
            for (of, blocked) in self.blocked.iter().enumerate() {
                let own: Vec<IpAddr> = some.iter().filter(|one| one.of == of).map(|one| one.address).collect();
                if let Ok(blocked) = blocked.as_ref().map_err(|_| ())
                    && !own.is_empty()
                {
                    may.extend(blocked.may_drop(&*self.policy, &own).into_iter().map(|address| (of, address)));
                }
            }
            found.extend(some.into_iter().filter(|one| may.contains(&(one.of, one.address))));
        }
        found
    }

    /// Makes a change, unless it is out of date.
    pub fn make(&mut self, planned: PlaceChange) {
        self.follow_paced();
        let PlaceChange { place, change, of, activation } = planned;
        let is_current = activation == self.activation;
        let is_made = match change {
            Change::Add(source) => {
                let may = |blocked: &Blocked| blocked.may_drop(&*self.policy, &[source]).contains(&source);
                let is_chosen = self.places[place].name != TABLE || self.selection.entries().contains(&source);
                let may = is_current && is_chosen && self.blocked[of].as_ref().is_ok_and(may);
                may && self.places[place].add(source, of)
            }
            Change::Delete(source) => {
                if self.places[place].has(source) {
                    let (dropped, _) = self.places[place].leave(&[source]);
                    self.count(&dropped);
                }
                !self.places[place].has(source)
            }
        };
        if !is_made && self.places[place].name == TABLE {
            self.selection.refused(&[change]);
        }
    }

    /// Takes everything out of the card.
    pub fn empty(&mut self) {
        for place in 0..self.places.len() {
            let all: Vec<IpAddr> = self.places[place].sources().map(|one| one.0).collect();
            self.leave(place, &all);
        }
    }

    /// The name of a table.
    pub fn name(&self, of: usize) -> &str {
        &self.names[of]
    }
}

/// The name of the place whose entries are chosen by their rates.
pub const TABLE: &str = "table";

fn counts(hits: Hits) -> EntryCounts {
    EntryCounts { packets: hits.packets, bytes: hits.bytes, last: hit_time(hits.last_ns) }
}
