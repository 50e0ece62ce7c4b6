//! What copies of packets cost the datapath: each engine without a tap, with a tap, and with a shadow, which gets copies
//! of each packet or of one in 1000.
//!
//! The ways take turns in one run, so a disturbance of the machine disturbs all of them. The thread that reads a tap has
//! a core of its own if there is one. Its processor time is taken out of that of the process: a row has what the copies
//! cost the packets. Beside it are the time of that thread for each copy, and what the decision of the shadow costs
//! alone, without copies.

use super::engines::{self, Code, Effort, Turn, Wires};
use super::memory_engine::thread_time;
use super::rulesets::Ruleset;
use crate::row::Row;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_abi::{BURST_MAX, Link, Verdict, WINDOW_BYTES};
use weir_command::failure::Failure;
use weir_engine::NativeFilter;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::tap::{Copied, TapCounts, TapFilter, TapReader, Taps};
use weir_engine::measure::Spread;
use weir_engine::traffic;

/// The name of these rows' engine in `--only`.
pub const WATCHED: &str = "watched";

/// How packets are watched: the name, one packet in so many, and whether a policy judges the copies.
const WAYS: [(&str, Option<u32>, Reader); 5] = [
    ("none", None, Reader::Reads),
    ("tap-1", Some(1), Reader::Reads),
    ("tap-1000", Some(1000), Reader::Reads),
    ("shadow-1", Some(1), Reader::Judges),
    ("shadow-1000", Some(1000), Reader::Judges),
];
/// As the shadow's.
const BUDGET_PPS: u32 = 50_000_000;
const LOOK: Duration = Duration::from_millis(20);
/// Packets whose decision is timed.
const DECIDED: usize = 1 << 16;

/// What is done with copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Reads,
    Judges,
}

/// The thread that reads a tap.
struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Watching, Failure>>,
}

/// What it did.
#[derive(Clone, Copy, Debug, Default)]
struct Watching {
    copies: u64,
    processor: Duration,
    counts: TapCounts,
}

/// Measures a ruleset with one engine and one worker. Returns one row for each way.
///
/// # Errors
/// The engine cannot be started, or fails.
pub fn rows(engine: &str, ruleset: &Ruleset, wires: &Wires, effort: Effort, row: &Row) -> Result<Vec<Row>, Failure> {
    let code = Code::load(engine, ruleset, wires)?;
    let decision_ns = decision_ns(ruleset)?;
    let mut turns: [Vec<(Turn, Watching)>; WAYS.len()] = Default::default();
    for _ in 0..effort.rounds {
        for ((_, one_in, reader), turns) in WAYS.into_iter().zip(&mut turns) {
            let watch =
                |taps: &Arc<Taps>| one_in.map(|one_in| Watcher::open(taps, one_in, reader, ruleset)).transpose();
            let (turn, watcher) = engines::turn((engine, 1), &code, ruleset, wires, effort, watch)?;
            turns.push((turn, watcher.map(Watcher::end).transpose()?.unwrap_or_default()));
        }
    }
    let row = row.clone().of("engine", engine).of("ruleset", ruleset.name);
    Ok(WAYS.iter().zip(&turns).map(|((way, ..), own)| to_row(&row, way, own, &turns[0], decision_ns)).collect())
}

impl Watcher {
    fn open(taps: &Arc<Taps>, one_in: u32, reader: Reader, ruleset: &Ruleset) -> Result<Self, Failure> {
        let filter = TapFilter { one_in, snap: WINDOW_BYTES as u32, budget_pps: BUDGET_PPS, ..TapFilter::default() };
        let tap = taps.open(filter).map_err(|error| Failure::Runtime(error.to_string()))?;
        let judge = (reader == Reader::Judges).then(|| ruleset.policy.native()).transpose()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || watch(tap, judge, &stopped));
        Ok(Watcher { stop, thread })
    }

    fn end(self) -> Result<Watching, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

/// Reads copies until it shall end, and lets a policy judge them.
fn watch(mut tap: TapReader, mut judge: Option<NativeFilter>, stop: &AtomicBool) -> Result<Watching, Failure> {
    let mut copies = 0;
    let mut waiting: Vec<Copied> = Vec::with_capacity(BURST_MAX);
    while !stop.load(Ordering::Relaxed) {
        let mut next = tap.wait(LOOK);
        while let Some(copy) = next.filter(|_| !stop.load(Ordering::Relaxed)) {
            copies += 1;
            waiting.push(copy);
            if waiting.len() == BURST_MAX {
                decide(judge.as_mut(), &mut waiting)?;
            }
            next = tap.read();
        }
        decide(judge.as_mut(), &mut waiting)?;
    }
    Ok(Watching { copies, processor: thread_time(), counts: tap.counts() })
}

fn decide(judge: Option<&mut NativeFilter>, waiting: &mut Vec<Copied>) -> Result<(), Failure> {
    if let Some(judge) = judge.filter(|_| !waiting.is_empty()) {
        let frames = FrameSet::new(Link::Ethernet, waiting.iter().map(|copy| (&copy.bytes[..], copy.wire_len)));
        judge.decide(0, &frames.burst(0), &mut [Verdict(0); BURST_MAX])?;
    }
    waiting.clear();
    Ok(())
}

/// What the decision of a packet costs alone, ns.
fn decision_ns(ruleset: &Ruleset) -> Result<f64, Failure> {
    let mut filter = ruleset.policy.native()?;
    let frames = traffic::packets_from(&ruleset.sources(DECIDED, 5));
    let mut verdicts = [Verdict(0); BURST_MAX];
    let mut all = || (0..DECIDED / BURST_MAX).try_for_each(|n| filter.decide(0, &frames.burst(n), &mut verdicts));
    all()?;
    let begun = thread_time();
    all()?;
    Ok((thread_time() - begun).as_secs_f64() * 1e9 / DECIDED as f64)
}

/// Makes a row. `turns` are the turns of a way, `none` those without a tap in the same rounds.
fn to_row(row: &Row, way: &str, turns: &[(Turn, Watching)], none: &[(Turn, Watching)], decision_ns: f64) -> Row {
    let spread = |figures: Vec<f64>| Spread::of(figures).expect("there were turns");
    let mpps = |turn: &Turn| turn.decided as f64 / turn.seconds / 1e6;
    let cost = |(turn, watching): &(Turn, Watching)| {
        (turn.processor_s - watching.processor.as_secs_f64()) * 1e9 / turn.decided.max(1) as f64
    };
    let of = |figure: &dyn Fn(&(Turn, Watching)) -> f64| turns.iter().map(figure).collect::<Vec<f64>>();
    let ratios = |figure: &dyn Fn(&(Turn, Watching)) -> f64| {
        turns.iter().zip(none).map(|(own, none)| figure(own) / figure(none))
    };
    let sum = turns.iter().fold(Watching::default(), |sum, (_, own)| Watching {
        copies: sum.copies + own.copies,
        processor: sum.processor + own.processor,
        counts: sum.counts.plus(own.counts),
    });
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let row = row.clone().of("watched", way).spread("mpps", spread(of(&|(turn, _)| mpps(turn))));
    let row = row.spread("cpu_ns_per_packet", spread(of(&cost)));
    let row = row.spread("times_none", spread(ratios(&cost).collect()));
    let row = row.spread("mpps_times_none", spread(ratios(&|(turn, _)| mpps(turn)).collect()));
    let row = row.number("decision_ns_per_packet", decision_ns).number("copies", sum.counts.copied as f64);
    row.number("lost_share", share(sum.counts.lost + sum.counts.over, sum.counts.copied + sum.counts.lost))
        .number("reader_ns_per_copy", sum.processor.as_secs_f64() * 1e9 / sum.copies.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_compared_with_none_of_its_round_without_the_reader() {
        let turn = |processor_s, decided| Turn { seconds: 1.0, processor_s, decided, ..Turn::default() };
        let counts = TapCounts { matched: 9, copied: 6, lost: 2, ..TapCounts::default() };
        let watching = Watching { copies: 6, processor: Duration::from_secs(1), counts };
        let none = [(turn(1.0, 1_000_000), Watching::default()), (turn(3.0, 1_000_000), Watching::default())];
        let own = [(turn(3.0, 1_000_000), watching), (turn(7.0, 1_000_000), watching)];
        let row = to_row(&Row::default(), "tap-1", &own, &none, 8.5);
        assert_eq!((row.get("times_none_min"), row.get("times_none_max")), (Some(2.0), Some(2.0)));
        assert_eq!((row.get("mpps"), row.get("mpps_times_none")), (Some(1.0), Some(1.0)));
        assert_eq!((row.get("lost_share"), row.get("decision_ns_per_packet")), (Some(0.25), Some(8.5)));
    }
}
