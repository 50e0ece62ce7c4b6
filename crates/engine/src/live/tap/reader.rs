//! The reader of a tap.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_abi::tap::TAPS;
use weir_state::now_ns;

use super::copy_ring::{CopyRing, RingReader};
use super::filter::{PolicyNames, TapFilter};
use super::kernel::{KernelTaps, Record};
use super::open_tap::{Copied, OpenTap, TapCounts, renew};
use super::taps::Taps;
use super::worker::since_1970;

/// Copies from the ring of the kernel that wait for the reader of a tap at most. Copies of whole packets of 1,500 bytes
/// then take 1.5 MB.
const QUEUE: usize = 1024;
/// Pause of a reader between two looks at an empty queue. The datapath does not wake it up, so a copy costs no system
/// call.
const NAP: Duration = Duration::from_millis(2);
/// Turns in which a reader empties the ring at most.
const TURNS_MAX: usize = 64;
/// The reader renews what its tap may get after this time.
const RENEWAL_NS: u64 = 10_000_000;
const SECOND_NS: u64 = 1_000_000_000;

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
        state.free_closed();
        state.epoch += 1;
        let workers = self.workers.load(Ordering::Acquire);
        let before = self.kernel().map(|kernel| kernel.counts(index)).unwrap_or_default();
        let tap = Arc::new(OpenTap::new((index, state.epoch), filter, (workers, sender), before));
        let policies = state.policies.iter().filter_map(|policy| policy.bits.upgrade());
        policies.for_each(|bits| bits.set(index, &tap.filter));
        if let Some(kernel) = self.kernel() {
            kernel.set(index, &tap.filter);
        }
        state.open[index] = Some(tap.clone());
        self.changed(&state);
        Ok(TapReader::new(self.clone(), tap, receiver))
    }
}

/// The reader of a tap, which is closed when this is dropped.
pub struct TapReader {
    taps: Arc<Taps>,
    tap: Arc<OpenTap>,
    /// The rings of workers.
    rings: Vec<RingReader>,
    /// Copies from the ring of the kernel.
    queue: Receiver<Copied>,
    /// The policy of the last copy of a worker.
    last: Option<(u32, Arc<PolicyNames>)>,
    opened: Instant,
    renewal: Renewal,
    /// Copies that were read.
    read: u64,
}

impl Drop for TapReader {
    fn drop(&mut self) {
        let counts = self.counts();
        self.taps.close(self.tap.index, counts);
    }
}

/// How many copies a tap may get more, by time. Parts of copies are carried on, so the sum is exact.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// The time of the last renewal, since the tap was opened.
    at_ns: u64,
    /// What was due and less than a copy, in copies by 1 / [`SECOND_NS`].
    rest: u64,
}

impl Renewal {
    /// The copies that are due since the last call, at most those of a second; `None` if it is too early to ask.
    pub fn due(&mut self, now_ns: u64, per_second: u32) -> Option<i64> {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        if passed_ns < RENEWAL_NS {
            return None;
        }
        self.at_ns = now_ns;
        let due = passed_ns.min(SECOND_NS) * u64::from(per_second) + self.rest;
        self.rest = due % SECOND_NS;
        Some((due / SECOND_NS) as i64)
    }
}

impl TapReader {
    fn new(taps: Arc<Taps>, tap: Arc<OpenTap>, queue: Receiver<Copied>) -> Self {
        let (opened, renewal) = (Instant::now(), Renewal::default());
        TapReader { taps, tap, rings: Vec::new(), queue, last: None, opened, renewal, read: 0 }
    }

    /// The next copy; `None` if there is none now.
    pub fn read(&mut self) -> Option<Copied> {
        self.renew(self.opened.elapsed().as_nanos() as u64);
        let copy = match self.taps.kernel().is_some() {
            true => self.next_of_kernel(),
            false => self.next_of_workers(),
        };
        self.read += u64::from(copy.is_some());
        copy
    }

    fn next_of_kernel(&self) -> Option<Copied> {
        self.queue.try_recv().ok().or_else(|| {
            self.take_from(self.taps.kernel()?);
            self.queue.try_recv().ok()
        })
    }

    /// The oldest copy that waits in a ring.
    fn next_of_workers(&mut self) -> Option<Copied> {
        self.join_workers();
        let heads = self.rings.iter_mut().enumerate().filter_map(|(number, ring)| Some((ring.head()?.at_ns, number)));
        let (_, number) = heads.min()?;
        let last = &mut self.last;
        self.rings[number].take(|head, bytes| {
            if last.as_ref().is_none_or(|(policy, _)| *policy != head.policy) {
                *last = Some((head.policy, self.taps.state().names(head.policy)));
            }
            Copied {
                bytes: bytes.into(),
                wire_len: head.wire_len,
                link: head.link,
                from: head.from,
                verdict: head.verdict,
                policy: head.policy,
                names: last.as_ref().map(|(_, names)| names.clone()).unwrap_or_default(),
                at_ns: head.at_ns,
            }
        })
    }

    /// Finds the rings of workers that started meanwhile.
    fn join_workers(&mut self) {
        let workers = self.taps.workers.load(Ordering::Acquire);
        if workers != self.rings.len() {
            let rings = self.tap.all_rings();
            self.rings.extend(rings.iter().skip(self.rings.len()).map(CopyRing::reader));
        }
    }

    /// Number of copies that wait to be read.
    pub fn waiting(&self) -> u64 {
        // More come in a flood.
        (0..TURNS_MAX).find(|_| !self.taps.kernel().is_some_and(|kernel| self.take_from(kernel)));
        self.tap.of_workers().copied + self.tap.handed.load(Ordering::Relaxed) - self.read
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
        self.taps.counts_of(&self.tap)
    }

    /// Lets the tap get more copies, by the time since the last renewal. `now_ns` is the time since it was opened.
    pub(super) fn renew(&mut self, now_ns: u64) {
        let most = self.tap.filter.budget_pps;
        if let Some(more) = self.renewal.due(now_ns, most) {
            let left = self.taps.kernel().map_or(&self.tap.left, |kernel| kernel.left(self.tap.index));
            renew(left, more, most.into());
        }
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
                tap.hand(Copied {
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
