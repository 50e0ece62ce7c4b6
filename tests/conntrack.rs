//! Compares Weir's tracking with the kernel's conntrack, packet by packet.
//!
//! Weir and conntrack judge the same packets over IPv4 and IPv6: captures; generated TCP flows that are reordered, sent
//! again, overlapping, wrapped around and attacked; requests and replies of UDP, ICMP and another protocol; and ICMP
//! errors about all of them. Each difference must be one that docs/reference/tracking.md explains.
//! `WEIR_CONNTRACK_FLOWS=100000` sets the number of generated flows, `WEIR_CONNTRACK_SEED` which they are,
//! `WEIR_CONNTRACK_CAPTURES` names a folder with captures.

#[path = "conntrack/differences.rs"]
mod differences;
mod engines;
#[path = "conntrack/flows.rs"]
mod flows;
#[path = "conntrack/kernel.rs"]
mod kernel;
#[path = "conntrack/message_differences.rs"]
mod message_differences;
#[path = "conntrack/messages.rs"]
mod messages;
#[path = "conntrack/weir.rs"]
mod weir;

use differences::{Difference, Then};
use flows::{Dice, RST, SYN, flow};
use kernel::{Conntrack, with_conntrack};
use messages::messages;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::path::Path;
use weir::{Judged, Policies, Weir, parsed};
use weir_abi::flow::{Flow, FlowState};
use weir_abi::packet::{Fragment, L3, L4};
use weir_engine::capture::CaptureReader;
use weir_policy::ir::eval::packet::Packet;

/// Number of generated flows.
const FLOWS: u32 = 3000;
/// The seed of generated flows.
const SEED: u32 = 17;
/// Number of flows between two flushes.
const BATCH: u32 = 500;
/// Number of captured packets between two flushes.
const CAPTURED: usize = 10_000;
/// Most packets that are not compared because the states of their flows differ, of a thousand.
const SKIPPED_MAX: usize = 75;

/// Identifies a flow: addresses, ports and protocol, both directions alike.
type Ends = [(u128, u16); 2];

fn ends(packet: &Packet) -> (Ends, u8) {
    let mut ends = [(packet.saddr, packet.sport), (packet.daddr, packet.dport)];
    ends.sort_unstable();
    (ends, packet.proto)
}

/// Whether the flow has the numbers of a segment that has just passed, and they are not older than the last
/// acknowledgement. A SYN or reset may belong to no connection, and a liberal flow has not all numbers.
fn has_numbers(packet: &Packet, flow: Option<Flow>) -> bool {
    let Some(flow) = flow.filter(|flow| !flow.liberal) else { return false };
    let sender = usize::from((packet.saddr, packet.sport) > (packet.daddr, packet.dport));
    let is_old = flow.sides[sender].una.wrapping_sub(packet.seq) as i32 > 0;
    let is_opening = matches!(flow.state, FlowState::SynSent | FlowState::SynSent2);
    packet.tcp_flags & (SYN | RST) == 0 && !is_opening && !is_old
}

/// The comparison so far.
#[derive(Default)]
struct Compared {
    packets: usize,
    alike: usize,
    /// Packets of flows whose states differ.
    skipped: usize,
    /// The number of packets of each known difference.
    known: BTreeMap<&'static str, usize>,
    /// The first unknown differences, with the end of their flows.
    unknown: Vec<String>,
}

impl Compared {
    /// Has both judge packets that begin without flows. `belongs` says to which flow a packet belongs.
    fn compare<F: Hash + Eq + Copy>(
        &mut self,
        policies: &Policies,
        conntrack: &mut Conntrack,
        packets: &[Vec<u8>],
        belongs: impl Fn(usize) -> F,
    ) {
        conntrack.flush();
        let mut weir = Weir::new(&policies.all);
        let theirs = conntrack.judge(packets);
        let mut flows: HashMap<F, Vec<usize>> = HashMap::new();
        let mut diverged = HashSet::new();
        self.packets += packets.len();
        for (at, (bytes, theirs)) in packets.iter().zip(theirs).enumerate() {
            let ours = weir.judge(bytes);
            let flow = belongs(at);
            flows.entry(flow).or_default().push(at);
            let Some(theirs) = theirs else {
                self.unknown.push(format!("not forwarded: {:?}", parsed(bytes)));
                continue;
            };
            if diverged.contains(&flow) {
                self.skipped += 1;
            } else if ours.shown == theirs {
                self.alike += 1;
            } else {
                let of_flow: Vec<&Vec<u8>> = flows[&flow].iter().map(|&at| &packets[at]).collect();
                if self.explain(policies, &of_flow, &ours, theirs) == Then::Diverged {
                    diverged.insert(flow);
                }
            }
        }
    }

    /// Explains the difference at the last packet of a flow.
    fn explain(&mut self, policies: &Policies, of_flow: &[&Vec<u8>], ours: &Judged, theirs: &str) -> Then {
        let mut alone = Weir::new(&policies.one);
        let mut earlier: Vec<(Packet, Option<Flow>)> = Vec::new();
        let mut newest = None;
        let (last, before) = of_flow.split_last().expect("the packet itself");
        for bytes in before {
            // Errors change no flow.
            if parsed(bytes).l4 == L4::Tcp {
                earlier.push((parsed(bytes), alone.flow()));
            }
            let passes = alone.judge(bytes).reason.is_none();
            if passes && parsed(bytes).l4 == L4::Tcp {
                newest = Some(&bytes[..]).filter(|bytes| has_numbers(&parsed(bytes), alone.flow()));
            }
        }
        let packet = parsed(last);
        let flow = alone.flow();
        let of_message = match packet.l4 == L4::Tcp {
            true => None,
            false => message_differences::class(last, before, newest, ours, theirs),
        };
        let of_connection = || Difference { packet: &packet, ours, theirs, flow, earlier: &earlier }.class();
        let class = of_message.or_else(of_connection);
        if let Some((class, then)) = class {
            *self.known.entry(class).or_default() += 1;
            return then;
        }
        let line = |packet: &Packet| {
            let Packet { tcp_flags, seq, ack, window, sport, dport, proto, .. } = packet;
            format!("{proto} {sport}>{dport} flags={tcp_flags:#04x} seq={seq} ack={ack} window={window}")
        };
        if packet.l4 != L4::Tcp {
            let history: String = before.iter().map(|bytes| format!("    {bytes:02x?}\n")).collect();
            self.unknown.push(format!("weir {ours:?}, kernel {theirs}\n{history}    {last:02x?}  {flow:?}"));
            return Then::Diverged;
        }
        let history = earlier.iter().rev().take(12).rev();
        let history: String = history.map(|(packet, flow)| format!("    {}  {flow:?}\n", line(packet))).collect();
        self.unknown.push(format!("weir {ours:?}, kernel {theirs}\n{history}    {}  {flow:?}", line(&packet)));
        Then::Diverged
    }

    fn report(&self) {
        let Compared { packets, alike, skipped, known, unknown } = self;
        println!("{packets} packets, {alike} alike, {skipped} not compared");
        known.iter().for_each(|(class, count)| println!("{count:6} {class}"));
        let shown: Vec<&str> = unknown.iter().take(5).map(String::as_str).collect();
        assert!(unknown.is_empty(), "{} unknown differences:\n{}", unknown.len(), shown.join("\n"));
        assert!(skipped * 1000 <= packets * SKIPPED_MAX, "{skipped} of {packets} packets are not compared");
        let docs = std::fs::read_to_string(engines::root().join("docs/reference/tracking.md"))
            .expect("docs/reference/tracking.md is there");
        let missing: Vec<_> = known.keys().filter(|class| !docs.contains(&format!("| `{class}` |"))).collect();
        assert!(missing.is_empty(), "docs/reference/tracking.md does not explain {missing:?}");
    }
}

/// Compares generated flows: `generate` makes the packets of a flow with a number.
fn compare_generated(generate: fn(&mut Dice, u32) -> Vec<Vec<u8>>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let wanted = number("WEIR_CONNTRACK_FLOWS").unwrap_or(FLOWS);
    let seed = number("WEIR_CONNTRACK_SEED").unwrap_or(SEED).into();
    let policies = Policies::load();
    let compared = with_conntrack(|mut conntrack| {
        let (mut compared, mut dice) = (Compared::default(), Dice::new(seed));
        for first in (0..wanted).step_by(BATCH as usize) {
            let (mut packets, mut numbers) = (Vec::new(), Vec::new());
            for number in first..wanted.min(first + BATCH) {
                packets.extend(generate(&mut dice, number));
                numbers.resize(packets.len(), number);
            }
            compared.compare(&policies, &mut conntrack, &packets, |at| numbers[at]);
        }
        compared
    });
    compared.report();
}

#[test]
fn the_kernel_judges_generated_flows_alike() {
    compare_generated(|dice, number| flow(dice).iter().map(|segment| segment.packet(number)).collect());
}

#[test]
fn the_kernel_judges_requests_replies_and_errors_alike() {
    compare_generated(messages);
}

/// The IP packets of a capture that the kernel forwards: whole, not malformed and not fragments, which it would
/// reassemble, between addresses of hosts.
fn forwardable(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut packets = Vec::new();
    while let Some(burst) = reader.next_burst().expect("the capture is whole") {
        for index in 0..burst.frames().len() {
            let frame = weir_loading::eval::frame(burst.frames(), index);
            let (packet, malformed) = weir_policy::ir::eval::packet::parse(frame);
            let end = packet.l4_offset + usize::from(packet.l4_length);
            let whole = end <= frame.bytes.len() && malformed.is_none() && packet.fragment == Fragment::None;
            let is_host = |address: u128| match packet.l3 {
                L3::Ipv4 => !matches!(address >> 24, 0 | 127 | 224..=255) && address >> 16 != 0xa9fe,
                _ => !matches!(address >> 120, 0 | 0xfe | 0xff),
            };
            let is_ip = matches!(packet.l3, L3::Ipv4 | L3::Ipv6);
            if is_ip && whole && is_host(packet.saddr) && is_host(packet.daddr) && packet.saddr != packet.daddr {
                packets.push(frame.bytes[packet.l3_offset..end].to_vec());
            }
        }
    }
    packets
}

#[test]
fn the_kernel_judges_captures_alike() {
    let mut folders = vec![engines::root().join("examples/edge")];
    folders.extend(std::env::var_os("WEIR_CONNTRACK_CAPTURES").map(Into::into));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("the folder can be read"));
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut captures: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "pcap" || end == "pcapng"))
        .map(|path| (forwardable(&path), path))
        .collect();
    captures.sort_by(|one, other| one.1.cmp(&other.1));
    let policies = Policies::load();
    let compared = with_conntrack(|mut conntrack| {
        let mut compared = Compared::default();
        for (packets, path) in &captures {
            println!("{}: {} packets", path.display(), packets.len());
            for packets in packets.chunks(CAPTURED) {
                compared.compare(&policies, &mut conntrack, packets, |at| ends(&parsed(&packets[at])));
            }
        }
        compared
    });
    compared.report();
}
