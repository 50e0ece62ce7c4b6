//! `rules=follow`: the choice of rules that the card answers follows live traffic.
//!
//! ```text
//!   counters, once a window --> traffic --> follower --> keeps the choice, and says why
//!                                                   `--> another one: the policy is split and compiled again, and
//!                                                        succeeds the active generation in an epoch of the card
//! ```
//! A window is judged only if one configuration of the card and one generation decided all of its packets by answers.

use super::HybridCard;
use super::splitter::{Offloaded, base};
use super::traffic::{Reading, Window};
use crate::door::Door;
use crate::generations::controller::Controller;
use crate::generations::generation::{Generation, Loader};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use weir_card::TableSizes;
use weir_card::distributor::cost::{Bill, Idle, Link};
use weir_card::distributor::follow::{Follower, Judged, Patience, Step};
use weir_command::failure::Failure;
use weir_command::report::say;
use weir_control::{FollowChange, FollowStatus, FollowWindow};
use weir_engine::live::Datapath;
use weir_planning::card::CardTables;
use weir_planning::{Distributed, bill};
use weir_policy::ir::RuleId;

/// The shortest window. Three of them take less time than an operator to notice an attack.
const WINDOW: Duration = Duration::from_millis(500);
/// A window is so many times as long as it takes to judge one, which may be long for a policy of many rules.
const WINDOW_TO_JUDGING: u32 = 20;
/// Fewer packets say nothing: the share of 500 is known to 2%.
const PACKETS_MIN: u64 = 500;
/// Pause of the thread between two looks at its end.
const TICK: Duration = Duration::from_millis(20);

type Code<L> = <<L as Loader>::Datapath as Datapath>::Code;

/// What the thread has.
struct Following<L: Loader> {
    card: HybridCard,
    link: Link,
    follower: Follower,
    began: Instant,
    /// Where the window began.
    before: Option<Began<L>>,
    /// How long the last window took to judge.
    judging: Duration,
    sizes: Sizes,
    /// The generation that was made for the last change.
    made: Option<u64>,
    status: FollowStatus,
    changed: Option<Instant>,
    /// The failure that was reported last.
    reported: Option<String>,
}

/// The beginning of a window.
struct Began<L: Loader> {
    at: Instant,
    activations: u64,
    epoch: u16,
    generation: Arc<Generation<Code<L>>>,
    reading: Reading,
}

/// The sizes of tables of a generation on the card. To know one, an image is built.
#[derive(Default)]
struct Sizes {
    generation: u64,
    known: RefCell<HashMap<String, Option<usize>>>,
    /// Tables with other entries than the generation was loaded with.
    changed: BTreeSet<String>,
}

/// Starts the thread. It ends when the door is gone, or Weir leaves the card.
///
/// # Errors
/// The thread cannot be started.
pub fn start<L: Loader>(door: Weak<Door<L>>, card: HybridCard, link: Link) -> Result<(), Failure> {
    let follower = Follower::new(card.profile(), Patience::default());
    let mut following = Following::<L> {
        card,
        link,
        follower,
        began: Instant::now(),
        before: None,
        judging: Duration::ZERO,
        sizes: Sizes::default(),
        made: None,
        status: FollowStatus { thinks: "no window has ended yet".to_owned(), ..FollowStatus::default() },
        changed: None,
        reported: None,
    };
    following.card.note_following(following.status.clone(), None);
    let follow = move || {
        let mut window_began = Instant::now();
        while let Some(door) = door.upgrade().filter(|_| !following.card.has_ended()) {
            if window_began.elapsed() >= WINDOW.max(following.judging * WINDOW_TO_JUDGING) {
                window_began = Instant::now();
                if let Err(failure) = Failure::catch(|| following.end_window(&door)) {
                    following.skip(failure.message().to_owned());
                }
                following.card.note_following(following.status.clone(), following.changed);
            }
            drop(door);
            thread::sleep(TICK);
        }
    };
    let started = thread::Builder::new().name("weir-follow".to_owned()).spawn(follow);
    started.map(drop).map_err(|error| Failure::system("a thread that follows traffic", error))
}

impl<L: Loader> Following<L> {
    /// A window has ended.
    fn end_window(&mut self, door: &Door<L>) -> Result<(), Failure> {
        let controller = &door.controller;
        let now = match self.read(controller) {
            Ok(now) => now,
            Err(why) => {
                self.skip(why);
                return Ok(());
            }
        };
        let generation = now.generation.clone();
        let offloaded = generation.offloaded().expect("a generation with answers has a card's part");
        self.follower.set(offloaded.choice.clone());
        self.status.rules = cited(&generation, &offloaded.choice);
        let Some(before) = self.before.replace(now) else {
            self.status.thinks = "a window has begun".to_owned();
            return Ok(());
        };
        let now = self.before.as_ref().expect("it was set");
        let is_same = Arc::ptr_eq(&now.generation, &before.generation)
            && (now.activations, now.epoch) == (before.activations, before.epoch);
        if !is_same {
            self.pause("the policy or the card's configuration changed in the window".to_owned());
            return Ok(());
        }
        let seconds = (now.at - before.at).as_secs_f64();
        let (program, chain) = (generation.program(), base(generation.program()));
        let text = generation.text().expect("a bundle has no answers");
        let nodes = &text.lowered.program.chains[chain].tree.nodes;
        let window = now.reading.since(&before.reading, program, nodes, seconds);
        if window.packets < PACKETS_MIN {
            self.pause(format!("the window has {} packets, too few to be judged", window.packets));
            return Ok(());
        }
        if let Err(refused) = controller.may_succeed(generation.id) {
            self.pause(refused.message().to_owned());
            return Ok(());
        }
        self.judge(door, (&generation, chain), &window, seconds);
        Ok(())
    }

    /// Reads all counters, or says why the choice does not matter now.
    fn read(&self, controller: &Controller<L::Datapath>) -> Result<Began<L>, String> {
        let (activations, generation, _) = controller.deciding();
        let (epoch, dropped) = self.card.counted()?;
        let counters = controller.upstream_counters(&generation).ok_or("a change is under way")?;
        let rules = generation.offloaded().map(|Offloaded { card, .. }| card.dropped.clone()).unwrap_or_default();
        if dropped.len() != rules.len() {
            return Err("a change is under way".to_owned());
        }
        let dropped = rules.into_iter().zip(dropped).collect();
        Ok(Began { at: Instant::now(), activations, epoch, generation, reading: Reading { counters, dropped } })
    }

    /// Judges a window, and changes the choice if the follower says so.
    fn judge(
        &mut self,
        door: &Door<L>,
        (generation, chain): (&Arc<Generation<Code<L>>>, usize),
        window: &Window,
        seconds: f64,
    ) {
        let begun = Instant::now();
        if self.sizes.generation != generation.id {
            self.sizes = Sizes { generation: generation.id, ..Sizes::default() };
        }
        let policy = generation.policy();
        let sizes = LiveSizes { sizes: &self.sizes, tables: CardTables::new(policy) };
        let profile = self.card.profile();
        let of = Distributed { policy, chain, profile, sizes: &sizes, link: self.link, idle: Idle::Seals };
        let now_ms = self.began.elapsed().as_millis() as u64;
        let judged = of.by(|distributor| self.follower.step(distributor, &window.traffic, now_ms));
        self.judging = begun.elapsed();
        let Judged { now, advised, step } = judged;
        self.status.window = Some(FollowWindow {
            seconds,
            packets: window.packets,
            pps: window.traffic.pps,
            answered: window.traffic.answered,
            current: bill(&now),
            alone: bill(&advised.alone),
            all: bill(&advised.all),
            chosen: bill(&advised.choice.bill),
            rules: cited(generation, &advised.choice.rules),
        });
        match step {
            Step::Keep { why } => why.clone_into(&mut self.status.thinks),
            Step::Change { why } => {
                self.change(door, generation, &advised.choice.rules, (why, now, advised.choice.bill))
            }
        }
    }

    /// Makes a choice the one in force.
    fn change(
        &mut self,
        door: &Door<L>,
        generation: &Arc<Generation<Code<L>>>,
        choice: &BTreeSet<RuleId>,
        (why, before, after): (&str, Bill, Bill),
    ) {
        let program = generation.program();
        let tested = program.tables_tested();
        let tables = choice.iter().flat_map(|rule| &tested[usize::from(rule.0)]).map(|&table| table.to_owned());
        let changed: Vec<String> = tables.filter(|table| self.card.has_changed(generation, table)).collect();
        if let Some(table) = changed.first() {
            self.status.thinks = super::changed(table);
            self.sizes.changed.extend(changed);
            self.skip_window();
            return;
        }
        let begun = Instant::now();
        let made = door.choose(generation, choice);
        let took = begun.elapsed();
        self.follower.took(took.as_millis() as u64, self.began.elapsed().as_millis() as u64);
        let rules = cited(generation, choice);
        let made = match made {
            Ok(made) => made,
            Err(failure) => return self.failed(failure.message().to_owned()),
        };
        // What the operator has loaded stays ready.
        if let Some(own) = self.made.replace(made).filter(|own| *own == generation.id) {
            door.controller.remove(own);
        }
        self.reported = None;
        self.status.changes += 1;
        self.status.thinks = format!("the choice was changed: {why}");
        self.status.rules.clone_from(&rules);
        (self.before, self.changed) = (None, Some(Instant::now()));
        say(&format!("weir: card: {}, because {why}: {}", offloads(made, &rules), costs(&before, &after)));
        self.status.last = Some(FollowChange {
            ago_s: 0.0,
            took_s: took.as_secs_f64(),
            generation: made,
            why: why.to_owned(),
            before: bill(&before),
            after: bill(&after),
            rules,
        });
    }

    /// A change has failed. The choice is the choice of the generation, and the follower waits as after a change.
    fn failed(&mut self, why: String) {
        self.status.failed += 1;
        if self.reported.as_ref() != Some(&why) {
            say(&format!("weir: card: the choice cannot follow traffic: {why}"));
        }
        self.status.thinks = format!("the last change failed: {why}");
        self.reported = Some(why);
        self.skip_window();
    }

    /// The window that has ended says nothing, and the next one begins later.
    fn skip(&mut self, why: String) {
        self.status.thinks = why;
        self.skip_window();
    }

    fn skip_window(&mut self) {
        self.before = None;
        self.follower.skip();
    }

    /// The window that has ended says nothing.
    fn pause(&mut self, why: String) {
        self.status.thinks = why;
        self.follower.skip();
    }
}

/// The sizes of tables as the follower sees them.
struct LiveSizes<'a> {
    sizes: &'a Sizes,
    tables: CardTables<'a>,
}

impl TableSizes for LiveSizes<'_> {
    fn blocks(&self, table: &str) -> Option<usize> {
        // The card would have it as it was loaded.
        if self.sizes.changed.contains(table) {
            return None;
        }
        let mut known = self.sizes.known.borrow_mut();
        *known.entry(table.to_owned()).or_insert_with(|| self.tables.blocks(table))
    }
}

fn cited<C>(generation: &Generation<C>, rules: &BTreeSet<RuleId>) -> Vec<String> {
    rules.iter().map(|rule| generation.program().rule(*rule).at.clone()).collect()
}

fn offloads(generation: u64, rules: &[String]) -> String {
    match rules {
        [] => format!("generation {generation} offloads nothing"),
        rules => format!("generation {generation} offloads {}", rules.join(", ")),
    }
}

fn costs(before: &Bill, after: &Bill) -> String {
    format!(
        "{:.1} instead of {:.1} cycles, {} instead of {} bits a packet",
        after.cycles,
        before.cycles,
        8 * after.trailer_bytes,
        8 * before.trailer_bytes
    )
}
