//! The SYN proxy: scripts with the packets that leave (`tests/tracking/proxy/*.pkt`), over IPv4, IPv6 and VLANs.
//!
//! ```text
//! tracking synproxy mss 1460                        settings, for the whole file
//! case a client
//! +0    > S seq=100 mss=1400     : syn-cookie in none   <= SA seq=C ack=101 win=0 mss=1460
//! +0.1  > A seq=101 ack=C+1      : new in syn-sent      => S seq=100 win=512 mss=1400
//! ```
//! A segment is written as in the other scripts. `C` is the number of the last cookie, `T` its timestamp, `B` the
//! cookie before. The packets that leave follow the state and the flows: `=>` on, `<=` back. Nothing there means that
//! the received bytes pass.

#[path = "proxy_succession.rs"]
mod succession;

use crate::engines::root;
use crate::{shown, states};
use std::fmt::Write;
use weir_abi::{Action, Link, Verdict};
use weir_engine::Filter;
use weir_engine::frame_set::FrameSet;
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_policy::ir::Direction;
use weir_policy::ir::eval::packet::{Frame, parse};
use weir_test_support::script::{Case, Script, segment};
use weir_test_support::{Packet, notation};

/// Time of the first packet of a case, ns: well after the beginning of an epoch (2^36 ns).
const START_NS: u64 = 1_000_000_000_000;
/// Numbers this near to a cookie are written from there.
const NEAR: u32 = 1 << 16;

/// What carries the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Ipv4,
    Ethernet,
    Ipv6,
    Vlan,
    Options,
}

impl Carrier {
    /// The packet in the usual notation.
    fn text(self, ipv4: &str) -> String {
        let ipv6 = |text: &str| {
            text.replacen("ip ", "ip6 ", 1).replace("192.0.2.1", "2001:db8::1").replace("198.51.100.1", "2001:db8:1::1")
        };
        match self {
            Carrier::Ipv4 => ipv4.to_owned(),
            Carrier::Ethernet => format!("eth / {ipv4}"),
            Carrier::Ipv6 => ipv6(ipv4),
            Carrier::Vlan => format!("eth / vlan id=100 / vlan id=7 / {}", ipv6(ipv4)),
            Carrier::Options => format!("eth / {}", ipv4.replacen("ip ", "ip options=94040000 tos=2 ttl=9 ", 1)),
        }
    }
}

/// The last cookie, its timestamp, and the cookie before.
#[derive(Clone, Copy, Default)]
struct Cookie {
    number: u32,
    stamp: u32,
    before: u32,
}

impl Cookie {
    /// Replaces `C` and `T` in values.
    fn filled(self, text: &str) -> String {
        let number = |word: &str| {
            let symbol = word.chars().next();
            let base = match symbol {
                Some('C') => self.number,
                Some('T') => self.stamp,
                Some('B') => self.before,
                _ => return None,
            };
            let offset: i64 = if word.len() == 1 { 0 } else { word[1..].parse().ok()? };
            Some((i64::from(base) + offset).rem_euclid(1 << 32).to_string())
        };
        let value = |value: &str| {
            let parts = value.split_inclusive([',', '-']).map(|part| {
                let (word, end) = part.strip_suffix([',', '-']).map_or((part, ""), |word| (word, &part[word.len()..]));
                number(word).map_or_else(|| part.to_owned(), |number| number + end)
            });
            parts.collect::<String>()
        };
        let word = |word: &str| match word.split_once('=') {
            Some((name, text)) => format!("{name}={}", value(text)),
            None => word.to_owned(),
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// A number, from the cookie if it is near.
    fn shown(base: u32, symbol: char, number: u32) -> String {
        match number.wrapping_sub(base) as i32 {
            _ if base == 0 => number.to_string(),
            0 => symbol.to_string(),
            offset if offset.unsigned_abs() < NEAR => format!("{symbol}{offset:+}"),
            _ => number.to_string(),
        }
    }
}

/// The sum of the words of a packet's part.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) * 256 + pair.get(1).map_or(0, |&low| u32::from(low)));
    let sum: u64 = words.map(u64::from).sum();
    ((sum - 1) % 0xffff + 1) as u32
}

/// Checks lengths, checksums and ends of a frame, and describes its segment.
fn described(bytes: &[u8], link: Link, cookie: &mut Cookie, is_reply: bool) -> String {
    let frame = Frame { bytes, wire_len: bytes.len() as u32, link, time_ns: 0 };
    let (packet, malformed) = parse(frame);
    assert_eq!(malformed, None);
    let (l3, l4) = (packet.l3_offset, packet.l4_offset);
    let is_ipv6 = bytes[l3] >> 4 == 6;
    let said = if is_ipv6 { 40 + usize::from(packet.ip_length) } else { usize::from(packet.ip_length) };
    assert_eq!(l3 + said, bytes.len(), "the IP length is that of the packet");
    assert!(is_ipv6 || sum(&bytes[l3..l4]) == 0xffff, "the checksum of the IP header");
    let ends = if is_ipv6 { &bytes[l3 + 8..l3 + 40] } else { &bytes[l3 + 12..l3 + 20] };
    let pseudo = sum(ends) + 6 + (bytes.len() - l4) as u32;
    assert_eq!((pseudo + sum(&bytes[l4..]) - 1) % 0xffff + 1, 0xffff, "the checksum of the segment");
    let options = &bytes[l4 + 20..l4 + usize::from(packet.doff) * 4];
    if is_reply {
        let stamp = options.windows(2).position(|kind| kind == [8, 10]).map(|at| be32(&options[at + 2..]));
        *cookie = Cookie { number: packet.seq, stamp: stamp.unwrap_or(0), before: cookie.number };
    }
    let letters = "FSRPAUEC".chars().enumerate().filter(|(bit, _)| packet.tcp_flags >> bit & 1 != 0);
    let mut text: String = letters.map(|(_, letter)| letter).collect();
    let _ = write!(text, " seq={}", Cookie::shown(cookie.number, 'C', packet.seq));
    if packet.tcp_flags & 16 != 0 || packet.ack != 0 {
        let _ = write!(text, " ack={}", Cookie::shown(cookie.number, 'C', packet.ack));
    }
    let _ = write!(text, " win={}", packet.window);
    describe_options(&mut text, options, cookie);
    let payload = bytes.len() - l4 - usize::from(packet.doff) * 4;
    if payload > 0 {
        let _ = write!(text, " / {payload}");
    }
    text
}

fn describe_options(text: &mut String, mut options: &[u8], cookie: &Cookie) {
    while let Some((&kind, rest)) = options.split_first().filter(|&(&kind, _)| kind != 0) {
        if kind == 1 {
            options = rest;
            continue;
        }
        let data = &options[2..options[1].into()];
        let number = |number| Cookie::shown(cookie.number, 'C', number);
        let stamp = |number| Cookie::shown(cookie.stamp, 'T', number);
        let _ = match (kind, data.len()) {
            (2, 2) => write!(text, " mss={}", u16::from_be_bytes([data[0], data[1]])),
            (3, 1) => write!(text, " wscale={}", data[0]),
            (4, 0) => write!(text, " sackok"),
            (5, 8) => write!(text, " sack={}-{}", number(be32(data)), number(be32(&data[4..]))),
            (8, 8) => write!(text, " ts={},{}", stamp(be32(data)), stamp(be32(&data[4..]))),
            _ => write!(text, " option={kind}"),
        };
        options = &options[options[1].into()..];
    }
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The policy of a script: `tcp synproxy` before the rules that show states.
fn policy(script: &Script) -> Policy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = Script { rules: [vec!["tcp synproxy".to_owned()], script.rules.clone()].concat(), ..script.clone() };
    crate::policy(folder.path(), &script).unwrap_or_else(|error| panic!("{error}"))
}

/// Splits `: STATE in FLOWS => PACKET`.
fn expectation(text: &str) -> (&str, Option<&str>, &str) {
    let (before, leaves) = match text.find("=>").or_else(|| text.find("<=")) {
        Some(at) => (&text[..at], text[at..].trim()),
        None => (text, ""),
    };
    match before.split_once(" in ") {
        Some((state, flows)) => (state.trim(), Some(flows.trim()), leaves),
        None => (before.trim(), None, leaves),
    }
}

/// A packet, and what the interpreter says of it.
struct Passed {
    chain: usize,
    packet: Packet,
    verdict: Verdict,
    leaves: Option<Vec<u8>>,
}

/// Decides packets of one chain, as one burst. Returns verdicts, and what leaves in place of packets.
fn decide(filter: &mut dyn Filter, run: &[Passed]) -> Vec<(Verdict, Option<Vec<u8>>)> {
    let mut decided = Vec::new();
    for set in crate::engines::frame_sets(run.iter().map(|passed| &passed.packet)) {
        for burst in set.bursts() {
            let mut verdicts = [Verdict(u32::MAX); weir_abi::BURST_MAX];
            let verdicts = &mut verdicts[..burst.len()];
            filter.decide(run[0].chain, &burst, verdicts).expect("it decides");
            let first = decided.len();
            decided.extend(verdicts.iter().map(|&verdict| (verdict, None)));
            filter.rewritten(&burst, verdicts, &mut |index, bytes, _| decided[first + index].1 = Some(bytes.to_vec()));
        }
    }
    decided
}

/// Runs the packets of a case through a compiled policy, one by one and in bursts. Returns the differences to the
/// interpreter.
fn run_compiled(policy: &Policy, filter: &mut dyn Filter, empty: &dyn Fn(), passed: &[Passed]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (how, together) in [("one by one", false), ("in bursts", true)] {
        empty();
        let runs = passed.chunk_by(|one, next| together && one.chain == next.chain);
        let decided: Vec<_> = runs.flat_map(|run| decide(filter, run)).collect();
        for (nth, (passed, (verdict, leaves))) in passed.iter().zip(decided).enumerate() {
            if (passed.verdict, &passed.leaves) != (verdict, &leaves) {
                let (is, should) = (shown(policy, verdict), shown(policy, passed.verdict));
                wrong.push(format!(
                    "{how}, packet {nth}: {} is {is}, not {should}, and leaves as\n    {leaves:02x?}, not\n    {:02x?}",
                    passed.packet, passed.leaves
                ));
            }
        }
    }
    wrong
}

/// Runs a line of a case. Adds its packet to those that have passed. Returns the differences to what is expected.
fn run_line(
    policy: &Policy,
    filter: &mut EvalFilter<'_>,
    (line, carrier): (&str, Carrier),
    cookie: &mut Cookie,
    time_ns: &mut u64,
    passed: &mut Vec<Passed>,
) -> Vec<String> {
    let (delay, rest) = line.split_once(' ').expect("a time and a packet");
    let seconds: f64 = delay.parse().expect("a time such as +0.1");
    *time_ns += (seconds * 1e9) as u64;
    let (packet, expected) = rest.split_once(" : ").expect("a state after ` : `");
    let (way, text) = packet.trim().split_once(' ').expect("a direction and a packet");
    let is_upstream = way == ">";
    let text = cookie.filled(text.trim());
    let full = if text.starts_with("ip ") { text } else { segment(is_upstream, &text).expect("a segment") };
    let packet = notation::packet(&carrier.text(&full)).unwrap_or_else(|error| panic!("{line}: {}", error.message));
    let link = crate::engines::link_of(packet.link);
    let direction = if is_upstream { Direction::Upstream } else { Direction::Downstream };
    let chain = policy.program.chain(None, direction).expect("both directions have rules");
    let set = FrameSet::new(link, [(packet.bytes.as_slice(), packet.wire)]).with_times([*time_ns]);
    let mut verdicts = [Verdict(u32::MAX); weir_abi::BURST_MAX];
    let burst = set.bursts().next().expect("one packet");
    filter.decide(chain, &burst, &mut verdicts).expect("it decides");
    let mut leaves = String::new();
    let verdict = verdicts[0];
    let mut bytes_left = None;
    filter.rewritten(&burst, &verdicts, &mut |_, bytes, _| {
        bytes_left = Some(bytes.to_vec());
        let is_reply = verdict.action() == Some(Action::Reply);
        check_ends(&packet.bytes, bytes, link, is_reply);
        let arrow = if is_reply { "<=" } else { "=>" };
        leaves = format!("{arrow} {}", described(bytes, link, cookie, is_reply));
    });
    assert_eq!(verdict.rewritten(), !leaves.is_empty());
    let (bytes, wire) = (packet.bytes.clone(), packet.wire);
    let packet = Packet { bytes, wire, link: packet.link, time_ns: *time_ns };
    passed.push(Passed { chain, packet, verdict, leaves: bytes_left });
    let (state, flows, expected) = expectation(expected);
    let now = states(policy, filter, *time_ns).join(",");
    let now = if now.is_empty() { "none".to_owned() } else { now };
    let mut wrong = Vec::new();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (what, is, should) in [
        ("state", shown(policy, verdict), state),
        ("leaves", leaves, &words(expected)),
        ("flows", now, flows.unwrap_or("")),
    ] {
        if is != should && (what != "flows" || flows.is_some()) {
            wrong.push(format!("{line}\n    {what}: {is}"));
        }
    }
    wrong
}

/// Checks the addresses, ports and tags of what leaves.
fn check_ends(received: &[u8], leaves: &[u8], link: Link, is_reply: bool) {
    let ends = |bytes: &[u8]| {
        let (packet, _) = parse(Frame { bytes, wire_len: bytes.len() as u32, link, time_ns: 0 });
        let source = (packet.saddr, packet.sport);
        (packet.vlan.clone(), source, (packet.daddr, packet.dport), packet.l3)
    };
    let (vlan, source, destination, l3) = ends(received);
    let expected = if is_reply { (vlan, destination, source, l3) } else { (vlan, source, destination, l3) };
    assert_eq!(ends(leaves), expected);
    if link == Link::Ethernet {
        let macs = if is_reply { [&received[6..12], &received[..6]].concat() } else { received[..12].to_vec() };
        assert_eq!(leaves[..12], macs);
    }
    assert!(leaves.len() <= received.len() + 8, "a packet grows by 8 bytes at most");
}

/// An ICMP error about a segment of the server quotes what its client has seen. The server gets its own number.
#[test]
fn errors_quote_what_the_server_has_sent() {
    let settings = vec!["synproxy mss 1460".to_owned(), "pickup off".to_owned()];
    let policy = policy(&Script { settings, rules: vec![], cases: vec![] });
    let mut filter = EvalFilter::new(&policy.program, policy.answers());
    let (mut cookie, mut time_ns) = (Cookie::default(), START_NS);
    let lines = [
        "+0 > S seq=100 window=64240 : syn-cookie <= SA seq=C ack=101 win=0 mss=1460",
        "+0 > A seq=101 ack=C+1 window=64240 : new => S seq=100 win=64240 mss=536",
        "+0 < SA seq=7000 ack=101 window=65160 : established => A seq=C ack=101 win=65160 / 1",
        "+0 > A seq=101 ack=C+1 window=64240 : established => A seq=101 ack=7001 win=64240",
        "+0 < A seq=7001 ack=101 window=65160 / payload 9 : established => A seq=C+1 ack=101 win=65160 / 9",
    ];
    for line in lines {
        let line = (line, Carrier::Ipv4);
        assert_eq!(run_line(&policy, &mut filter, line, &mut cookie, &mut time_ns, &mut vec![]), [""; 0]);
    }
    for (seq, passes) in [(cookie.number + 1, true), (cookie.number + 500_000, false)] {
        let mut quote =
            vec![0x45, 0, 0, 49, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 51, 100, 1, 192, 0, 2, 1, 0, 80, 0x9c, 0x40];
        quote.extend(seq.to_be_bytes());
        let hex: String = quote.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("ip saddr=203.0.113.1 daddr=198.51.100.1 / icmp type=3 code=4 / raw {hex}");
        let packet = notation::packet(&text).unwrap_or_else(|error| panic!("{}", error.message));
        let set = FrameSet::new(Link::RawIp, [(packet.bytes.as_slice(), packet.wire)]).with_times([time_ns]);
        let mut verdicts = [Verdict(u32::MAX); weir_abi::BURST_MAX];
        let chain = policy.program.chain(None, Direction::Upstream).expect("there are rules");
        let burst = set.burst(0);
        filter.decide(chain, &burst, &mut verdicts).expect("it decides");
        assert_eq!(shown(&policy, verdicts[0]), if passes { "related" } else { "out-of-window" });
        assert_eq!(verdicts[0].rewritten(), passes);
        filter.rewritten(&burst, &verdicts, &mut |_, bytes, _| {
            assert_eq!(sum(&bytes[20..]), 0xffff, "the checksum of the error");
            assert_eq!(be32(&bytes[52..]), 7001);
            assert_eq!(bytes[..22], packet.bytes[..22]);
            assert_eq!(bytes[24..52], packet.bytes[24..52]);
        });
    }
}

/// A SYN from or to a multicast group, from the unspecified address, or from its own destination is refused (RFC 9293,
/// MUST-57 and MUST-63).
#[test]
fn syns_that_no_host_answers_are_dropped() {
    let settings = vec!["synproxy mss 1460".to_owned(), "pickup off".to_owned()];
    let policy = policy(&Script { settings, rules: vec![], cases: vec![] });
    let ends = |source: &str, destination: &str| format!("ip saddr={source} daddr={destination}");
    let ends6 = |source: &str, destination: &str| format!("ip6 saddr={source} daddr={destination}");
    let (host, host6) = ("192.0.2.1", "2001:db8::1");
    let refused = [
        ["0.0.0.0", "255.255.255.255", "224.0.0.1", "239.255.255.255", host].map(|end| ends(end, host)),
        ["0.0.0.0", "255.255.255.255", "224.0.0.1", "239.255.255.255", host].map(|end| ends(host, end)),
        ["::", "ff02::1", "ff00::", "ffff::1", host6].map(|end| ends6(end, host6)),
        ["::", "ff02::1", "ff00::", "ffff::1", host6].map(|end| ends6(host6, end)),
    ];
    let answered = [
        ["0.0.0.1", "255.255.255.254", "223.255.255.255", "240.0.0.0"].map(|end| ends(end, host)),
        ["::1", "fe80::1", "feff::", "::ffff:ffff"].map(|end| ends6(end, host6)),
    ];
    let tcp = "tcp sport=1 dport=80 flags=syn";
    let group = "01:00:5e:00:00:01";
    let mut texts: Vec<(String, &str)> = Vec::new();
    for (all, verdict) in [(refused.concat(), "no-state"), (answered.concat(), "syn-cookie")] {
        for ip in all {
            texts.push((format!("{ip} / {tcp}"), verdict));
            texts.push((format!("eth / vlan id=7 / {ip} / {tcp}"), verdict));
        }
    }
    for link in [format!("dst={group}"), format!("src={group}"), "dst=ff:ff:ff:ff:ff:ff".to_owned()] {
        texts.push((format!("eth {link} / {} / {tcp}", ends(host, "192.0.2.2")), "no-state"));
    }
    let chain = policy.program.chain(None, Direction::Upstream).expect("there are rules");
    let mut native = policy.native().expect("it compiles");
    let mut xdp = policy.xdp().expect("it loads");
    let mut reference = EvalFilter::new(&policy.program, policy.answers());
    for (text, expected) in texts {
        let packet = notation::packet(&text).unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let packet = Packet { time_ns: START_NS, ..packet };
        let run = [Passed { chain, packet, verdict: Verdict(0), leaves: None }];
        let filters: [(&str, &mut dyn Filter); 3] =
            [("reference", &mut reference), ("native", &mut native), ("xdp", &mut xdp)];
        for (engine, filter) in filters {
            let (verdict, leaves) = decide(filter, &run).remove(0);
            assert_eq!(shown(&policy, verdict), expected, "{engine}: {text}");
            assert_eq!(leaves.is_some(), expected == "syn-cookie", "{engine}: {text}");
        }
    }
}

#[test]
fn the_proxy_does_what_scripts_say() {
    let mut paths: Vec<_> = std::fs::read_dir(root().join("tests/tracking/proxy"))
        .expect("the folder exists")
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    let mut wrong = Vec::new();
    let mut cases = 0;
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a script can be read");
        let lines: Vec<&str> = text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).collect();
        let of = |word: &str| {
            let lines = lines.iter().filter_map(|line| line.strip_prefix(word));
            lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        let no_cases: Vec<Case> = vec![];
        let policy = policy(&Script { settings: of("tracking "), rules: of("rule "), cases: no_cases });
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut native = policy.native().unwrap_or_else(|error| panic!("{name}: {error}"));
        let native_flows = native.flow_table().expect("it tracks").clone();
        let mut xdp = policy.xdp().unwrap_or_else(|error| panic!("{name}: {error}"));
        let xdp_flows = xdp.flow_table().expect("it tracks").clone();
        for carrier in [Carrier::Ipv4, Carrier::Ethernet, Carrier::Ipv6, Carrier::Vlan, Carrier::Options] {
            // The lines before the first case are the settings.
            for case in lines.split(|line| line.starts_with("case ")).skip(1) {
                let mut filter = EvalFilter::new(&policy.program, policy.answers());
                let (mut cookie, mut time_ns, mut passed) = (Cookie::default(), START_NS, Vec::new());
                let mut differences = Vec::new();
                for line in case.iter().filter(|line| line.starts_with('+')) {
                    let line = (*line, carrier);
                    differences.extend(run_line(&policy, &mut filter, line, &mut cookie, &mut time_ns, &mut passed));
                }
                assert!(!passed.is_empty(), "{name}: a case without packets");
                let by_native = run_compiled(&policy, &mut native, &|| native_flows.clear(), &passed);
                differences.extend(by_native.iter().map(|difference| format!("native, {difference}")));
                let by_xdp = run_compiled(&policy, &mut xdp, &|| xdp_flows.clear(), &passed);
                differences.extend(by_xdp.iter().map(|difference| format!("xdp, {difference}")));
                wrong.extend(differences.iter().map(|d| format!("{name} ({carrier:?}): {}\n  {d}", case[0])));
                cases += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases >= 5 * 20, "only {cases} cases");
}
