//! What `observe` counts ([`weir_abi::features`], `docs/decisions/0040-features.md`).
//!
//! Each worker or CPU has two sheets. [`Features::exchange`] selects the other ones for all of them at once, waits
//! until no worker writes the previous ones, adds these up, and clears them. So every packet is in exactly one
//! snapshot.
//!
//! A worker announces the sheet of its burst before it writes, and checks that the sheet is still selected then. In the
//! kernel a program reads the selection once a packet, and the kernel waits for running programs (RCU).

mod known_peers;
mod snapshot;
mod waiting;

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_abi::features::{ELEMENT_BYTES, ELEMENT_WORDS, FeatureHead, QUEUE_WORDS, head_words, queue_at};
use weir_abi::{FeatureElement, FeatureShape, burst};

use crate::words::Words;
use crate::{Grace, StateError};
use snapshot::take;
use waiting::count_waiting;

pub use known_peers::KnownPeers;
pub use snapshot::{DirectionSnapshot, FeatureEntry, Samples, Snapshot};

/// Maximum size of all sheets in the kernel, which takes the memory at once.
pub const KERNEL_BYTES_MAX: usize = 2 << 30;
/// Interval of checks whether a worker has left its burst.
const POLL: Duration = Duration::from_micros(20);
/// Maximum time that a worker may take for a burst. A worker that is runnable may wait seconds for a core.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The sheets of all workers or CPUs.
pub struct Features {
    shape: FeatureShape,
    seed: u64,
    sheets: Sheets,
    /// When the selected sheets began, ns. Locked during an exchange.
    began_ns: Mutex<u64>,
    /// What [`Features::turn`] has taken.
    taken: Mutex<Taken>,
    /// The memory of a snapshot that is no longer used.
    spare: Mutex<Snapshot>,
}

/// What [`Features::turn`] has taken.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// The last snapshot; `None` if there was none.
    pub last: Option<Arc<Snapshot>>,
    /// The sources that were seen before it.
    pub before: Arc<KnownPeers>,
    /// Number of snapshots.
    pub turns: u64,
    /// Packets and bytes of all snapshots, upstream and downstream.
    pub totals: [(u64, u64); 2],
}

enum Sheets {
    Process { selected: AtomicU64, workers: Mutex<Vec<Arc<WorkerSheets>>> },
    Kernel(Box<KernelSheets>),
}

/// The two sheets of a worker.
struct WorkerSheets {
    words: [Words; 2],
    /// The sheet that the worker writes now, plus 1; 0 between bursts.
    announced: AtomicU64,
}

/// The sheets of all CPUs, in maps that programs of all generations share.
struct KernelSheets {
    head: Words,
    elements: Words,
    grace: Grace,
}

impl Features {
    /// Empty sheets in this process: a pair for each worker that asks for it. Untouched pages take no memory.
    pub fn of_process(shape: FeatureShape, seed: u64) -> Arc<Self> {
        Self::new(Sheets::Process { selected: AtomicU64::new(0), workers: Mutex::new(Vec::new()) }, shape, seed)
    }

    /// Empty sheets in maps of the kernel, for this many CPUs.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn of_kernel(shape: FeatureShape, seed: u64, cpus: usize) -> Result<Arc<Self>, StateError> {
        let sheets = Sheets::Kernel(Box::new(KernelSheets::new(&shape, seed, cpus)?));
        Ok(Self::new(sheets, shape, seed))
    }

    fn new(sheets: Sheets, shape: FeatureShape, seed: u64) -> Arc<Self> {
        let (began_ns, taken, spare) = (Mutex::new(crate::now_ns()), Mutex::default(), Mutex::default());
        Arc::new(Features { shape, seed, sheets, began_ns, taken, spare })
    }

    /// What is counted by.
    pub fn shape(&self) -> &FeatureShape {
        &self.shape
    }

    /// The writer of a worker. Writers with the same number are used by one thread.
    ///
    /// # Errors
    /// The process has no address space left, or the sheets are in the kernel.
    pub fn writer(self: &Arc<Self>, worker: usize) -> io::Result<FeatureWriter> {
        let Sheets::Process { workers, .. } = &self.sheets else {
            return Err(io::Error::other("the features are in the kernel"));
        };
        let mut workers = lock(workers);
        while workers.len() <= worker {
            let words = self.shape.elements() * ELEMENT_WORDS;
            let words = [Words::of_process(words)?, Words::of_process(words)?];
            workers.push(Arc::new(WorkerSheets { words, announced: AtomicU64::new(0) }));
        }
        Ok(FeatureWriter { features: self.clone(), sheets: workers[worker].clone() })
    }

    /// The maps of the head and of the elements, if they are in the kernel.
    pub fn maps(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        match &self.sheets {
            Sheets::Process { .. } => None,
            Sheets::Kernel(kernel) => kernel.head.map().zip(kernel.elements.map()),
        }
    }

    /// Exchanges the sheets of all workers at once, and stores in `snapshot` what was counted since the last exchange.
    /// The memory of its entries is used again.
    ///
    /// # Errors
    /// A worker does not end its burst. Its counts are in a later snapshot.
    pub fn exchange(&self, snapshot: &mut Snapshot) -> Result<(), StateError> {
        let mut began_ns = lock(&self.began_ns);
        let to_ns = crate::now_ns();
        match &self.sheets {
            Sheets::Process { selected, workers } => {
                let workers = lock(workers).clone();
                // Only exchanges change it, and they hold the lock.
                let old = selected.fetch_xor(1, Ordering::SeqCst) as usize;
                workers.iter().try_for_each(|worker| worker.wait(old))?;
                let sheets: Vec<&[AtomicU64]> = workers.iter().map(|worker| worker.words[old].all()).collect();
                take(&self.shape, &sheets, snapshot);
            }
            Sheets::Kernel(kernel) => {
                let old = kernel.head.all()[0].fetch_xor(1, Ordering::SeqCst) as usize;
                let refuse =
                    |error: io::Error| StateError::Features { problem: format!("the kernel does not wait: {error}") };
                kernel.grace.wait_undisturbing().map_err(refuse)?;
                let words = self.shape.elements() * ELEMENT_WORDS;
                let sheets: Vec<&[AtomicU64]> =
                    kernel.elements.all().chunks_exact(words).skip(old).step_by(2).collect();
                for (cpu, sheet) in sheets.iter().enumerate() {
                    for direction in 0..2 {
                        let queue = &kernel.head.all()[queue_at(cpu, old, direction)..][..QUEUE_WORDS];
                        count_waiting(&self.shape, self.seed, direction, queue, sheet);
                    }
                }
                take(&self.shape, &sheets, snapshot);
            }
        }
        (snapshot.from_ns, snapshot.to_ns) = (*began_ns, to_ns);
        *began_ns = to_ns;
        Ok(())
    }

    /// Exchanges the sheets, and keeps the snapshot for [`Features::taken`].
    ///
    /// # Errors
    /// As for [`Features::exchange`]. The last snapshot stays.
    pub fn turn(&self) -> Result<(), StateError> {
        let mut snapshot = mem::take(&mut *lock(&self.spare));
        self.exchange(&mut snapshot)?;
        let mut taken = lock(&self.taken);
        for (total, of) in taken.totals.iter_mut().zip(&snapshot.directions) {
            let (packets, bytes) = of.total();
            *total = (total.0 + packets, total.1 + bytes);
        }
        taken.turns += 1;
        if let Some(last) = taken.last.replace(Arc::new(snapshot)) {
            Arc::make_mut(&mut taken.before).see(&last.directions[0]);
            // New memory for a million entries takes longer than to read them.
            *lock(&self.spare) = Arc::try_unwrap(last).unwrap_or_default();
        }
        Ok(())
    }

    /// What all calls of [`Features::turn`] have taken.
    pub fn taken(&self) -> Taken {
        lock(&self.taken).clone()
    }

    /// Bytes of memory for `workers` workers or CPUs.
    pub fn bytes(shape: &FeatureShape, workers: usize) -> usize {
        2 * workers * shape.elements() * ELEMENT_BYTES
    }
}

/// The sheets of a worker, for compiled code.
pub struct FeatureWriter {
    features: Arc<Features>,
    sheets: Arc<WorkerSheets>,
}

impl FeatureWriter {
    /// Begins a burst. Returns where it is counted until [`FeatureWriter::end`], as C takes it.
    pub fn begin(&self) -> burst::Features {
        burst::Features { sheet: self.begin_sheet(), seed: self.features.seed }
    }

    fn begin_sheet(&self) -> *mut FeatureElement {
        let Sheets::Process { selected, .. } = &self.features.sheets else { unreachable!("`writer` has checked it") };
        loop {
            let sheet = selected.load(Ordering::Relaxed);
            // Either the exchange sees the announcement, or this sees the exchange.
            self.sheets.announced.store(sheet + 1, Ordering::SeqCst);
            if selected.load(Ordering::SeqCst) == sheet {
                return self.sheets.words[sheet as usize].as_ptr().cast();
            }
        }
    }

    /// Ends the burst.
    pub fn end(&self) {
        self.sheets.announced.store(0, Ordering::Release);
    }
}

impl WorkerSheets {
    /// Waits until the worker does not write a sheet.
    fn wait(&self, sheet: usize) -> Result<(), StateError> {
        let start = Instant::now();
        while self.announced.load(Ordering::SeqCst) == sheet as u64 + 1 {
            if start.elapsed() > WAIT_MAX {
                return Err(StateError::Features { problem: "a worker does not end its burst".to_owned() });
            }
            // The worker may need this core to finish its burst.
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl KernelSheets {
    fn new(shape: &FeatureShape, seed: u64, cpus: usize) -> Result<Self, StateError> {
        let bytes = Features::bytes(shape, cpus);
        if bytes > KERNEL_BYTES_MAX {
            let problem = format!("{cpus} CPUs need {bytes} bytes, and there may be {KERNEL_BYTES_MAX}");
            return Err(StateError::Features { problem });
        }
        let refuse = |error: io::Error| StateError::Features { problem: format!("{bytes} bytes: {error}") };
        let head = Words::of_kernel("weir_feat_head", head_words(cpus)).map_err(refuse)?;
        let elements = Words::elements_of_kernel("weir_features", shape.elements() * ELEMENT_BYTES, 2 * cpus as u32);
        let elements = elements.map_err(refuse)?;
        for (word, value) in head.all().iter().zip(FeatureHead::new(seed).words()) {
            word.store(value, Ordering::Relaxed);
        }
        Ok(KernelSheets { head, elements, grace: Grace::prepare().map_err(refuse)? })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use weir_abi::FeatureCell;
    use weir_abi::features::{REPLAY_SEED, key_address};

    fn shape() -> FeatureShape {
        FeatureShape::new(64, [32, 128], [&[(0xc000_0200, 0xc000_021f)], &[]])
    }

    /// Counts a packet of 100 bytes as compiled code does.
    fn count(writer: &FeatureWriter, address: u32) {
        let shape = shape();
        let cell = shape.cells_at(0) + shape.cell(false, address.into()).expect("it is inside");
        // SAFETY: the sheet has this cell, and only this thread writes it until `end`.
        let cell = unsafe { &mut *writer.begin().sheet.add(cell).cast::<FeatureCell>() };
        cell.bytes += 100;
        cell.packets[0] += 1;
        writer.end();
    }

    #[test]
    fn workers_are_added_up_and_a_snapshot_begins_anew() {
        let features = Features::of_process(shape(), REPLAY_SEED);
        let writers = [0, 1].map(|worker| features.writer(worker).expect("there is memory"));
        writers.iter().for_each(|writer| count(writer, 0xc000_0201));
        count(&writers[1], 0xc000_0201);
        let mut snapshot = Snapshot::default();
        features.exchange(&mut snapshot).expect("no worker is busy");
        let [entry] = snapshot.directions[0].entries[..] else { panic!("{snapshot:?}") };
        assert_eq!(key_address(entry.key).to_string(), "192.0.2.1");
        assert_eq!((entry.counts.bytes, entry.counts.packets[0]), (300, 3));
        assert_eq!(snapshot.directions.each_ref().map(DirectionSnapshot::total), [(3, 300), (0, 0)]);
        features.exchange(&mut snapshot).expect("no worker is busy");
        assert_eq!(snapshot.directions[0].total(), (0, 0));
    }

    #[test]
    fn nothing_is_lost_while_workers_count() {
        let features = Features::of_process(shape(), REPLAY_SEED);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let counting: Vec<_> = (0..2)
                .map(|worker| {
                    let (writer, stop) = (features.writer(worker).expect("there is memory"), &stop);
                    scope.spawn(move || {
                        let mut counted = 0;
                        while !stop.load(Ordering::Relaxed) {
                            count(&writer, 0xc000_0201);
                            counted += 1;
                        }
                        counted
                    })
                })
                .collect();
            let (mut snapshot, mut seen) = (Snapshot::default(), 0);
            for _ in 0..200 {
                features.exchange(&mut snapshot).expect("bursts are short");
                seen += snapshot.directions[0].total().0;
            }
            stop.store(true, Ordering::Relaxed);
            let counted: u64 = counting.into_iter().map(|thread| thread.join().expect("it counts")).sum();
            for _ in 0..2 {
                features.exchange(&mut snapshot).expect("nobody counts");
                seen += snapshot.directions[0].total().0;
            }
            assert_eq!(seen, counted);
        });
    }
}
