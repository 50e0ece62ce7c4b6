//! Where pages come from: the figures are read through the door, at most once a second.
//!
//! A client can ask as often as it likes. So a page serves every request until it is a second old, and longer if it was
//! expensive: pages take at most a twentieth of a processor, also with a large policy.

use super::contents::page;
use super::figures::{Figures, ListFiles, Memory, Own};
use super::process;
use crate::door::Door;
use crate::generations::generation::{Generation, Loader};
use crate::parts::feeds::name_of;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use weir_command::failure::Failure;
use weir_control::{AttackOperation, ListName, Request, ShadowOperation, ShadowShown};
use weir_engine::live::tap::Taps;
use weir_policy::ir::match_tree::rules;
use weir_policy::ir::{Direction, Program};

/// A page is not made again before it is as old as this.
const AGE_MIN: Duration = Duration::from_secs(1);
/// How many times longer than it takes to be made a page is kept at least.
const REST: u32 = 19;

/// When the main loop began its last turn, in milliseconds since the start.
pub struct Heartbeat {
    start: Instant,
    beat_ms: AtomicU64,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Heartbeat { start: Instant::now(), beat_ms: AtomicU64::new(0) }
    }
}

impl Heartbeat {
    /// A turn begins.
    pub fn beat(&self) {
        self.beat_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn age_s(&self) -> f64 {
        let now_ms = self.start.elapsed().as_millis() as u64;
        now_ms.saturating_sub(self.beat_ms.load(Ordering::Relaxed)) as f64 / 1e3
    }
}

/// What is known of the active generation, because its text does not change.
#[derive(Default)]
struct Known {
    generation: u64,
    rules: [Vec<String>; 2],
    lists: Vec<(ListName, Vec<PathBuf>)>,
}

/// Makes pages of the figures behind a door.
pub struct Source<L: Loader> {
    door: Weak<Door<L>>,
    taps: Arc<Taps>,
    engine: (&'static str, bool),
    heartbeat: Arc<Heartbeat>,
    known: Known,
    memory: Memory,
    pages: u64,
    took: Duration,
}

impl<L: Loader> Source<L> {
    /// The figures behind a door, which may close before. `engine` is the engine's name, and whether its workers poll.
    pub fn new(door: &Arc<Door<L>>, taps: Arc<Taps>, engine: (&'static str, bool), heartbeat: Arc<Heartbeat>) -> Self {
        let (known, memory) = (Known::default(), Memory::default());
        Source { door: Arc::downgrade(door), taps, engine, heartbeat, known, memory, pages: 0, took: Duration::ZERO }
    }

    /// A new page, and how long it serves. `crowded_out` are connections that were closed.
    ///
    /// # Errors
    /// Weir is about to end.
    pub fn page(&mut self, crowded_out: u64) -> Result<(String, Duration), Failure> {
        let begun = Instant::now();
        let door = self.door.upgrade().ok_or_else(|| Failure::Runtime("weir: it is about to end".to_owned()))?;
        self.pages += 1;
        let (pages, page_s) = (self.pages, self.took.as_secs_f64());
        let own = Own { main_loop_age_s: self.heartbeat.age_s(), pages, page_s, crowded_out };
        let figures = Failure::catch(|| self.figures(&door, own))?;
        let text = page(&figures, &mut self.memory).text();
        self.took = begun.elapsed();
        Ok((text, AGE_MIN.max(self.took * REST)))
    }

    fn figures(&mut self, door: &Door<L>, own: Own) -> Result<Figures, Failure> {
        let active = door.controller.active();
        if self.known.generation != active.id {
            self.known = known(&active);
        }
        let shadow = ask(door, Request::Shadow { operation: ShadowOperation::Show });
        Ok(Figures {
            engine: self.engine.0,
            polls: self.engine.1,
            now_s: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64()),
            stats: ask(door, Request::Stats)?,
            status: ask(door, Request::Status)?,
            occupancy: door.occupancy(),
            rules: self.known.rules.clone(),
            lists: self.known.lists.iter().map(|(list, files)| look(list, files)).collect(),
            // Without mitigation or card these are refused.
            attacks: ask(door, Request::Attacks { operation: AttackOperation::List }).ok(),
            card: ask(door, Request::Card { top: 0 }).ok(),
            taps: self.taps.totals(),
            shadow: shadow.ok().and_then(|shown: ShadowShown| shown.shadow),
            process: process::read(),
            own,
        })
    }
}

/// Asks as a client does.
fn ask<T: DeserializeOwned, L: Loader>(door: &Door<L>, request: Request) -> Result<T, Failure> {
    let reply = json!(door.request(request)?);
    serde_json::from_value(reply).map_err(|error| Failure::Runtime(format!("compiler bug: an answer: {error}")))
}

fn known<C>(active: &Generation<C>) -> Known {
    let lists = active.text().map(|text| {
        text.file_backed().into_iter().map(|(list, files)| (name_of(text, list), files)).collect::<Vec<_>>()
    });
    let rules = Direction::BOTH.map(|direction| rules_of(active.program(), direction));
    Known { generation: active.id, rules, lists: lists.unwrap_or_default() }
}

/// The places of the rules in the chains of a direction, in the order of the policy.
fn rules_of(program: &Program, direction: Direction) -> Vec<String> {
    let chains = program.chains.iter().filter(|chain| chain.direction == direction);
    let mut of: Vec<_> = chains.flat_map(|chain| rules(&chain.tree.nodes)).collect();
    of.sort_unstable();
    of.dedup();
    let mut places: Vec<String> =
        of.into_iter().filter_map(|rule| Some(program.rules.get(usize::from(rule.0))?.at.clone())).collect();
    places.dedup();
    places
}

fn look(list: &ListName, files: &[PathBuf]) -> ListFiles {
    let found: Vec<_> = files.iter().filter_map(|file| fs::metadata(file).ok()).collect();
    let modified_s = found.iter().map(|file| file.mtime() as f64).reduce(f64::min);
    ListFiles { list: list.clone(), modified_s, missing: files.len() - found.len() }
}
