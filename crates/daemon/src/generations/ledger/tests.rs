//! Tests of snapshots while generations change.

use super::*;
use crate::generations::generation::{Loader, Prepared};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use weir_abi::{Counter, Reason};
use weir_command::failure::Failure;
use weir_engine::EngineError;
use weir_engine::bundle::trust::Trust;
use weir_engine::live::{Counts, Loaded, PortNature, PortReading, Role, Stray};
use weir_loading::Policy;
use weir_state::{BoundState, SharedState, UsedBy};

const WORKERS: usize = 2;
/// Least number of changes in a test.
const CHANGES: usize = 300;
/// Makes it likely that other threads run between two steps.
const PAUSE: Duration = Duration::from_micros(100);

struct Code;

/// An activation of code, and its counts: packets that rule 0 decides, by worker and side. A worker holds it during a
/// burst.
struct Activation {
    code: Arc<Code>,
    packets: [[AtomicU64; 2]; WORKERS],
}

impl Activation {
    fn new(code: &Arc<Code>) -> Arc<Self> {
        Arc::new(Activation { code: code.clone(), packets: Default::default() })
    }

    fn reading(&self) -> Reading<Code> {
        let block = |packets: &AtomicU64| {
            let mut counters = vec![Counter::default(); usize::from(Reason::RULE_BASE) + 2];
            let packets = packets.load(SeqCst);
            counters[usize::from(Reason::rule(0).0)] = Counter { packets, bytes: 60 * packets };
            counters
        };
        let counts: Counts = self.packets.iter().map(|sides| sides.each_ref().map(block)).collect();
        Reading { code: self.code.clone(), counts }
    }
}

/// A datapath without packets.
struct Path {
    active: Mutex<Arc<Activation>>,
    others: Mutex<Vec<Arc<Activation>>>,
    sampled: AtomicU64,
    /// Number of reads of all counters.
    reads: AtomicU64,
    during_read: Box<dyn Fn(u64) + Send + Sync>,
}

impl Path {
    fn new(first: &Shared<Code>, during_read: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let active = Activation::new(&first.loaded(None).expect("it has a base policy").code);
        Path {
            active: Mutex::new(active),
            others: Mutex::default(),
            sampled: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            during_read: Box::new(during_read),
        }
    }

    fn active(&self) -> MutexGuard<'_, Arc<Activation>> {
        self.active.lock().expect("no panic")
    }

    fn others(&self) -> MutexGuard<'_, Vec<Arc<Activation>>> {
        self.others.lock().expect("no panic")
    }
}

impl Datapath for Path {
    type Code = Code;

    fn activate(&self, policy: &Loaded<Code>) -> Result<(), EngineError> {
        let mut active = self.active();
        let before = std::mem::replace(&mut *active, Activation::new(&policy.code));
        self.others().push(before);
        Ok(())
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn readings(&self) -> Readings<Code> {
        let readings = {
            let active = self.active();
            let others = self.others();
            Readings {
                active: active.reading(),
                others: others.iter().map(|activation| activation.reading()).collect(),
            }
        };
        (self.during_read)(self.reads.fetch_add(1, SeqCst));
        readings
    }

    fn take_final(&self) -> Vec<Reading<Code>> {
        // If only the list holds an activation, no thread can get it any more.
        let taken: Vec<_> = self.others().extract_if(.., |activation| Arc::strong_count(activation) == 1).collect();
        thread::sleep(PAUSE);
        taken.iter().map(|activation| activation.reading()).collect()
    }

    fn strays(&self) -> Vec<Stray<Code>> {
        vec![]
    }

    fn ports(&self) -> Vec<PortStatus> {
        let reading = PortReading { sampled: self.sampled.load(SeqCst), ..PortReading::default() };
        let port = |role| PortStatus {
            worker: 0,
            interface: "port".into(),
            role,
            nature: PortNature::default(),
            has_link: true,
            reading,
            knows_missed: true,
        };
        vec![port(Role::Lower), port(Role::Upper)]
    }

    fn has_failed(&self) -> bool {
        false
    }

    fn stop(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

#[derive(Clone)]
struct NoLoader(Trust, Arc<SharedState>);

impl Loader for NoLoader {
    type Datapath = Path;

    fn load(&self, _: &Policy) -> Result<Prepared<Code>, Failure> {
        Ok(Prepared { code: Arc::new(Code), state: BoundState::default() })
    }

    fn trust(&self) -> &Trust {
        &self.0
    }

    fn shared(&self) -> &SharedState {
        &self.1
    }
}

/// Generations with different rules.
fn generations(count: usize) -> Vec<Shared<Code>> {
    let folder = tempfile::tempdir().expect("a folder");
    let loader = NoLoader(Trust::default(), Arc::new(SharedState::new(UsedBy::Workers)));
    let generation = |number: usize| {
        let path = folder.path().join(format!("p{number}.weir"));
        fs::write(&path, "upstream { accept }\ndownstream { drop }\n").expect("a file");
        Arc::new(Generation::prepare(&path, &loader).expect("it is right"))
    };
    (0..count).map(generation).collect()
}

fn change(ledger: &Ledger<Code>, path: &Path, to: &Shared<Code>) {
    ledger.open(to);
    path.activate(&to.loaded(None).expect("it has a base policy")).expect("nothing fails");
    ledger.close(path, &[]);
}

/// Packets whose counting has begun, and has ended, by side.
#[derive(Default)]
struct Sent {
    begun: [AtomicU64; 2],
    done: [AtomicU64; 2],
}

/// A worker. It counts bursts of both sides until `stop` is set.
fn count(path: &Path, worker: usize, sent: &Sent, stop: &AtomicBool) {
    let mut burst = 1;
    while !stop.load(SeqCst) {
        for side in 0..2 {
            let activation = path.active().clone();
            sent.begun[side].fetch_add(burst, SeqCst);
            activation.packets[worker][side].fetch_add(burst, SeqCst);
            sent.done[side].fetch_add(burst, SeqCst);
            path.sampled.fetch_add(1, SeqCst);
        }
        burst = burst % 64 + 1;
        thread::yield_now();
    }
}

/// Takes a snapshot and checks that it contains every packet once.
fn check(ledger: &Ledger<Code>, path: &Path, sent: &Sent) {
    let [up, down] = sent.done.each_ref().map(|done| done.load(SeqCst));
    let sampled = path.sampled.load(SeqCst);
    let Stats { upstream, downstream, workers, .. } = ledger.stats(path);
    for (side, least, stats) in [(0, up, upstream), (1, down, downstream)] {
        let most = sent.begun[side].load(SeqCst);
        let total = &stats.total;
        assert!((least..=most).contains(&total.packets), "{least} <= {} <= {most}", total.packets);
        assert_eq!(total.bytes, 60 * total.packets);
        assert_eq!(total.reasons.values().sum::<u64>(), total.packets);
        assert_eq!(total.rules.iter().map(|rule| rule.packets).sum::<u64>(), total.packets);
        let of_workers = workers.iter().map(|worker| [worker.upstream, worker.downstream][side].total.packets);
        assert_eq!(of_workers.sum::<u64>(), total.packets);
        assert!(stats.current.packets <= total.packets);
        assert!((sampled..=path.sampled.load(SeqCst)).contains(&total.sampled));
    }
}

#[test]
fn no_packet_is_lost_or_counted_twice_while_generations_change() {
    let generations = generations(5);
    let path = Path::new(&generations[0], |_| thread::sleep(PAUSE));
    let ledger = Ledger::new(generations[0].clone());
    let (sent, stop) = (Sent::default(), AtomicBool::new(false));
    let snapshots = AtomicU64::new(0);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (path, sent, stop) = (&path, &sent, &stop);
            scope.spawn(move || count(path, worker, sent, stop));
        }
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        check(&ledger, &path, &sent);
                        snapshots.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let mut changes = 0;
        // A reader whose check fails ends early.
        while (changes < CHANGES || snapshots.load(SeqCst) < 100) && !readers.iter().any(|one| one.is_finished()) {
            changes += 1;
            change(&ledger, &path, &generations[changes % generations.len()]);
            // Alternates between slow and fast changes.
            thread::sleep(PAUSE * (changes as u32 / 16 % 8));
        }
        stop.store(true, SeqCst);
    });
    // No thread counts any more. The last change moves the remaining counts.
    change(&ledger, &path, &generations[0]);
    check(&ledger, &path, &sent);
    let total = ledger.stats(&path).upstream.total;
    assert_eq!(total.packets, sent.done[0].load(SeqCst));
    assert_eq!(ledger.entries().contents.counting.len(), 1, "only the active generation counts");
}

#[test]
fn a_snapshot_is_repeated_if_counts_moved_and_succeeds_in_the_end() {
    for overtaken in [0, 1, TRIES_MAX as u64, 2 * TRIES_MAX as u64] {
        let generations = generations(2);
        let ledger = Arc::new(Ledger::new(generations[0].clone()));
        let (other, those) = (ledger.clone(), generations.clone());
        // The first step of a change, as long as the snapshot does not hold the lock.
        let overtake = move |read: u64| {
            if read < overtaken.min(TRIES_MAX as u64) {
                other.entries().contents.counting.retain(|one| !Arc::ptr_eq(one, &those[1]));
                other.open(&those[1]);
            } else if overtaken >= TRIES_MAX as u64 {
                assert!(other.entries.try_lock().is_err(), "changes wait for the last try");
            }
        };
        let path = Path::new(&generations[0], overtake);
        path.active().packets[1][0].store(7, SeqCst);
        assert_eq!(ledger.stats(&path).upstream.total.packets, 7);
        assert_eq!(path.reads.load(SeqCst), overtaken.min(TRIES_MAX as u64) + 1);
    }
}

#[test]
fn a_panic_while_counts_move_does_not_block_snapshots() {
    let generations = generations(1);
    let path = Path::new(&generations[0], |read| assert!(read != 0, "on purpose"));
    let ledger = Ledger::new(generations[0].clone());
    let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ledger.close(&path, &[])));
    assert!(closed.is_err());
    assert_eq!(ledger.stats(&path).upstream.total.packets, 0);
}
