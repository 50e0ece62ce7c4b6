//! Link state carried across (`--carry-link`): where the wire on one side is dead, so is the one opposite, for its neighbour to see.
//!
//! ```text
//!   neighbour ---x   lower | upper   x--- neighbour        lower lost its carrier: upper is taken down
//!   neighbour ----   lower | upper   ---- neighbour        it is back: upper is put up, and has time to come up
//! ```
//! A link that Weir has taken down says nothing about its own wire, so it takes no other down; one of two opposite links is always watched.
//! Only what Weir has taken down is put up again.

use crate::failure::Failure;
use crate::run::guard::Guard;
use std::time::{Duration, Instant};
use weir_engine::EngineError;
use weir_engine::live::Interfaces;
use weir_engine::live::link::{LinkState, LinkSwitch};

/// How long a link that was put up may take until its wire carries; cards agree on a speed first.
const SETTLE: Duration = Duration::from_secs(10);

/// What is known of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// Its wire carries.
    Alive,
    /// It was put up then, and its wire has not carried yet.
    Settling(Instant),
    /// Its wire is dead, its owner has taken it down, or it is gone.
    Dead,
    /// Weir has taken it down.
    TakenDown,
}

/// What is to be done to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    TakeDown,
    PutUp,
}

struct Carried {
    link: LinkSwitch,
    health: Health,
    /// Links that packets of this one go out of, or that send theirs out of it.
    opposite: Vec<usize>,
}

/// All links of both sides.
pub struct CarriedLinks {
    links: Vec<Carried>,
}

impl CarriedLinks {
    /// Starts to watch.
    ///
    /// # Errors
    /// The kernel does not know an interface, or gives no right to change it.
    pub fn watch(interfaces: &Interfaces) -> Result<Self, Failure> {
        let names = interfaces.lower.iter().chain(&interfaces.upper);
        let open = |name: &String| -> Result<LinkSwitch, EngineError> {
            let link = LinkSwitch::new(name);
            link.check_right().map(|()| link)
        };
        let links = names.map(open).collect::<Result<Vec<_>, _>>();
        let links = links.map_err(|error| {
            let text = format!("--carry-link: {error}");
            match error.is_for_want_of_descriptors() {
                true => Failure::NoDescriptors(text),
                false => Failure::Runtime(text),
            }
        })?;
        let opposite = opposite(interfaces.lower.len(), interfaces.upper.len());
        let links = links.into_iter().zip(opposite);
        let links = links.map(|(link, opposite)| Carried { health: begun(&link), link, opposite });
        Ok(CarriedLinks { links: links.collect() })
    }

    /// Looks at all links, and carries across what has changed. The guard knows of what is down before it is.
    pub fn step(&mut self, guard: &Guard) {
        let now = Instant::now();
        for carried in &mut self.links {
            let health = carried.health.after(carried.link.state().ok(), now);
            if carried.health == Health::TakenDown && health != Health::TakenDown {
                // Its owner has put it up, and decides from now on.
                guard.put_up(carried.link.interface());
            }
            carried.health = health;
        }
        for index in 0..self.links.len() {
            let Carried { link, health, opposite } = &self.links[index];
            let step = step(*health, opposite.iter().map(|&other| self.links[other].health));
            let done = match step {
                None => continue,
                Some(Step::TakeDown) => {
                    eprintln!("weir: {} is taken down, for there is no link opposite", link.interface());
                    guard.taken_down(link.interface());
                    link.take_down().map(|()| Health::TakenDown)
                }
                Some(Step::PutUp) => {
                    eprintln!("weir: {} is put up again", link.interface());
                    let done = link.put_up().map(|()| begun(link));
                    guard.put_up(link.interface());
                    done
                }
            };
            // What fails is gone, or no longer ours to change.
            self.links[index].health = done.unwrap_or_else(|error| {
                eprintln!("weir: --carry-link: {error}");
                Health::Dead
            });
        }
    }
}

/// The health of a link that is up since now.
fn begun(link: &LinkSwitch) -> Health {
    let now = Instant::now();
    Health::Settling(now).after(link.state().ok(), now)
}

impl Health {
    /// After the kernel has said this; `None`: the interface is gone.
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

/// What is to be done to a link, by its health and that of the links opposite.
fn step(own: Health, mut opposite: impl Iterator<Item = Health> + Clone) -> Option<Step> {
    match own {
        Health::TakenDown => opposite.any(|other| other == Health::Alive).then_some(Step::PutUp),
        Health::Alive | Health::Settling(_) => opposite.all(|other| other == Health::Dead).then_some(Step::TakeDown),
        // Its neighbour knows.
        Health::Dead => None,
    }
}

/// For each link, lower ones first, those opposite: packets go from a link to the one with its number on the other side, counted round.
fn opposite(lower: usize, upper: usize) -> Vec<Vec<usize>> {
    let up = (0..lower).map(|link| (link, lower + link % upper));
    let down = (0..upper).map(|link| (link % lower, lower + link));
    let mut opposite = vec![Vec::new(); lower + upper];
    for (one, other) in up.chain(down) {
        if !opposite[one].contains(&other) {
            opposite[one].push(other);
            opposite[other].push(one);
        }
    }
    opposite
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sides of simulated links, whose neighbours are there or not.
    struct Simulated {
        neighbour: Vec<bool>,
        up: Vec<bool>,
        health: Vec<Health>,
        opposite: Vec<Vec<usize>>,
        now: Instant,
        /// How long after it is up a link carries.
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
                    self.up[link] = step == Step::PutUp;
                    self.since[link] = self.now;
                    self.health[link] = if self.up[link] { Health::Settling(self.now) } else { Health::TakenDown };
                    self.steps += 1;
                }
            }
        }
    }

    #[test]
    fn a_dead_wire_is_carried_across_and_comes_back() {
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
    fn whichever_wire_comes_back_first_both_do_in_the_end_and_nothing_flaps() {
        for first in [0, 1] {
            let mut links = Simulated::new(1, 1, Duration::from_secs(3));
            links.run(20);
            links.neighbour = vec![false; 2];
            links.run(120);
            links.neighbour[first] = true;
            links.run(120);
            assert!(links.up.contains(&true), "one is always watched");
            assert_ne!(links.health, [Health::Alive; 2]);
            assert!(links.steps <= 12, "{} steps in two minutes", links.steps);
            links.neighbour[1 - first] = true;
            links.run(60);
            assert_eq!(links.health, [Health::Alive; 2]);
        }
    }

    #[test]
    fn of_a_bundle_the_last_wire_counts() {
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
    fn what_its_owner_has_taken_down_stays_down() {
        let mut links = Simulated::new(1, 1, Duration::ZERO);
        links.run(1);
        links.up[0] = false;
        links.run(1);
        assert_eq!(links.up, [false, false]);
        assert_eq!(links.health, [Health::Dead, Health::TakenDown]);
        links.up[1] = true;
        links.run(1);
        assert_eq!(links.up, [false, false], "there is still no link opposite");
        links.up[0] = true;
        links.run(1);
        assert_eq!(links.up, [true, true]);
    }
}
