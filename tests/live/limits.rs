//! Limits on interfaces: the passed rate, changes of lists under traffic, and the handling of packets over the limit.

#[path = "limits/addresses.rs"]
mod addresses;
#[path = "limits/bundled.rs"]
mod bundled;
#[path = "limits/counts.rs"]
mod counts;
#[path = "limits/raised.rs"]
mod raised;

use crate::device_under_test::{Running, Setup, TIMEOUT};
use crate::hosts::{Host, Hosts, Wires};
use crate::traffic::{Listener, Pace, frames, put_through, send};
use crate::{check_account, put};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_control::{CountedLimit, Limited, LimitsStatus, Request, Stats};
use weir_engine::live::afpacket::wire::Wire;

/// Number of senders. Each has its own core and therefore its own queue, so that several workers charge a bucket.
const SENDERS: usize = 2;

/// The /24 of an Ethernet frame's IPv4 source.
fn subnet(frame: &[u8]) -> [u8; 3] {
    [frame[26], frame[27], frame[28]]
}

/// Number of frames from each /24.
fn by_subnet(frames: &[Vec<u8>]) -> BTreeMap<[u8; 3], u64> {
    let mut counts = BTreeMap::new();
    frames.iter().for_each(|frame| *counts.entry(subnet(frame)).or_default() += 1);
    counts
}

/// Frames to the server from the hosts `hosts` of a /24.
fn from_hosts(subnet: [u8; 3], hosts: std::ops::Range<usize>, dport: u16) -> Vec<Vec<u8>> {
    let [a, b, c] = subnet;
    let one = |host: usize| {
        format!("eth / ip saddr={a}.{b}.{c}.{host} daddr=10.9.0.2 / udp sport={} dport={dport}\n", 1000 + host)
    };
    frames(&hosts.map(one).collect::<String>())
}

fn exceeded(stats: &Stats) -> u64 {
    stats.upstream.total.reasons.get("limit").copied().unwrap_or(0)
}

/// Senders that send until told to stop.
struct Stream {
    enough: Arc<AtomicBool>,
    senders: Vec<JoinHandle<u64>>,
}

impl Stream {
    /// Each sender repeats its round of frames every `every`. Late rounds are sent immediately, but none faster than
    /// Weir decides them.
    fn start(host: &Host, control: &Path, every: Duration, rounds: [Vec<Vec<u8>>; SENDERS]) -> Self {
        let (enough, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let sender = |(core, round): (usize, Vec<Vec<u8>>)| {
            let (stop, sent, mut pace) = (enough.clone(), sent.clone(), Pace::of(control));
            host.start(move || {
                weir_engine::cpu::pin_to(core).expect("there are as many cores");
                let mut wire = Wire::open("c").expect("the host has the wire");
                let (start, mut rounds) = (Instant::now(), 0_u32);
                while !stop.load(Ordering::Relaxed) {
                    let count = put_through(&mut wire, &round);
                    pace.wait(sent.fetch_add(count, Ordering::Relaxed));
                    rounds += 1;
                    thread::sleep((start + every * rounds).saturating_duration_since(Instant::now()));
                }
                rounds.into()
            })
        };
        let senders = rounds.into_iter().enumerate().map(sender).collect();
        Stream { enough, senders }
    }

    /// Stops the senders. Returns the number of rounds of each.
    fn stop(self) -> Vec<u64> {
        self.enough.store(true, Ordering::Relaxed);
        self.senders.into_iter().map(|sender| sender.join().expect("all are sent")).collect()
    }
}

/// Stats after `sent` packets were counted. None may be lost between reception and sending.
fn all_of(running: &Running, sent: u64) -> Stats {
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent);
    let stats = running.settled();
    check_account(&stats);
    assert_eq!(stats.upstream.total.packets, sent, "{stats:#?}");
    let lost = stats.interfaces.iter().map(|port| {
        let dropped = &port.tx_dropped;
        port.rx_missed.unwrap_or_default() + dropped.unsent() + dropped.no_divert
    });
    assert_eq!(lost.sum::<u64>(), 0, "{stats:#?}");
    stats
}

/// The packets that arrived at an interface, by /24. None may be lost on the way to it.
fn arrived(hosts: &Hosts, listener: Listener, own: &str, count: u64) -> BTreeMap<[u8; 3], u64> {
    let received = listener.received(count as usize);
    assert_eq!((received.len() as u64, hosts.lost_on(own)), (count, 0), "{own}");
    by_subnet(&received)
}

const RATE_PPS: f64 = 1000.0;
/// The burst: the packets of half a second, so that no rate is lost if senders pause for that time.
const BURST: u64 = 500;
const LIMITED: [u8; 3] = [10, 20, 1];
const FREE: [u8; 3] = [10, 20, 2];

/// A time when the bucket of the limited subnet was empty.
struct Reading {
    at: Instant,
    passed: u64,
}

impl Reading {
    /// Maximum duration of a reading, which is the uncertainty of its time: less than 0.2% of the time between two
    /// readings.
    const BLUR: Duration = Duration::from_millis(5);

    /// Reads twice until a packet exceeded the limit between the readings. There was no room then, and the rate has
    /// added less since than in [`Reading::BLUR`].
    fn take(running: &Running) -> Self {
        let look = || (Instant::now(), running.stats(), Instant::now());
        let (start, mut last) = (Instant::now(), look());
        loop {
            let next = look();
            if exceeded(&next.1) > exceeded(&last.1) && next.2 - last.0 <= Self::BLUR {
                return Reading { at: next.2, passed: passed(&next.1, LIMITED) };
            }
            assert!(start.elapsed() < TIMEOUT, "nothing exceeds, or reading takes too long: {:#?}", next.1);
            last = next;
        }
    }
}

/// Number of packets that the rule for a /24 accepted.
fn passed(stats: &Stats, [a, b, c]: [u8; 3]) -> u64 {
    let start = format!("ip saddr {a}.{b}.{c}.0/24 ");
    let mut rules = stats.upstream.total.rules.iter().filter(|rule| rule.rule.starts_with(&start));
    rules.next().expect("there is one").packets
}

each_engine_and_p4!(a_limit_passes_its_rate_whoever_charges_it);
fn a_limit_passes_its_rate_whoever_charges_it(engine: &str, hosts: &Hosts, folder: &Path) {
    let list = "limits customers { elements = { 10.20.1.0/24 : 1000pps burst 500 } }";
    gives_its_rate(list, "ip saddr limit @customers", engine, hosts, folder);
}

each_engine_and_p4!(an_address_that_no_list_names_gets_its_rate);
fn an_address_that_no_list_names_gets_its_rate(engine: &str, hosts: &Hosts, folder: &Path) {
    let rule = "ip saddr { 10.20.1.0/24 } limit each ip saddr/24 1000pps burst 500 size 1024";
    gives_its_rate("", rule, engine, hosts, folder);
}

each_engine!(a_limit_of_bits_around_another_gives_its_rate);
fn a_limit_of_bits_around_another_gives_its_rate(engine: &str, hosts: &Hosts, folder: &Path) {
    // Frames of 42 bytes.
    let list = "limits customers { nested; elements = { 10.20.0.0/23 : 336kbit burst 21000, 10.20.1.0/24 : 5kpps burst 600 } }";
    gives_its_rate(list, "ip saddr limit @customers", engine, hosts, folder);
}

/// Checks that a policy with this list and rule passes 1000 packets per second of the limited subnet, with several
/// workers.
fn gives_its_rate(list: &str, rule: &str, engine: &str, hosts: &Hosts, folder: &Path) {
    /// Time between readings.
    const WINDOW: Duration = Duration::from_secs(3);
    /// Frames per round of 8 ms and sender: ten times the rate in total.
    const ROUND: [usize; 2] = [40, 8];
    let policy = format!(
        "{list}
upstream {{
  {rule}
  ip saddr 10.20.1.0/24 accept
  ip saddr 10.20.2.0/24 accept
  drop
}}
downstream {{ accept }}
"
    );
    put(folder, "rate.weir", &policy);
    let running = Running::start(&hosts.weir, folder, "rate.weir", engine, 2);
    let at_server = Listener::at(&hosts.server, "s");
    let rounds = std::array::from_fn(|sender| {
        let hosts_of = |count: usize| 1 + sender * count..1 + (sender + 1) * count;
        [from_hosts(LIMITED, hosts_of(ROUND[0]), 9), from_hosts(FREE, hosts_of(ROUND[1]), 9)].concat()
    });
    let begun = Instant::now();
    let stream = Stream::start(&hosts.client, running.control(), Duration::from_millis(8), rounds);
    let first = Reading::take(&running);
    thread::sleep(WINDOW);
    let last = Reading::take(&running);
    let rounds: u64 = stream.stop().iter().sum();
    let stats = all_of(&running, rounds * (ROUND[0] + ROUND[1]) as u64);
    let took_s = begun.elapsed().as_secs_f64();

    let (window_s, counted) = ((last.at - first.at).as_secs_f64(), (last.passed - first.passed) as f64);
    let (expected, offered) = (RATE_PPS * window_s, rounds * ROUND[0] as u64);
    let off = counted / expected - 1.0;
    eprintln!("limits: {engine}: {counted} in {window_s:.3} s, {:+.2}%, of {offered} in {took_s:.1} s", 100.0 * off);
    assert!(off.abs() <= 0.005, "{engine}: {counted} in {window_s} s");
    assert!(offered as f64 > 8.0 * expected, "{engine}: {offered} are not enough to try it");

    let [limited, free] = [LIMITED, FREE].map(|subnet| passed(&stats, subnet));
    assert!(limited as f64 <= BURST as f64 + RATE_PPS * took_s, "{engine}: {limited} in {took_s} s");
    assert_eq!((limited + exceeded(&stats), free), (offered, rounds * ROUND[1] as u64), "{engine}: {stats:#?}");
    let several = stats.workers.iter().filter(|worker| worker.upstream.total.packets > 0).count();
    assert!(several >= 2, "{engine}: one worker alone charged the bucket: {stats:#?}");
    let received = arrived(hosts, at_server, "upper", limited + free);
    assert_eq!(received, BTreeMap::from([(LIMITED, limited), (FREE, free)]), "{engine}");
    assert_eq!(running.stop(), 0);
}

const FREE_OF_LISTS: [u8; 3] = [10, 30, 1];
const PREFIXES: u32 = 100_000;

/// The /24 in a line of the list, starting at 20.0.0.0.
fn listed(line: u32) -> [u8; 3] {
    let [a, b, c, _] = ((20 << 24) + (line << 8)).to_be_bytes();
    [a, b, c]
}

/// A list in which even and odd prefixes have different limits.
fn list(even: &str, odd: &str) -> String {
    let one = |line: u32| {
        let ([a, b, c], limit) = (listed(line), [even, odd][line as usize % 2]);
        format!("{a}.{b}.{c}.0/24,{limit}\n")
    };
    (0..PREFIXES).map(one).collect()
}

fn policy_of(folder: &Path, name: &str, list: &str) {
    put(folder, &format!("{name}.csv"), list);
    let text = format!(
        "limits customers {{ file \"{name}.csv\" }}\nupstream {{ ip saddr limit @customers; accept }}\ndownstream {{ accept }}\n"
    );
    put(folder, &format!("{name}.weir"), &text);
}

each_engine!(buckets_outlive_a_change_of_their_list);
fn buckets_outlive_a_change_of_their_list(engine: &str, hosts: &Hosts, folder: &Path) {
    /// Lines with constant traffic: two with the limit that stays, and two with the limit that changes.
    const ASKED: [u32; 4] = [0, 77_776, 1, 99_999];
    /// A line whose limit stays, with little traffic: 4 packets that pass, 3 that pass, then 10 packets, and 3 of these
    /// pass.
    const SPARING: u32 = 50_000;
    const SPARINGLY: [usize; 3] = [4, 3, 10];
    /// A line whose limit changes, without traffic before the change.
    const LATE: u32 = 33_333;
    policy_of(folder, "first", &list("1/minute,10", "1/minute,10"));
    // Ten minutes of a capacity of ten hours are used, so nine packets remain.
    policy_of(folder, "second", &list("1/minute,10", "1/hour,10"));
    let running = Running::start(&hosts.weir, folder, "first.weir", engine, 2);
    let at_server = Listener::at(&hosts.server, "s");
    let begun = Instant::now();
    let round = |sender: usize| {
        let asked = ASKED.iter().flat_map(|&line| from_hosts(listed(line), sender + 1..sender + 2, 9));
        asked.chain(from_hosts(FREE, 10 * sender + 1..10 * sender + 3, 9)).collect::<Vec<_>>()
    };
    let length = round(0).len() as u64;
    let stream = Stream::start(&hosts.client, running.control(), Duration::from_millis(4), [round(0), round(1)]);
    let sparingly = |time: usize| send(&hosts.client, "c", &from_hosts(listed(SPARING), 1..1 + SPARINGLY[time], 9));
    let late = |count: usize| send(&hosts.client, "c", &from_hosts(listed(LATE), 1..1 + count, 9));
    // Long enough that every bucket gets more packets than it can pass.
    let ask_more = || {
        let before = exceeded(&running.stats());
        running.wait_for("packets exceed their limits", |stats| exceeded(stats) > before + 400);
    };
    let ask = |request: &Request| {
        running.ask(request).unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    };
    sparingly(0);
    ask_more();
    let second = running.load(&folder.join("second.weir"));
    ask_more();
    ask(&Request::Activate { generation: second, confirm_s: None });
    sparingly(1);
    late(2);
    ask_more();
    ask(&Request::Rollback);
    sparingly(2);
    // Two hours of debt exceed the capacity of ten minutes.
    late(5);
    ask_more();

    let rounds: u64 = stream.stop().iter().sum();
    let sent = rounds * length + (SPARINGLY.iter().sum::<usize>() + 7) as u64;
    let stats = all_of(&running, sent);
    let passed = [(ASKED[0], 10), (ASKED[1], 10), (ASKED[2], 19), (ASKED[3], 19), (SPARING, 10), (LATE, 2)];
    let mut expected: BTreeMap<[u8; 3], u64> = passed.iter().map(|&(line, count)| (listed(line), count)).collect();
    expected.insert(FREE, 2 * rounds);
    assert!(begun.elapsed() < Duration::from_secs(60), "{engine}: after a minute a bucket has room for one more");
    let received = arrived(hosts, at_server, "upper", stats.upstream.total.passed);
    assert_eq!(received, expected, "{engine}");
    let all: u64 = expected.values().sum();
    assert_eq!((stats.upstream.total.passed, exceeded(&stats)), (all, sent - all), "{engine}");
    assert_eq!(running.stop(), 0);
}

#[test]
fn the_kernel_keeps_room_for_lists_that_grow() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    policy_of(folder, "small", "10.20.1.0/24,1/hour,7\n");
    policy_of(folder, "large", &list("1/minute,10", "1/hour,10"));
    let load = |running: &Running| running.ask(&Request::Load { policy: folder.join("large.weir") });
    let running = Running::start(&hosts.weir, folder, "small.weir", "xdp", 1);
    let refused = load(&running).expect_err("it has far more limits than the first").to_string();
    assert!(refused.contains("buckets") && refused.contains("--limits-room"), "{refused}");
    assert_eq!(running.stop(), 0);

    let roomy = |engine: &str| Setup {
        more: vec!["--limits-room".to_owned(), (PREFIXES + 10).to_string()],
        ..Setup::new(engine)
    };
    let running = Running::start_as(&hosts.weir, folder, "small.weir", &roomy("xdp"));
    let taken = load(&running).unwrap_or_else(|failure| panic!("{failure}: {}", running.log()));
    assert_eq!(taken["generation"], 2, "{taken}");
    assert_eq!(running.stop(), 0);

    let mut other = roomy("afpacket").command(folder, "small.weir");
    let other = hosts.weir.run(move || other.output().expect("the program was built"));
    let stderr = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.code() == Some(2) && stderr.contains("--limits-room is only for the engine xdp"), "{stderr}");
}

/// IPv4 and IPv6 sources for each kind of list. No bucket regains room during the test.
const KINDS: &str = "
table sites { type ipv4 : label; elements = { 10.40.1.0/24 : HR, 10.40.2.0/24 : HR, 10.41.0.0/16 : SI } }
limits customers {
  nested
  elements = { 10.20.0.0/16 : 1/hour burst 25, 10.20.1.0/24 : 1/hour burst 20, 10.20.2.0/24 : 1/hour burst 15, 2001:db8:1::/48 : 1/hour burst 9 }
  default 1/hour burst 30
}
limits countries { table sites; elements = { HR : 1/hour burst 12 }; default 1/hour burst 7 }
upstream {
  ip saddr 10.40.0.0/15 ip saddr limit @countries accept
  ip6 saddr 2001:db8:2::/48 limit each ip6 saddr/64 1/hour burst 5 accept
  ip saddr limit @customers
  ip6 saddr limit @customers
  accept
}
downstream { accept }
";

each_engine!(limits_of_every_kind_pass_what_they_have);
fn limits_of_every_kind_pass_what_they_have(engine: &str, hosts: &Hosts, folder: &Path) {
    /// Sources in the order of sending, and the number of 40 packets that pass.
    const SENT: usize = 40;
    const SOURCES: [(&str, u64); 12] = [
        ("10.20.1.1", 20),
        // The enclosing prefix has room for five more.
        ("10.20.2.1", 5),
        ("10.20.3.1", 0),
        ("10.30.1.1", 30),
        ("2001:db8:1::1", 9),
        ("2001:db8:3::1", 30),
        ("10.40.1.1", 12),
        ("10.40.2.1", 0),
        ("10.41.1.1", 7),
        ("2001:db8:2:1::1", 5),
        ("2001:db8:2:1::2", 0),
        ("2001:db8:2:2::1", 5),
    ];
    let frame = |source: &str, sport: usize| {
        let (layer, server) = if source.contains(':') { ("ip6", "2001:db8:9::2") } else { ("ip", "10.9.0.2") };
        format!("eth / {layer} saddr={source} daddr={server} / udp sport={sport} dport=9\n")
    };
    put(folder, "kinds.weir", KINDS);
    let running = Running::start(&hosts.weir, folder, "kinds.weir", engine, 2);
    let at_server = Listener::at(&hosts.server, "s");
    let mut sent = 0;
    for (source, _) in SOURCES {
        let all = frames(&(0..SENT).map(|index| frame(source, 1000 + index)).collect::<String>());
        send(&hosts.client, "c", &all);
        sent += SENT as u64;
        // The next packets may go to another worker.
        all_of(&running, sent);
    }
    let stats = all_of(&running, sent);
    let passed: u64 = SOURCES.iter().map(|(_, passed)| passed).sum();
    assert_eq!((stats.upstream.total.passed, exceeded(&stats)), (passed, sent - passed), "{engine}: {stats:#?}");
    let received = at_server.received(passed as usize);
    assert_eq!((received.len() as u64, hosts.lost_on("upper")), (passed, 0), "{engine}");
    for (source, passed) in SOURCES {
        let sample = frames(&frame(source, 1000)).remove(0);
        // Position of the source address in the header.
        let place = if source.contains(':') { 22..38 } else { 26..30 };
        let of_source =
            received.iter().filter(|one| one[12..14] == sample[12..14] && one[place.clone()] == sample[place.clone()]);
        assert_eq!(of_source.count() as u64, passed, "{engine}: {source}");
    }
    assert_eq!(running.stop(), 0);
}

each_engine!(what_exceeds_is_diverted_dropped_or_marked, Wires { divert: 1, ..Wires::default() });
fn what_exceeds_is_diverted_dropped_or_marked(engine: &str, hosts: &Hosts, folder: &Path) {
    const POLICY: &str = "
limits customers { elements = { 10.20.1.0/24 : 1/minute burst 7 } }
upstream {
  udp dport 1 limit rate 1/minute burst 10 exceed divert accept
  udp dport 2 limit rate 1/minute burst 20 accept
  udp dport 3 limit rate 1/minute burst 30 exceed mark
  udp dport 3 meta exceeded exists divert
  udp dport 3 accept
  udp dport 4 ip saddr limit @customers exceed divert accept
  drop
}
downstream { accept }
";
    /// Destination ports, and the number of packets that pass and that are diverted.
    const PORTS: [(u16, u64, u64); 4] = [(1, 10, 50), (2, 20, 0), (3, 30, 30), (4, 7, 53)];
    const OF_EACH: usize = 60;
    put(folder, "exceed.weir", POLICY);
    let setup = Setup { workers: 2, divert: Some("divert".to_owned()), ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "exceed.weir", &setup);
    let (at_server, at_analyser) = (Listener::at(&hosts.server, "s"), Listener::at(&hosts.analyser, "d"));
    let sent: Vec<Vec<u8>> = PORTS.iter().flat_map(|&(dport, ..)| from_hosts(LIMITED, 1..1 + OF_EACH, dport)).collect();
    send(&hosts.client, "c", &sent);
    let stats = all_of(&running, sent.len() as u64);
    let total = &stats.upstream.total;
    assert_eq!((total.passed, total.dropped, total.diverted), (67, 40, 133), "{engine}: {stats:#?}");
    // Packets that are diverted because of a mark have the rule as their reason.
    assert_eq!(exceeded(&stats), 50 + 40 + 53, "{engine}: {stats:#?}");
    let matched: Vec<u64> = total.rules.iter().map(|rule| rule.packets).collect();
    assert_eq!(matched, [60, 60, 60, 30, 30, 60, 0, 0], "{engine}: {stats:#?}");

    let (mut passed, mut diverted) = (at_server.received(67), at_analyser.received(133));
    assert_eq!((hosts.lost_on("upper"), hosts.lost_on("divert")), (0, 0), "{engine}");
    let of_port = |frames: &[Vec<u8>], dport: u16| {
        frames.iter().filter(|frame| frame[36..38] == dport.to_be_bytes()).count() as u64
    };
    for (dport, passes, diverts) in PORTS {
        let counts = (of_port(&passed, dport), of_port(&diverted, dport));
        assert_eq!(counts, (passes, diverts), "{engine}, port {dport}");
    }
    // Each frame was sent to one interface and is unchanged.
    let mut expected: Vec<Vec<u8>> = sent.iter().filter(|frame| frame[36..38] != [0, 2]).cloned().collect();
    passed.retain(|frame| frame[36..38] != [0, 2]);
    passed.append(&mut diverted);
    passed.sort();
    expected.sort();
    assert_eq!(passed, expected, "{engine}");
    assert_eq!(running.stop(), 0);
}
