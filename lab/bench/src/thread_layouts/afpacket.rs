//! The layouts on packet sockets, between two veth pairs, with a generator that sends more than they can take.

use super::layout::{self, Codes, Deliver, Ends, Held, Read};
use super::threads::{Counted, Threads};
use crate::stateful::wires::Wires;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use weir_abi::{Action, Verdict};
use weir_command::failure::Failure;
use weir_engine::FrameBurst;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::AfPacketLane;
use weir_engine::live::afpacket::wire::Wire;
use weir_engine::live::{Datapath, Interfaces, Lane, Loaded, Workers};
use weir_instruments::generate::Generator;

/// Packets of the warm-up, and the fixed time of the generator's system call.
const WARM_UP_PACKETS: u32 = 1 << 16;
const CALL: Duration = Duration::from_millis(20);

impl Held for FrameSet {
    fn burst(&self) -> FrameBurst<'_> {
        FrameSet::burst(self, 0)
    }
}

impl Read for Wire {
    type Held = FrameSet;

    fn read(&mut self) -> Result<Option<FrameSet>, Failure> {
        let mut held = None;
        self.receive(Duration::ZERO, |burst| {
            let frames = (0..burst.len()).map(|at| (burst.bytes(at), burst.wire_len(at)));
            held = Some(FrameSet::new(burst.link(), frames));
        })?;
        Ok(held)
    }
}

impl Deliver for Wire {
    type Held = FrameSet;

    fn deliver(&mut self, held: FrameSet, verdicts: &[Verdict]) -> Result<usize, Failure> {
        let burst = Held::burst(&held);
        let accepted = |at: &usize| verdicts[*at].action() == Some(Action::Accept);
        let count = (0..burst.len()).filter(accepted).count();
        if count == burst.len() {
            self.send(&burst)?;
        } else {
            let frames = (0..burst.len()).filter(accepted).map(|at| (burst.bytes(at), burst.wire_len(at)));
            let kept = FrameSet::new(burst.link(), frames);
            for burst in kept.bursts() {
                self.send(&burst)?;
            }
        }
        Ok(count)
    }
}

/// What runs between the pairs.
enum Running {
    Layout(layout::Running),
    Workers(Box<Workers>),
}

/// Measures turns of `turn` with threads in a layout, after one more that warms up.
///
/// # Errors
/// The interfaces failed.
pub fn turns(
    threads: Threads,
    codes: &Codes,
    wires: &Wires,
    generator: &mut Generator,
    turn: Duration,
    rounds: usize,
) -> Result<Vec<Counted>, Failure> {
    let running = match threads {
        Threads::Layout(threads) => {
            let readers = [Wire::open(wires.lower.name)?, Wire::open(wires.upper.name)?];
            let senders = [Wire::open_to_send(wires.lower.name)?, Wire::open_to_send(wires.upper.name)?];
            Running::Layout(layout::start(threads, Ends { readers, senders }, codes))
        }
        Threads::Workers(workers) => {
            let one = |name: &str| vec![name.to_owned()];
            let interfaces = Interfaces { lower: one(wires.lower.name), upper: one(wires.upper.name), divert: None };
            let lanes = AfPacketLane::open(&interfaces, workers)?;
            let lanes = lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect();
            let loaded = Loaded::plain(codes.tracking.clone(), [0, 1]);
            Running::Workers(Box::new(Workers::start(lanes, &loaded)?))
        }
    };
    let turns = (0..=rounds).map(|_| one(wires, generator, turn)).collect::<Result<Vec<_>, Failure>>();
    match running {
        Running::Layout(running) => running.stop()?,
        Running::Workers(workers) => workers.stop()?,
    }
    Ok(turns?.split_off(1))
}

fn one(wires: &Wires, generator: &mut Generator, turn: Duration) -> Result<Counted, Failure> {
    let start = Instant::now();
    generator.send(WARM_UP_PACKETS)?;
    let each = start.elapsed().saturating_sub(CALL) / WARM_UP_PACKETS;
    let packets = u32::try_from(turn.as_nanos() / each.as_nanos().max(1)).unwrap_or(u32::MAX);
    let (before, processor, start) = (wires.sink.count()?.received, others_time(), Instant::now());
    generator.send(packets)?;
    let sent = wires.sink.count()?.received - before;
    let seconds = start.elapsed().saturating_sub(CALL).as_secs_f64();
    Ok(Counted { seconds, sent, processor_s: (others_time() - processor).as_secs_f64() })
}

/// CPU time of this process without this thread, which generates.
fn others_time() -> Duration {
    let time = |clock| {
        let now = clock_gettime(clock);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
    };
    time(ClockId::ProcessCPUTime).saturating_sub(time(ClockId::ThreadCPUTime))
}
