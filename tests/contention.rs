//! Buckets that many workers charge at the same time, in threads and in the kernel, in real time. In every time window,
//! at most burst + rate * time passes, independent of the workers' order. A limiter with enough packets passes its full
//! rate.

mod engines;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use weir_abi::{Action, BURST_MAX, Link, Verdict, each};
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::native::Sharing;
use weir_engine::{EngineError, Filter};
use weir_state::{SharedState, UsedBy};

/// More workers than cores, so that some workers use an old time when they charge.
const WORKERS: usize = 4;
const LENGTH: Duration = Duration::from_millis(1000);
/// Number of attempts on a busy machine.
const TRIES: u32 = 6;
/// Number of sources, which packets use in turn: 10.0.0.1, 10.1.0.1, ...
const SOURCES: usize = 4;
/// Length of an Ethernet frame.
const FRAME_BYTES: u64 = 60;

/// The packets of a burst that passed.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    at_ns: u64,
    by_source: [u8; SOURCES],
}

/// The expected properties of a bucket in the policy: an upper bound for what passes, and a lower bound while demand is
/// sufficient.
struct Expected {
    /// The sources that are charged to the bucket.
    sources: Range<usize>,
    /// Rate per second, in packets or bytes.
    rate: u64,
    burst: u64,
    /// The charge of a packet, in packets or bytes.
    packet: u64,
    is_given: bool,
}

impl Expected {
    fn packets(sources: Range<usize>, rate: u64, burst: u64) -> Self {
        Expected { sources, rate, burst, packet: 1, is_given: true }
    }

    /// Checks that at no time more packets passed than with an exact bucket. Compares the total with the lower bound.
    ///
    /// # Errors
    /// Fewer packets passed.
    fn check(&self, engine: &str, passed: &[Passed], length_ns: u64) -> Result<(), String> {
        const NS_PER_S: u64 = 1_000_000_000;
        // The exact leaky bucket, in billionths of a packet or byte.
        let (mut level, mut last_ns, mut all) = (0_u64, 0, 0_u64);
        for burst in passed {
            let count: u64 = burst.by_source[self.sources.clone()].iter().copied().map(u64::from).sum();
            level = level.saturating_sub((burst.at_ns - last_ns) * self.rate) + count * self.packet * NS_PER_S;
            last_ns = burst.at_ns;
            all += count * self.packet;
            assert!(
                level <= self.burst * NS_PER_S,
                "{engine}: {level} billionths at {last_ns} ns, burst {}",
                self.burst
            );
        }
        let earned = self.burst + length_ns * self.rate / NS_PER_S;
        eprintln!("contention: {engine}, sources {:?}: {all} of {earned}", self.sources);
        // Other workers may have ended before the last burst.
        let given = earned - earned / 1000 - (WORKERS * BURST_MAX) as u64 * self.packet;
        let least = if self.is_given { given } else { self.burst };
        if all >= least { Ok(()) } else { Err(format!("{engine}: {all} passed, at least {least} were to")) }
    }
}

/// A packet from the address that is `behind` after `from`.
fn packet_of(from: [u8; 4], behind: u32) -> [u8; FRAME_BYTES as usize] {
    let mut bytes = [0_u8; FRAME_BYTES as usize];
    bytes[12..15].copy_from_slice(&[0x08, 0, 0x45]);
    bytes[16..18].copy_from_slice(&46_u16.to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&(u32::from_be_bytes(from) + behind).to_be_bytes());
    bytes[30..34].copy_from_slice(&[10, 9, 0, 2]);
    bytes[38..40].copy_from_slice(&26_u16.to_be_bytes());
    bytes
}

/// A burst from all sources.
fn frames() -> FrameSet {
    let source = |index: usize| packet_of([10, (index % SOURCES) as u8, 0, 1], 0);
    let packets: Vec<_> = (0..BURST_MAX).map(source).collect();
    FrameSet::new(Link::Ethernet, packets.iter().map(|packet| (packet.as_slice(), FRAME_BYTES as u32)))
}

/// Runs one worker from its first burst on. Times are relative to `start_ns`.
fn work(filter: &mut dyn Filter, start_ns: u64) -> Result<Vec<Passed>, EngineError> {
    let frames = frames();
    let mut passed = Vec::new();
    loop {
        let now_ns = weir_state::now_ns();
        let at_ns = now_ns - start_ns;
        if at_ns >= LENGTH.as_nanos() as u64 {
            return Ok(passed);
        }
        let mut verdicts = [Verdict(0); BURST_MAX];
        filter.decide(0, &frames.burst(0).received_at(now_ns), &mut verdicts)?;
        let mut burst = Passed { at_ns, ..Passed::default() };
        for (index, verdict) in verdicts.iter().enumerate() {
            burst.by_source[index % SOURCES] += u8::from(verdict.action() == Some(Action::Accept));
        }
        if burst.by_source != [0; SOURCES] {
            passed.push(burst);
        }
    }
}

/// Makes a filter for each worker. All filters charge the same buckets.
type Filters<'a> = dyn Fn() -> Box<dyn Filter + 'a> + Sync + 'a;

/// Runs all workers at the same time, each with its own filter.
fn all_work(filter: &Filters<'_>) -> Vec<Passed> {
    let (ready, start_ns) = (Barrier::new(WORKERS), OnceLock::new());
    let mut passed = thread::scope(|scope| {
        let worker = || {
            // Buckets stay full while programs are loaded.
            let mut filter = filter();
            ready.wait();
            work(&mut *filter, *start_ns.get_or_init(weir_state::now_ns)).expect("packets are decided")
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker ends")).collect::<Vec<_>>()
    });
    passed.sort_by_key(|burst| burst.at_ns);
    passed
}

/// Serializes the tests, because each uses all cores.
static CORES: Mutex<()> = Mutex::new(());

/// Checks the packets that the policy passes as native code and in the kernel. A bucket that is full while no worker
/// runs passes less than its rate. A busy machine therefore has several attempts. A limiter that loses packets fails
/// all of them.
fn check(policy: &str, expected: &[Expected]) {
    let _cores = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut too_few = Vec::new();
    for _ in 0..TRIES {
        let found = RefCell::new(Vec::new());
        with_policy(policy, &|engine, filter| {
            let passed = all_work(filter);
            let check = |expected: &Expected| expected.check(engine, &passed, LENGTH.as_nanos() as u64).err();
            found.borrow_mut().extend(expected.iter().filter_map(check));
        });
        too_few = found.into_inner();
        if too_few.is_empty() {
            return;
        }
        eprintln!("contention: too few: {too_few:?}");
    }
    panic!("{}", too_few.join("; "));
}

/// Runs `test` with the policy as native code and in the kernel.
fn with_policy(policy: &str, test: &dyn Fn(&str, &Filters<'_>)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("contention.weir");
    std::fs::write(&path, policy).expect("the policy can be written");
    let policy = engines::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let compiled = policy.compile_native(Cpu::Native).expect("it compiles");
    let code = compiled.load(policy.bind(None).expect("there is memory")).expect("it loads");
    test("native", &|| Box::new(code.filter(Sharing::Shared, 0)));

    let shared = SharedState::with_seed(UsedBy::Kernel { limits_room: None }, each::REPLAY_SEED);
    let data = policy.bind(Some(&shared)).expect("there are buckets");
    let compiled = policy.compile_bpf(&data).expect("it compiles");
    test("kernel", &|| Box::new(compiled.filter().expect("the verifier takes it")));
}

#[test]
fn one_bucket_for_all() {
    check(
        "upstream { limit rate 50kpps burst 25000; accept }\ndownstream { accept }\n",
        &[Expected::packets(0..SOURCES, 50_000, 25_000)],
    );
}

#[test]
fn a_rate_that_workers_race_for() {
    // One packet per 100 ns: the bucket is ahead of the time of a worker that was preempted.
    let expected = Expected { is_given: false, ..Expected::packets(0..SOURCES, 10_000_000, 100) };
    check("upstream { limit rate 10mpps burst 100; accept }\ndownstream { accept }\n", &[expected]);
}

#[test]
fn bytes_of_subnets() {
    let bytes = |sources| Expected { sources, rate: 1_000_000, burst: 500_000, packet: FRAME_BYTES, is_given: true };
    check(
        "limits nets { elements = { 10.0.0.0/15 : 8mbit burst 500000, 10.2.0.0/15 : 8mbit burst 500000 } }
upstream { ip saddr limit @nets; accept }
downstream { accept }
",
        &[bytes(0..2), bytes(2..4)],
    );
}

#[test]
fn a_table_of_addresses() {
    // One set of eight words for four addresses.
    let one = |source| Expected::packets(source..source + 1, 20_000, 10_000);
    check(
        "upstream { limit each ip saddr 20kpps burst 10000 size 1024; accept }\ndownstream { accept }\n",
        &[one(0), one(1), one(2), one(3)],
    );
}

/// Workers add the same addresses at the same time. Each address has room for one packet.
#[test]
fn an_address_that_several_bring_in_has_one_bucket() {
    const ADDRESSES: usize = 1 << 15;
    let packets: Vec<_> = (0..ADDRESSES as u32).map(|address| packet_of([10, 0, 0, 0], address)).collect();
    let frames = FrameSet::new(Link::Ethernet, packets.iter().map(|packet| (packet.as_slice(), FRAME_BYTES as u32)));
    with_policy(
        "upstream { limit each ip saddr 1/hour burst 1; accept }\ndownstream { accept }\n",
        &|engine, filter| {
            let now_ns = weir_state::now_ns();
            let ready = Barrier::new(WORKERS);
            let worker = || {
                let (mut filter, mut passed) = (filter(), Vec::new());
                ready.wait();
                for burst in frames.bursts() {
                    let mut verdicts = [Verdict(0); BURST_MAX];
                    filter.decide(0, &burst.received_at(now_ns), &mut verdicts).expect("packets are decided");
                    passed
                        .extend(verdicts[..burst.len()].iter().map(|verdict| verdict.action() == Some(Action::Accept)));
                }
                passed
            };
            let passed: Vec<Vec<bool>> = thread::scope(|scope| {
                let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
                workers.into_iter().map(|worker| worker.join().expect("a worker ends")).collect()
            });
            let counts = (0..ADDRESSES).map(|address| passed.iter().filter(|passed| passed[address]).count());
            let others: Vec<usize> = counts.filter(|&count| count != 1).collect();
            assert!(others.is_empty(), "{engine}: {} of {ADDRESSES} addresses passed {others:?} packets", others.len());
        },
    );
}

#[test]
fn a_limit_inside_another() {
    let inner = |sources| Expected { is_given: false, ..Expected::packets(sources, 30_000, 15_000) };
    check(
        "limits nets {
  nested
  elements = { 10.0.0.0/8 : 40kpps burst 20000, 10.0.0.0/15 : 30kpps burst 15000, 10.2.0.0/15 : 30kpps burst 15000 }
}
upstream { ip saddr limit @nets; accept }
downstream { accept }
",
        &[inner(0..2), inner(2..4), Expected::packets(0..4, 40_000, 20_000)],
    );
}

#[test]
fn limits_inside_each_other_that_workers_race_for() {
    let racing = |sources, rate, burst| Expected { is_given: false, ..Expected::packets(sources, rate, burst) };
    check(
        "limits nets {
  nested
  elements = { 10.0.0.0/8 : 5mpps burst 40, 10.0.0.0/15 : 4mpps burst 20, 10.2.0.0/15 : 4mpps burst 20 }
}
upstream { ip saddr limit @nets; accept }
downstream { accept }
",
        &[racing(0..2, 4_000_000, 20), racing(2..4, 4_000_000, 20), racing(0..4, 5_000_000, 40)],
    );
}
