//! Workers that send packets to one policy at given times.

use std::sync::{Arc, Barrier};
use std::thread;
use weir_abi::{Action, BURST_MAX, Verdict};
use weir_command::failure::Failure;
use weir_engine::native::Sharing;
use weir_engine::traffic;
use weir_engine::{Filter, NativeCode};

/// Bursts: all packets of a period come in its first tenth, ten times as fast.
const PERIOD_NS: f64 = 10e6;
const HASTE: f64 = 10.0;

/// The distribution of packets over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Equal distances between packets.
    Even,
    /// One millisecond out of ten at ten times the rate.
    Bursts,
}

impl Pattern {
    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::Even => "even",
            Pattern::Bursts => "bursts",
        }
    }

    /// Number of packets that are due after `since_ns`, at `per_ns` packets per nanosecond.
    fn due(self, per_ns: f64, since_ns: f64) -> u64 {
        let packets = match self {
            Pattern::Even => since_ns * per_ns,
            Pattern::Bursts => {
                let (periods, rest_ns) = ((since_ns / PERIOD_NS).floor(), since_ns % PERIOD_NS);
                (periods * PERIOD_NS + (rest_ns * HASTE).min(PERIOD_NS)) * per_ns
            }
        };
        packets as u64
    }
}

/// The packets that are sent to a policy.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The distribution over time.
    pub pattern: Pattern,
    /// Packets per second of all workers together.
    pub pps: f64,
    /// Number of threads.
    pub workers: usize,
    /// Duration in ns.
    pub length_ns: u64,
}

/// A burst and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its time since the start, which the bucket also gets.
    pub at_ns: u64,
    /// Number of packets in the burst.
    pub packets: u16,
    /// Packets that passed.
    pub passed: u16,
}

impl Offer {
    /// Sends the packets to the policy's first chain. Returns bursts in order of time.
    ///
    /// # Errors
    /// A worker fails.
    pub fn to(self, code: &Arc<NativeCode>) -> Result<Vec<Seen>, Failure> {
        let start = Barrier::new(self.workers);
        let seen = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers).map(|_| scope.spawn(|| self.worker(code, &start))).collect();
            let seen = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
            seen.collect::<Result<Vec<_>, _>>()
        });
        let mut seen = seen?.concat();
        seen.sort_by_key(|seen| seen.at_ns);
        let first_ns = seen.first().map_or(0, |seen| seen.at_ns);
        seen.iter_mut().for_each(|seen| seen.at_ns -= first_ns);
        Ok(seen)
    }

    /// Sends the share of one worker. A late worker sends the packets that are due at once. Times come from the clock
    /// of limits.
    fn worker(self, code: &Arc<NativeCode>, start: &Barrier) -> Result<Vec<Seen>, Failure> {
        let frames = traffic::packets_from(&[0; BURST_MAX]);
        let mut filter = code.filter(if self.workers == 1 { Sharing::Alone } else { Sharing::Shared }, 0);
        let per_ns = self.pps / self.workers as f64 / 1e9;
        let (mut seen, mut sent) = (Vec::new(), 0);
        start.wait();
        let start_ns = weir_state::now_ns();
        loop {
            let now_ns = weir_state::now_ns();
            if now_ns - start_ns >= self.length_ns {
                return Ok(seen);
            }
            let due = self.pattern.due(per_ns, (now_ns - start_ns) as f64) - sent;
            if due == 0 {
                std::hint::spin_loop();
                continue;
            }
            let burst = frames.burst(0).first(due.min(BURST_MAX as u64) as usize).received_at(now_ns);
            let mut verdicts = [Verdict(0); BURST_MAX];
            filter.decide(0, &burst, &mut verdicts)?;
            let passes = |verdict: &&Verdict| verdict.action() == Some(Action::Accept);
            let passed = verdicts[..burst.len()].iter().filter(passes).count();
            seen.push(Seen { at_ns: now_ns, packets: burst.len() as u16, passed: passed as u16 });
            sent += burst.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_offer_as_much_as_an_even_stream() {
        let due = |pattern: Pattern, ns: f64| pattern.due(1e-3, ns);
        assert_eq!(due(Pattern::Even, 25e6), 25_000);
        let bursts = [0.0, 0.5e6, 1e6, 9.9e6, 10e6, 10.25e6, 20e6].map(|ns| due(Pattern::Bursts, ns));
        assert_eq!(bursts, [0, 5000, 10_000, 10_000, 10_000, 12_500, 20_000]);
    }
}
