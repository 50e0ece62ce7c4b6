//! Packets as drivers give them to programs in the kernel. They are in several buffers, and the first one may end
//! anywhere. Or they come from interfaces that are not ports. Needs root and clang. No packet is sent.

mod engines;
#[path = "buffers/every_policy.rs"]
mod every_policy;
#[path = "buffers/samples.rs"]
mod samples;
#[path = "buffers/taps.rs"]
mod taps;

use engines::frame_sets;
use nix::sched::{CloneFlags, unshare};
use std::process::Command;
use std::sync::Arc;
use weir_abi::{Action, BURST_MAX, Counter, Reason, Verdict};
use weir_engine::Filter;
use weir_engine::live::xdp::{KernelCode, KernelPath, Ports, Received, Sent};
use weir_engine::live::{Interfaces, Loaded};
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_test_support as support;

/// Return values of a program (`enum tcx_action`).
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
/// Return values of a program (`enum xdp_action`).
const XDP_DROP: u32 = 1;
const XDP_REDIRECT: u32 = 4;

/// Ends of the first buffer: after the link header, inside each header, and after all headers (header split). Others
/// are inside the window, at its end, and where it is on a veth.
const FIRST_BYTES: [usize; 22] =
    [14, 15, 18, 20, 33, 34, 35, 38, 42, 53, 54, 55, 60, 74, 94, 150, 256, 1536, 2040, 2047, 2048, 3500];

/// Number of rules in a part of a chain.
const PART_RULES: usize = 3;

/// Rules for all headers in the window. Raw matches read the bytes after the headers.
const RULES: &str = "
  @ll,96,16 0x88a8 counter
  @th,16,16 443 counter
  @th,256,128 != 0 counter
  @nh,320,64 0 counter
  vlan id 7 counter
  ip6 saddr 2001:db8::/32 tcp dport 443 accept
  tcp flags syn tcp dport 80 accept
  udp dport { 53, 80 } udp length > 9 accept
  icmp type 8 accept
  icmpv6 type 128 accept
  exthdr dst exists accept
";

const KINDS: &str = "
eth / ip saddr=10.9.0.1 / tcp dport=80 flags=syn / payload 4000 fill=0xaa
eth / ip saddr=10.9.0.1 / tcp dport=443 flags=ack / payload 4000
eth / ip / udp dport=53 / payload 1400 fill=1
eth / ip / udp dport=53 / payload 5000
eth / ip options=94040000 / tcp dport=80 flags=syn / payload 3000 fill=3
eth / ip options=9404000094040000940400009404000094040000 / udp dport=80 / payload 3000
eth / vlan id=7 / ip / icmp type=8 / payload 2500
eth / vlan id=7 tpid=0x88a8 / vlan id=9 / ip6 saddr=2001:db8::1 / tcp dport=443 / payload 2500 fill=9
eth / vlan id=1 tpid=0x9100 / vlan id=2 / vlan id=3 / ip6 / udp dport=53 / payload 100
eth / ip6 / icmp6 type=128 / payload 2000
eth / ip6 saddr=2001:db8::1 / hbh / dst / frag off=0 mf / tcp dport=443 / payload 3004
eth / ip6 / frag off=1480 nh=udp / payload 2048
eth / ip6 saddr=2001:db8::1 / dst / rt / dst / tcp dport=443 / payload 64
eth / arp op=1
eth type=0x88cc / raw 020704020000000001040704020000000001060200780000
eth / ip ihl=4 / udp / payload 100
eth / ip len=4000 / udp dport=53 / payload 100
eth / ip / tcp doff=15 dport=443
eth / ip / udp dport=53
eth / ip6 len=9000 / udp dport=53 / payload 100
";

/// IPv6 packets with destination options that end around the end of the window, followed by a header.
fn around_the_window() -> String {
    let mut text = String::new();
    for units in 0xf4..=0xff {
        let options = (units + 1) * 8 - 2;
        for (next, header) in
            [("06", "000101bb000000000000000050020000"), ("11", "0001005000080000"), ("32", ""), ("3b", ""), ("fd", "")]
        {
            text += &format!(
                "eth / ip6 nh=dst / raw {next}{units:02x} / payload {options} / raw {header} / payload 3000\n"
            );
        }
    }
    text
}

/// Where the policy is: between `lower` and `upper`, or on the host with the interface `lower`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Between,
    Host,
}

/// The policy in the kernel between the interfaces `lower` and `upper`. The thread's network namespace also contains
/// the interface `other`.
struct Kernel {
    policy: Policy,
    ports: Arc<Ports>,
    code: Arc<KernelCode>,
    /// The policy in parts of a few rules.
    parts: Arc<KernelCode>,
}

impl Kernel {
    fn load(mtu: u32, place: Place) -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("this test makes a network namespace and needs root");
        for name in ["lower", "upper", "other"] {
            let line = format!("link add {name} mtu {mtu} type veth peer name {name}-peer mtu {mtu}");
            let made = Command::new("ip").args(line.split_whitespace()).status().expect("see scripts/install-deps.sh");
            assert!(made.success(), "ip {line}");
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("buffers.weir");
        let text = format!(
            "defaults {{ ip-options rules; fragment rules }}\nupstream {{ {RULES} }}\ndownstream {{ {} }}\n",
            match place {
                Place::Between => "accept",
                Place::Host => RULES,
            }
        );
        std::fs::write(&path, text).expect("the folder can be written to");
        let policy = engines::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let (lower, upper) = (vec!["lower".to_owned()], vec!["upper".to_owned()]);
        let ports = Arc::new(match place {
            Place::Between => Ports::of(&Interfaces { lower, upper, divert: None }).expect("they are there"),
            Place::Host => Ports::of_host(&lower).expect("it is there"),
        });
        let data = policy.bind(None).expect("there are no tables");
        let code = policy.kernel(&data, &ports).unwrap_or_else(|failure| panic!("{failure}"));
        let parts = policy.compile_bpf_in_parts(&data, PART_RULES).expect("it compiles");
        let parts = parts.load(&ports).expect("the verifier takes it");
        Kernel { policy, ports, code, parts }
    }

    /// Runs the program for packets from `side` on a packet from `interface`. Returns the XDP action.
    fn receive(&self, side: usize, interface: &str, bytes: &[u8], first: usize) -> Result<u32, String> {
        Self::receive_by(&self.code, side, interface, bytes, first)
    }

    fn receive_by(code: &KernelCode, side: usize, interface: &str, bytes: &[u8], first: usize) -> Result<u32, String> {
        let index = nix::net::if_::if_nametoindex(interface).expect("it is there");
        code.receive(side, &Received { bytes, first, index }).map_err(|error| error.to_string())
    }

    /// The counters of a side, summed over all CPUs.
    fn counted(&self, side: usize) -> Vec<Counter> {
        Self::counted_by(&self.code, side)
    }

    fn counted_by(code: &KernelCode, side: usize) -> Vec<Counter> {
        let blocks = code.counts();
        let sum = |at: usize| {
            let of = |what: fn(&Counter) -> u64| blocks.iter().map(|block| what(&block[side][at])).sum();
            Counter { packets: of(|counter| counter.packets), bytes: of(|counter| counter.bytes) }
        };
        (0..blocks[0][side].len()).map(sum).collect()
    }
}

/// Verdicts and counters of the interpreter.
fn interpreted(policy: &Policy, packets: &[support::Packet]) -> (Vec<Verdict>, Vec<Counter>) {
    interpreted_by(0, policy, packets)
}

fn interpreted_by(chain: usize, policy: &Policy, packets: &[support::Packet]) -> (Vec<Verdict>, Vec<Counter>) {
    let mut eval = EvalFilter::new(&policy.program, policy.answers());
    let mut verdicts = Vec::new();
    for burst in frame_sets(packets).iter().flat_map(|set| set.bursts()) {
        let mut words = [Verdict(0); BURST_MAX];
        eval.decide(chain, &burst, &mut words).expect("the interpreter does not fail");
        verdicts.extend_from_slice(&words[..burst.len()]);
    }
    (verdicts, eval.counters())
}

#[test]
fn a_packet_is_judged_alike_wherever_its_first_buffer_ends() {
    let kernel = Kernel::load(9000, Place::Between);
    let text = format!("{KINDS}{}", around_the_window());
    let packets = support::packets(&text).expect("they are packets");
    let short = kernel.receive(0, "lower", &packets[0].bytes, 100);
    if let Err(error) = &short {
        eprintln!("this kernel has no test runs with short first buffers, which Linux 6.18 has: {error}");
        return;
    }
    let (verdicts, _) = interpreted(&kernel.policy, &packets);
    for (packet, verdict) in packets.iter().zip(&verdicts) {
        let expected = if verdict.action() == Some(Action::Accept) { XDP_REDIRECT } else { XDP_DROP };
        let (_, counters) = interpreted(&kernel.policy, std::slice::from_ref(packet));
        for first in FIRST_BYTES.into_iter().chain([packet.bytes.len().min(3500)]) {
            for (form, code) in [("one program", &kernel.code), ("parts", &kernel.parts)] {
                let before = Kernel::counted_by(code, 0);
                let did = Kernel::receive_by(code, 0, "lower", &packet.bytes, first).expect("the kernel runs it");
                let since = Kernel::counted_by(code, 0)
                    .into_iter()
                    .zip(before)
                    .map(|(now, then)| Counter { packets: now.packets - then.packets, bytes: now.bytes - then.bytes });
                let reason = weir_command::report::reason_name(&kernel.policy.program, verdict.reason());
                assert_eq!(since.collect::<Vec<_>>(), counters, "{form}, first buffer of {first}, {reason}: {packet}");
                assert_eq!(did, expected, "{form}, first buffer of {first}, {reason}: {packet}");
            }
        }
    }
}

/// The most bytes of a packet in one buffer, which the kernel runs a program on.
const SENT_BYTES_MAX: usize = 3300;

/// Judges a packet as it is, and as a packet that the card splits into several.
#[test]
fn a_packet_that_the_host_sends_is_judged_like_any_other() {
    if !every_policy::has_tcx() {
        return;
    }
    let kernel = Kernel::load(9000, Place::Host);
    let text = format!("{KINDS}{}", around_the_window());
    let packets = support::packets(&text).expect("they are packets");
    let sendable =
        |packet: &&support::Packet| packet.bytes.len() <= SENT_BYTES_MAX && packet.wire as usize == packet.bytes.len();
    let packets: Vec<support::Packet> = packets.iter().filter(sendable).cloned().collect();
    assert!(packets.len() > 15, "{}", packets.len());
    let (verdicts, _) = interpreted_by(1, &kernel.policy, &packets);
    let index = nix::net::if_::if_nametoindex("lower").expect("it is there");
    for (packet, verdict) in packets.iter().zip(&verdicts) {
        let expected = if verdict.action() == Some(Action::Accept) { TCX_NEXT } else { TCX_DROP };
        let (_, once) = interpreted_by(1, &kernel.policy, std::slice::from_ref(packet));
        let length = packet.bytes.len() as u64;
        for (count, added) in [(1, 0), (3, 108)] {
            let bytes = length + added;
            let segments = if count == 1 { [0, 0] } else { [count, bytes as u32] };
            // The bytes of repeated headers belong to the packet, however often it is counted.
            let counters = once.iter().map(|one| match one.packets {
                0 => Counter::default(),
                packets => Counter { packets: packets * u64::from(count), bytes: packets * bytes },
            });
            let counters: Vec<Counter> = counters.collect();
            for (form, code) in [("one program", &kernel.code), ("parts", &kernel.parts)] {
                let before = Kernel::counted_by(code, 1);
                let did = code.send(1, &Sent { bytes: &packet.bytes, index, segments }).expect("the kernel runs it");
                let since = Kernel::counted_by(code, 1)
                    .into_iter()
                    .zip(before)
                    .map(|(now, then)| Counter { packets: now.packets - then.packets, bytes: now.bytes - then.bytes });
                let reason = weir_command::report::reason_name(&kernel.policy.program, verdict.reason());
                assert_eq!(since.collect::<Vec<_>>(), counters, "{form}, {segments:?}, {reason}: {packet}");
                assert_eq!(did, expected, "{form}, {segments:?}, {reason}: {packet}");
            }
        }
    }
    // Another interface than those that the policy is for.
    let stranger = nix::net::if_::if_nametoindex("other").expect("it is there");
    let sent = Sent { bytes: &packets[0].bytes, index: stranger, segments: [0, 0] };
    assert_eq!(kernel.code.send(1, &sent).expect("the kernel runs it"), TCX_DROP);
    let unknown = usize::from(Reason::UNKNOWN_INTERFACE.0);
    assert_eq!(kernel.counted(1)[unknown].packets, 1);
}

#[test]
fn a_packet_of_an_interface_that_is_no_port_is_dropped_by_name() {
    let kernel = Kernel::load(1500, Place::Between);
    let packets = support::packets("eth / ip / tcp dport=80 flags=syn / payload 10\n").expect("a packet");
    let bytes = &packets[0].bytes;
    for (side, own) in ["lower", "upper"].into_iter().enumerate() {
        assert_eq!(kernel.receive(side, own, bytes, bytes.len()), Ok(XDP_REDIRECT), "{own}");
        let before = kernel.counted(side);
        for stranger in ["other", "lo", "lower-peer"] {
            assert_eq!(kernel.receive(side, stranger, bytes, bytes.len()), Ok(XDP_DROP), "{stranger}");
        }
        let after = kernel.counted(side);
        let unknown = usize::from(Reason::UNKNOWN_INTERFACE.0);
        assert_eq!(after[unknown], Counter { packets: 3, bytes: 3 * bytes.len() as u64 }, "{own}");
        let rest = |counters: &[Counter]| [&counters[..unknown], &counters[unknown + 1..]].concat();
        assert_eq!(rest(&after), rest(&before), "nothing else is counted");
    }
    let decided = weir_command::report::decided(&kernel.policy.program, &kernel.counted(1));
    let dropped = decided.iter().find(|decided| decided.reason == Reason::UNKNOWN_INTERFACE).expect("it has a name");
    assert_eq!((dropped.action, dropped.counter.packets), (Action::Drop, 3));
}

/// Programs that were loaded for packets in one buffer must not get others. The kernel refuses an MTU that requires
/// several buffers.
#[test]
fn an_mtu_is_not_raised_under_programs_for_one_buffer() {
    for (mtu, raised) in [(1500, false), (1600, true)] {
        let kernel = Kernel::load(mtu, Place::Between);
        let policy = Loaded::plain(kernel.code.clone(), [0, 1]);
        let running = KernelPath::start(kernel.ports.clone(), &policy, None).expect("nobody else is there");
        let ip = Command::new("ip").args(["link", "set", "lower-peer", "mtu", "9000"]).output().expect("ip is there");
        assert_eq!(ip.status.success(), raised, "{mtu}: {}", String::from_utf8_lossy(&ip.stderr));
        drop(running);
    }
}
