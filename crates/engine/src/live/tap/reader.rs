//! The reader of a tap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_abi::tap::TAPS;
use weir_state::now_ns;

use super::filter::TapFilter;
use super::kernel::{KernelTaps, Record};
use super::open_tap::{Copied, OpenTap, TapCounts, renew};
use super::taps::Taps;
use super::worker::since_1970;

/// Copies that wait for the reader of a tap at most. Copies of whole packets of 1,500 bytes then take 1.5 MB.
const QUEUE: usize = 1024;
/// Pause of a reader between two looks at an empty queue. The datapath does not wake it up, so a copy costs no system
/// call.
const NAP: Duration = Duration::from_millis(2);
/// Turns in which a reader empties the ring at most.
const TURNS_MAX: usize = 64;
/// The reader renews what its tap may get after this time.
const RENEWAL: Duration = Duration::from_millis(10);

/// All taps are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{TAPS} taps are open already")]
pub struct TapsInUse;

impl Taps {
    /// Opens a tap. It is closed when its reader is dropped.
    ///
    /// # Errors
    /// All are in use.
    pub fn open(self: &Arc<Self>, filter: TapFilter) -> Result<TapReader, TapsInUse> {
        let mut state = self.state();
        let index = state.open.iter().position(Option::is_none).ok_or(TapsInUse)?;
        let (sender, receiver) = sync_channel(QUEUE);
        state.epoch += 1;
        let tap = Arc::new(OpenTap::new(index, filter, state.epoch, sender));
        let policies = state.policies.iter().filter_map(|policy| policy.bits.upgrade());
        policies.for_each(|bits| bits.set(index, &tap.filter));
        let before = self.kernel().map(|kernel| {
            kernel.set(index, &tap.filter);
            kernel.counts(index)
        });
        state.open[index] = Some(tap.clone());
        self.changed(&state);
        Ok(TapReader::new(self.clone(), tap, receiver, before.unwrap_or_default()))
    }
}

/// The reader of a tap, which is closed when this is dropped.
pub struct TapReader {
    taps: Arc<Taps>,
    tap: Arc<OpenTap>,
    queue: Receiver<Copied>,
    renewed: Instant,
    /// Copies that were read.
    read: u64,
    /// What programs had counted for earlier taps.
    before: TapCounts,
}

impl Drop for TapReader {
    fn drop(&mut self) {
        self.taps.close(self.tap.index);
    }
}

impl TapReader {
    fn new(taps: Arc<Taps>, tap: Arc<OpenTap>, queue: Receiver<Copied>, before: TapCounts) -> Self {
        TapReader { taps, tap, queue, renewed: Instant::now(), read: 0, before }
    }

    /// The next copy; `None` if there is none now.
    pub fn read(&mut self) -> Option<Copied> {
        self.renew();
        let mut copy = self.queue.try_recv().ok();
        if let Some(kernel) = self.taps.kernel().filter(|_| copy.is_none()) {
            self.take_from(kernel);
            copy = self.queue.try_recv().ok();
        }
        self.read += u64::from(copy.is_some());
        copy
    }

    /// Number of copies that wait to be read.
    pub fn waiting(&self) -> u64 {
        // More come in a flood.
        (0..TURNS_MAX).find(|_| !self.taps.kernel().is_some_and(|kernel| self.take_from(kernel)));
        self.tap.copied.load(Ordering::Relaxed) - self.read
    }

    /// The next copy; waits for it up to `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<Copied> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(copy) = self.read() {
                return Some(copy);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::sleep(NAP.min(left));
        }
    }

    /// What became of the packets that the tap wants, since it was opened.
    pub fn counts(&self) -> TapCounts {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let OpenTap { matched, copied, over, excluded, lost, .. } = &*self.tap;
        let (matched, copied, over) = (word(matched), word(copied), word(over));
        let own = TapCounts { matched, copied, over, excluded: word(excluded), lost: word(lost) };
        let of_programs = self.taps.kernel().map(|kernel| kernel.counts(self.tap.index)).unwrap_or_default();
        TapCounts {
            matched: own.matched + of_programs.matched - self.before.matched,
            copied: own.copied,
            over: own.over + of_programs.over - self.before.over,
            excluded: own.excluded + of_programs.excluded - self.before.excluded,
            lost: own.lost + of_programs.lost - self.before.lost,
        }
    }

    /// Lets the tap get more copies, by the time since the last renewal.
    fn renew(&mut self) {
        let passed = self.renewed.elapsed();
        if passed < RENEWAL {
            return;
        }
        self.renewed += passed;
        let most = i64::from(self.tap.filter.budget_pps);
        // More than a second of time adds no more than a second's copies.
        let more = (passed.as_secs_f64().min(1.0) * most as f64).ceil() as i64;
        let left = self.taps.kernel().map_or(&self.tap.left, |kernel| kernel.left(self.tap.index));
        renew(left, more, most);
    }

    /// Takes copies from the ring, and hands them to all taps. Returns whether there were any.
    fn take_from(&self, kernel: &KernelTaps) -> bool {
        let (real_ns, monotonic_ns) = (since_1970(), now_ns());
        kernel.read(|record: Record<'_>| {
            let state = self.taps.state();
            for tap in state.open.iter().flatten() {
                if record.taps >> tap.index & 1 == 0 || record.epoch < tap.since {
                    continue;
                }
                let captured = record.bytes.len().min(tap.filter.snap() as usize);
                tap.send(Copied {
                    bytes: record.bytes[..captured].into(),
                    wire_len: record.wire_len,
                    link: Record::LINK,
                    from: record.from,
                    verdict: record.verdict,
                    policy: record.policy,
                    names: state.names(record.policy),
                    at_ns: real_ns.wrapping_add(record.at_ns).wrapping_sub(monotonic_ns),
                });
            }
        })
    }
}
