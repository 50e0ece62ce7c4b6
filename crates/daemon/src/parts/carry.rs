//! Propagates link state (`--carry-link`): when a link on one side fails, Weir takes down the opposite link, so that
//! its neighbour notices.
//!
//! ```text
//!   neighbour ---x   lower | upper   x--- neighbour        lower lost its carrier: upper is taken down
//!   neighbour ----   lower | upper   ---- neighbour        it is back: upper is put up, and has time to come up
//! ```
//! The carrier of a link that Weir has taken down is unknown, so it takes down no other link. Weir thus never takes
//! down both of two opposite links. Weir puts up only links that it has taken down.

use crate::generations::generation::Loader;
use crate::interfaces::guard::Guard;
use crate::interfaces::states::opposite;
use crate::options::RunOptions;
use crate::parts::part::{Part, Running};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::EngineError;
use weir_engine::live::Interfaces;
use weir_engine::live::os::link::{LinkState, LinkSwitch};

/// Time for a link to get a carrier after it was put up. Cards negotiate a speed first.
const SETTLE: Duration = Duration::from_secs(10);

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// The link has a carrier.
    Alive,
    /// The link was put up at this time and has had no carrier yet.
    Settling(Instant),
    /// The link has no carrier, its administrator has taken it down, or it does not exist.
    Dead,
    /// Weir has taken it down.
    TakenDown,
}

/// A change of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    TakeDown,
    PutUp,
}

struct WatchedLink {
    link: LinkSwitch,
    health: Health,
    /// Indices of the links that packets of this link go to or come from.
    opposite: Vec<usize>,
}

/// `--carry-link` as a part of the daemon.
#[derive(Default)]
pub struct Carrying(Option<CarriedLinks>);

impl Carrying {
    /// The part, if the option is given.
    pub fn of(options: &RunOptions) -> Option<Self> {
        options.carry_link.then(Carrying::default)
    }
}

impl<L: Loader> Part<L> for Carrying {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        self.0 = Some(CarriedLinks::watch(running.interfaces)?);
        Ok(())
    }

    fn step(&mut self, running: &Running<'_, L>) {
        if let Some(links) = &mut self.0 {
            links.step(&running.guard);
        }
    }

    fn end(&mut self, _: &Running<'_, L>) {
        self.0 = None;
    }
}

/// All links of both sides.
pub struct CarriedLinks {
    links: Vec<WatchedLink>,
}

impl CarriedLinks {
    /// Starts to watch the links.
    ///
    /// # Errors
    /// An interface does not exist, or this process has no right to change it.
    pub fn watch(interfaces: &Interfaces) -> Result<Self, Failure> {
        let names = interfaces.lower.iter().chain(&interfaces.upper);
        let open = |name: &String| -> Result<LinkSwitch, EngineError> {
            let link = LinkSwitch::new(name);
            link.check_right().map(|()| link)
        };
        let links = names.map(open).collect::<Result<Vec<_>, _>>();
        let links = links.map_err(|error| {
            let text = format!("--carry-link: {error}");
            match error.is_descriptor_limit() {
                true => Failure::NoDescriptors(text),
                false => Failure::Runtime(text),
            }
        })?;
        let opposite = opposite(interfaces.lower.len(), interfaces.upper.len());
        let links = links.into_iter().zip(opposite);
        let links = links.map(|(link, opposite)| WatchedLink { health: initial_health(&link), link, opposite });
        Ok(CarriedLinks { links: links.collect() })
    }

    /// Reads the state of all links and changes opposite links accordingly. The guard is told of a link before it is
    /// taken down.
    pub fn step(&mut self, guard: &Guard) {
        let now = Instant::now();
        for watched in &mut self.links {
            let health = watched.health.after(watched.link.state().ok(), now);
            if watched.health == Health::TakenDown && health != Health::TakenDown {
                // The administrator has put it up, so the guard must not.
                guard.put_up(watched.link.interface());
            }
            watched.health = health;
        }
        for index in 0..self.links.len() {
            let WatchedLink { link, health, opposite } = &self.links[index];
            let step = step(*health, opposite.iter().map(|&other| self.links[other].health));
            let done = match step {
                None => continue,
                Some(Switch::TakeDown) => {
                    warning!([Interface: link.interface()] "weir: {} is taken down, because the opposite interface has no link", link.interface());
                    guard.taken_down(link.interface());
                    link.take_down().map(|()| Health::TakenDown)
                }
                Some(Switch::PutUp) => {
                    notice!([Interface: link.interface()] "weir: {} is put up again", link.interface());
                    let done = link.put_up().map(|()| initial_health(link));
                    guard.put_up(link.interface());
                    done
                }
            };
            // If the change fails, the link does not exist or Weir has lost the right to change it.
            self.links[index].health = done.unwrap_or_else(|error| {
                error!("weir: --carry-link: {error}");
                Health::Dead
            });
        }
    }
}

/// The health of a link that was just put up.
fn initial_health(link: &LinkSwitch) -> Health {
    let now = Instant::now();
    Health::Settling(now).after(link.state().ok(), now)
}

impl Health {
    /// The next health, after `state` was read. `None` if the interface does not exist.
    fn after(self, state: Option<LinkState>, now: Instant) -> Self {
        let (up, carrier) = state.map_or((false, false), |state| (state.up, state.carrier));
        match self {
            Health::TakenDown if !up => Health::TakenDown,
            _ if carrier => Health::Alive,
            Health::TakenDown => Health::Settling(now),
            Health::Settling(since) if up && now.duration_since(since) < SETTLE => self,
            Health::Settling(_) | Health::Alive | Health::Dead => Health::Dead,
        }
    }
}

/// The change that a link needs, from its health and the health of the opposite links.
fn step(own: Health, mut opposite: impl Iterator<Item = Health> + Clone) -> Option<Switch> {
    match own {
        Health::TakenDown => opposite.any(|other| other == Health::Alive).then_some(Switch::PutUp),
        Health::Alive | Health::Settling(_) => opposite.all(|other| other == Health::Dead).then_some(Switch::TakeDown),
        // Its neighbour has noticed already.
        Health::Dead => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulated links of both sides, with neighbours that may fail.
    struct Simulated {
        neighbour: Vec<bool>,
        up: Vec<bool>,
        health: Vec<Health>,
        opposite: Vec<Vec<usize>>,
        now: Instant,
        /// Time from putting up a link to its carrier.
        slowness: Duration,
        since: Vec<Instant>,
        steps: usize,
    }

    impl Simulated {
        fn new(lower: usize, upper: usize, slowness: Duration) -> Self {
            let (count, now) = (lower + upper, Instant::now());
            Simulated {
                neighbour: vec![true; count],
                up: vec![true; count],
                health: vec![Health::Settling(now); count],
                opposite: opposite(lower, upper),
                now,
                slowness,
                since: vec![now; count],
                steps: 0,
            }
        }

        fn run(&mut self, seconds: u64) {
            for _ in 0..seconds * 10 {
                self.now += Duration::from_millis(100);
                for link in 0..self.up.len() {
                    let up = self.up[link];
                    let settled = self.now.duration_since(self.since[link]) >= self.slowness;
                    let state = LinkState { up, carrier: up && self.neighbour[link] && settled, promiscuous: false };
                    self.health[link] = self.health[link].after(Some(state), self.now);
                }
                for link in 0..self.up.len() {
                    let opposite = self.opposite[link].iter().map(|&other| self.health[other]);
                    let Some(step) = step(self.health[link], opposite) else { continue };
                    self.up[link] = step == Switch::PutUp;
                    self.since[link] = self.now;
                    self.health[link] = if self.up[link] { Health::Settling(self.now) } else { Health::TakenDown };
                    self.steps += 1;
                }
            }
        }
    }

    #[test]
    fn a_lost_carrier_takes_the_opposite_link_down_until_it_is_back() {
        for dead in [0, 1] {
            let mut links = Simulated::new(1, 1, Duration::from_secs(3));
            links.run(20);
            assert_eq!((links.steps, &links.up), (0, &vec![true, true]));
            links.neighbour[dead] = false;
            links.run(60);
            assert_eq!((links.steps, links.up[dead], links.up[1 - dead]), (1, true, false));
            links.neighbour[dead] = true;
            links.run(60);
            assert_eq!((links.steps, &links.health), (2, &vec![Health::Alive; 2]));
        }
    }

    #[test]
    fn both_links_recover_in_any_order_without_flapping() {
        for first in [0, 1] {
            let mut links = Simulated::new(1, 1, Duration::from_secs(3));
            links.run(20);
            links.neighbour = vec![false; 2];
            links.run(120);
            links.neighbour[first] = true;
            links.run(120);
            assert!(links.up.contains(&true), "Weir takes down one at most");
            assert_ne!(links.health, [Health::Alive; 2]);
            assert!(links.steps <= 12, "{} steps in two minutes", links.steps);
            links.neighbour[1 - first] = true;
            links.run(60);
            assert_eq!(links.health, [Health::Alive; 2]);
        }
    }

    #[test]
    fn a_group_of_links_is_dead_when_all_its_links_are() {
        let mut links = Simulated::new(2, 1, Duration::ZERO);
        links.neighbour[0] = false;
        links.run(30);
        assert_eq!(links.up, [true, true, true], "the other still carries");
        links.neighbour[1] = false;
        links.run(30);
        assert_eq!(links.up, [true, true, false]);
        links.neighbour[0] = true;
        links.run(30);
        assert_eq!(links.up, [true, true, true]);
        links.neighbour = vec![true, true, false];
        links.run(30);
        assert_eq!(links.up, [false, false, true]);
    }

    #[test]
    fn a_link_that_the_administrator_takes_down_stays_down() {
        let mut links = Simulated::new(1, 1, Duration::ZERO);
        links.run(1);
        links.up[0] = false;
        links.run(1);
        assert_eq!(links.up, [false, false]);
        assert_eq!(links.health, [Health::Dead, Health::TakenDown]);
        links.up[1] = true;
        links.run(1);
        assert_eq!(links.up, [false, false], "the opposite link is still down");
        links.up[0] = true;
        links.run(1);
        assert_eq!(links.up, [true, true]);
    }
}
