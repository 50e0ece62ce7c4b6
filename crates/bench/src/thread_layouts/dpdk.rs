//! The layouts on DPDK ports: one gives packets of established flows, the other frees them. Each turn has ports of its
//! own, because DPDK removes a virtual port when it is closed.

use super::layout::{self, Codes, Deliver, Ends, Held, Read};
use super::threads::{Counted, Threads};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use weir::failure::Failure;
use weir_abi::Verdict;
use weir_engine::FrameBurst;
use weir_engine::live::dpdk::owned_burst::{self, Receiver, Sender};
use weir_engine::live::dpdk::{DpdkLane, Eal};
use weir_engine::live::{Datapath, Interfaces, Lane, Loaded, Role, Workers};

/// Longest frame of a port, in bytes.
const LONGEST: u16 = 2048;

impl Held for owned_burst::OwnedBurst {
    fn burst(&self) -> FrameBurst<'_> {
        owned_burst::OwnedBurst::burst(self)
    }
}

impl Read for Receiver {
    type Held = owned_burst::OwnedBurst;

    fn read(&mut self) -> Result<Option<owned_burst::OwnedBurst>, Failure> {
        Ok(self.receive())
    }
}

impl Deliver for Sender {
    type Held = owned_burst::OwnedBurst;

    fn deliver(&mut self, held: owned_burst::OwnedBurst, verdicts: &[Verdict]) -> Result<usize, Failure> {
        Ok(self.send(held, verdicts))
    }
}

/// Starts DPDK with a pair of ports for each number of queues. `captures` have what the pairs give.
///
/// # Errors
/// DPDK does not start.
pub fn start(captures: &[(&Path, usize)]) -> Result<Eal, Failure> {
    let mut eal = "--no-huge -m 512 --no-pci".to_owned();
    for (pair, (capture, queues)) in captures.iter().enumerate() {
        let queue = format!(",rx_pcap={}", capture.display());
        let _ = write!(eal, " --vdev=net_pcap{pair},infinite_rx=1{}", queue.repeat(*queues));
        let _ = write!(eal, " --vdev=net_null{pair},no-rx=1");
    }
    Ok(Eal::start(&eal)?)
}

/// Measures turns of `turn` with threads in a layout on a pair of ports, after one more that warms up.
///
/// # Errors
/// A port cannot be opened.
pub fn turns(
    threads: Threads,
    codes: &Codes,
    eal: &Eal,
    pair: usize,
    turn: Duration,
    rounds: usize,
) -> Result<Vec<Counted>, Failure> {
    let names = [format!("net_pcap{pair}"), format!("net_null{pair}")];
    let mut turns = Vec::new();
    match threads {
        Threads::Layout(threads) => {
            let (lower, to_lower) = owned_burst::open(eal, &names[0], LONGEST)?;
            let (upper, to_upper) = owned_burst::open(eal, &names[1], LONGEST)?;
            let ends = Ends { readers: [lower, upper], senders: [to_lower, to_upper] };
            let running = layout::start(threads, ends, codes);
            for _ in 0..=rounds {
                turns.push(one(turn, || running.sent()));
            }
            running.stop()?;
        }
        Threads::Workers(workers) => {
            let [lower, upper] = names.map(|name| vec![name]);
            let lanes = DpdkLane::open(eal, &Interfaces { lower, upper, divert: None }, workers)?;
            let lanes = lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect();
            let workers = Workers::start(lanes, &Loaded::plain(codes.tracking.clone(), [0, 1]))?;
            let sent = || {
                let ports = workers.ports();
                ports.iter().filter(|port| port.role == Role::Upper).map(|port| port.reading.tx_packets).sum()
            };
            for _ in 0..=rounds {
                turns.push(one(turn, sent));
            }
            workers.stop()?;
        }
    }
    Ok(turns.split_off(1))
}

fn one(turn: Duration, sent: impl Fn() -> u64) -> Counted {
    let processor = || {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
    };
    let (before, spent, start) = (sent(), processor(), Instant::now());
    thread::sleep(turn);
    let (after, seconds) = (sent(), start.elapsed().as_secs_f64());
    Counted { seconds, sent: after - before, processor_s: (processor() - spent).as_secs_f64() }
}
