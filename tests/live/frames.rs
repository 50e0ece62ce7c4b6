//! Passed packets are unchanged, and the others are counted in agreement with the interpreter.

use crate::device_under_test::{Running, Setup};
use crate::hosts::{Hosts, Wires};
use crate::traffic::{Listener, frames, interpreted, send, send_on_queue};
use crate::{check_account, counted, put};
use std::path::Path;

/// One packet of each kind. Most kinds occur in the networks of providers.
const KINDS: &str = "
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 ttl=1 / udp sport=5 dport=53 / payload 11
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 ttl=0 tos=0xfc / tcp dport=443 flags=syn
eth src=02:11:22:33:44:55 dst=01:00:5e:00:00:01 / ip daddr=224.0.0.1 / udp dport=9
eth dst=ff:ff:ff:ff:ff:ff / ip daddr=255.255.255.255 / udp sport=68 dport=67 / payload 300
eth / vlan id=100 pcp=5 / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp dport=53
eth / vlan id=4095 dei / ip / tcp dport=22
eth / vlan id=7 tpid=0x88a8 / vlan id=100 / ip / udp dport=53 / payload 64
eth / vlan id=1 tpid=0x9100 / vlan id=2 / vlan id=3 / ip6 / udp dport=53
eth / vlan / arp op=1
eth / ip6 saddr=2001:db8::1 daddr=2001:db8::2 hlim=1 tc=0xb8 flow=0xabcde / tcp dport=443 flags=syn
eth / ip6 saddr=2001:db8::1 daddr=ff02::1 / hbh / icmp6 type=130
eth dst=33:33:ff:00:00:02 / ip6 saddr=fe80::1 daddr=ff02::1:ff00:2 hlim=255 / icmp6 type=135 / payload 20
eth / ip6 saddr=2001:db8::1 daddr=2001:db8::2 / frag off=1480 nh=udp / payload 32
eth / ip saddr=10.9.0.1 off=1480 mf / payload 64
eth / ip options=94040000 / udp dport=53
eth / arp op=1 saddr=10.9.0.7 daddr=10.9.0.8
eth / arp op=2 saddr=10.9.0.7 daddr=10.9.0.8
eth type=0x88cc / raw 020704020000000001040704020000000001060200780000
eth dst=01:80:c2:00:00:00 type=0x0027 / raw 424203000000000000000000
eth type=0x8863 / raw 11090000
eth type=0x0800
eth type=0x0800 / raw 45
eth type=0x86dd / raw 6000000000
eth type=0x8100 / raw 000000000000
eth / ip ihl=4 / udp
eth / ip len=19 / udp
eth / ip len=4000 / udp dport=53
eth / ip sum=0 / udp sum=1 dport=53
eth / ip / tcp doff=15 dport=443
eth / ip / udp len=4 dport=53
eth / ip / udp dport=53 / payload 5 / pad 13
";

const OPEN: &str =
    "defaults { malformed accept; arp accept; not-ip accept }\nupstream { accept }\ndownstream { accept }\n";
const STRICT: &str = "
defaults { malformed drop; arp drop; not-ip drop; fragment drop; ip-options drop; no-match drop }
upstream { ip ttl < 2 counter accept; vlan id 100 accept; udp dport 53 accept; ip6 saddr 2001:db8::/32 accept }
downstream { icmpv6 type 135 accept; tcp dport { 22, 443 } drop; accept }
";
const MIDDLE: &str = "
defaults { malformed drop; arp accept; not-ip drop; fragment rules; ip-options accept; no-match drop }
upstream { udp dport 53 drop; ip6 hoplimit 255 accept; vlan id 4095 accept; meta length > 300 accept }
downstream { accept }
";

/// Random frames, some of them after a valid header; always the same ones.
fn garbage(count: usize) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let whole = frames(
        "eth / vlan id=3 / ip6 / frag off=0 mf / hbh / tcp / payload 40\neth / ip options=0101 / tcp / payload 30\n",
    );
    let one = |number: usize| {
        let mut frame = whole[number % 2].clone();
        let length = 14 + next() as usize % (frame.len() - 13);
        frame.truncate(length);
        let from = if number.is_multiple_of(3) { 12 } else { length.min(18 + next() as usize % 40) };
        frame[from..].iter_mut().for_each(|byte| *byte ^= (next() % 7 == 0) as u8 * next() as u8);
        frame
    };
    // The kernel discards a tag without its contents before raw sockets see it. No real network carries one, because
    // frames have at least 60 bytes.
    let is_cut = |frame: &Vec<u8>| matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]) && frame.len() < 20;
    (0..count).map(one).filter(|frame| !is_cut(frame)).collect()
}

/// The frames that pass according to the interpreter.
fn passing(verdicts: &[String], frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let both = verdicts.iter().zip(frames);
    both.filter(|(verdict, _)| *verdict == "accept").map(|(_, frame)| frame.clone()).collect()
}

each_kernel_engine!(what_passes_is_untouched_and_the_rest_is_counted, Wires { queues: 1, ..Wires::default() });
fn what_passes_is_untouched_and_the_rest_is_counted(engine: &str, hosts: &Hosts, folder: &Path) {
    for (name, text) in [("open.weir", OPEN), ("strict.weir", STRICT), ("middle.weir", MIDDLE)] {
        put(folder, name, text);
        let mut sent = frames(KINDS);
        sent.extend(garbage(300));
        sent.extend(frames(KINDS));
        let running = Running::start(&hosts.weir, folder, name, engine, 1);
        let ends = [(&hosts.client, "c"), (&hosts.server, "s")];
        let [at_client, at_server] = ends.map(|(host, interface)| Listener::at(host, interface));
        ends.iter().for_each(|(host, interface)| send(host, interface, &sent));
        let all = 2 * sent.len() as u64;
        running
            .wait_for("all are counted", |stats| stats.upstream.total.packets + stats.downstream.total.packets >= all);
        let stats = running.settled();
        check_account(&stats);
        for (direction, counted_live, listener) in
            [("upstream", &stats.upstream, at_server), ("downstream", &stats.downstream, at_client)]
        {
            let (verdicts, replayed) = interpreted(folder, name, direction, &sent);
            let live = serde_json::to_value(counted_live).expect("stats are JSON");
            assert_eq!(counted(&live), counted(&replayed), "{engine}, {name}, {direction}");
            let expected = passing(&verdicts, &sent);
            check_same(&format!("{engine}, {name}, {direction}"), &listener.received(expected.len()), &expected);
        }
        assert_eq!(running.stop(), 0);
    }
}

/// Checks for the same frames in the same order.
fn check_same(what: &str, received: &[Vec<u8>], expected: &[Vec<u8>]) {
    for (at, (received, expected)) in received.iter().zip(expected).enumerate() {
        assert_eq!(received, expected, "{what}: frame {at}");
    }
    assert_eq!(received.len(), expected.len(), "{what}");
}

/// UDP frames with these payload lengths.
fn of_lengths(dport: u16, lengths: &[usize]) -> Vec<Vec<u8>> {
    let frame = |&length: &usize| {
        let payload = length - 42;
        format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp dport={dport} / payload {payload}\n")
    };
    frames(&lengths.iter().map(frame).collect::<String>())
}

each_engine!(jumbo_frames_pass_whole, Wires { mtu: 9000, queues: 1, divert: 1, ..Wires::default() });
fn jumbo_frames_pass_whole(engine: &str, hosts: &Hosts, folder: &Path) {
    const LENGTHS: [usize; 9] = [60, 1514, 3839, 3840, 3841, 7680, 7681, 9000, 9014];
    let policy = "upstream { udp dport 1 accept; udp dport 2 divert; udp dport 3 sample 1/1 accept; drop }\ndownstream { accept }\n";
    put(folder, "long.weir", policy);
    let divert = Some("divert".to_owned());
    let running = Running::start_as(&hosts.weir, folder, "long.weir", &Setup { divert, ..Setup::new(engine) });
    let access = running.status().access.concat();
    assert!(engine != "afxdp" || access.contains("several buffers per packet"), "{access}");
    let at_server = Listener::at(&hosts.server, "s");
    let at_analyser = Listener::at(&hosts.analyser, "d");
    let by_port = [1, 2, 3, 4].map(|dport| of_lengths(dport, &LENGTHS));
    let tagged = frames("eth / vlan id=5 / ip / udp dport=1 / payload 8972\n");
    assert_eq!(tagged[0].len(), 9018);
    for _ in 0..20 {
        by_port.iter().for_each(|frames| send(&hosts.client, "c", frames));
        send(&hosts.client, "c", &tagged);
    }
    let sent = 20 * (4 * LENGTHS.len() as u64 + 1);
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent);
    let stats = running.settled();
    check_account(&stats);
    let repeat =
        |frames: Vec<&[Vec<u8>]>| -> Vec<Vec<u8>> { std::iter::repeat_n(frames.concat(), 20).flatten().collect() };
    let [accepted, diverted, sampled, _] = &by_port;
    let expected = repeat(vec![accepted, sampled, &tagged]);
    check_same(engine, &at_server.received(expected.len()), &expected);
    // The kernel cannot copy packets in several buffers.
    let copied = if engine == "xdp" { &sampled[..2] } else { &sampled[..] };
    let expected = repeat(vec![diverted, copied]);
    check_same(engine, &at_analyser.received(expected.len()), &expected);
    let divert = stats.interfaces.iter().find(|port| port.side == "divert").expect("there is one");
    let not_copied = 20 * (sampled.len() - copied.len()) as u64;
    assert_eq!(divert.tx_dropped.tx_too_long, not_copied, "{engine}");
    assert_eq!(running.stop(), 0);
}

/// Headers around byte 2048 of a frame, where the window ends: before it, across it, and after it.
fn around_the_window() -> Vec<Vec<u8>> {
    const TCP: &str = "0001005000000000000000005002000000000000";
    const UDP: &str = "0001005000080000";
    let mut text = String::new();
    // A header of destination options with `units` additional units of 8 bytes, followed by TCP, UDP, ESP, nothing,
    // SCTP, or an unknown protocol.
    for units in 0xf4..=0xff {
        for (next, header) in [("06", TCP), ("11", UDP), ("32", ""), ("3b", ""), ("84", UDP), ("fd", "")] {
            let options = (units + 1) * 8 - 2;
            text += &format!(
                "eth / ip6 nh=dst / raw {next}{units:02x} / payload {options} / raw {header} / payload 6800\n"
            );
            text += &format!("eth / ip6 nh=dst / raw {next}{units:02x} / payload {options} / raw {header}\n");
        }
    }
    // Two headers of options, the second one far behind the window and in several buffers.
    for (first, second) in [("f8", "00"), ("f9", "ff"), ("ff", "ff"), ("10", "ff")] {
        let options = |units: &str| usize::from_str_radix(units, 16).expect("a number") * 8 + 6;
        let (one, two) = (options(first), options(second));
        text += &format!(
            "eth / ip6 nh=dst / raw 3c{first} / payload {one} / raw 06{second} / payload {two} / raw {TCP} / payload 4000\n"
        );
    }
    frames(&text)
}

each_engine_and_p4!(headers_across_the_window_are_judged_alike, Wires { mtu: 9000, queues: 1, ..Wires::default() });
fn headers_across_the_window_are_judged_alike(engine: &str, hosts: &Hosts, folder: &Path) {
    const POLICY: &str = "upstream {
  @th,16,16 80 counter
  @th,0,8 0xff counter
  @th,56,16 != 0 counter
  @th,1024,128 != 0 counter
  tcp dport 80 accept
  udp dport 80 drop
  exthdr dst exists accept
}
downstream { accept }
";
    put(folder, "window.weir", POLICY);
    let sent = around_the_window();
    let (verdicts, replayed) = interpreted(folder, "window.weir", "upstream", &sent);
    let expected = passing(&verdicts, &sent);
    let running = Running::start(&hosts.weir, folder, "window.weir", engine, 1);
    let at_server = Listener::at(&hosts.server, "s");
    send(&hosts.client, "c", &sent);
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent.len() as u64);
    let stats = running.settled();
    check_account(&stats);
    let live = serde_json::to_value(&stats.upstream).expect("stats are JSON");
    assert_eq!(counted(&live), counted(&replayed), "{engine}");
    check_same(engine, &at_server.received(expected.len()), &expected);
    assert_eq!(running.stop(), 0);
}

each_engine_and_p4!(what_is_diverted_or_sampled_arrives_once, Wires { divert: 1, queues: 1, ..Wires::default() });
fn what_is_diverted_or_sampled_arrives_once(engine: &str, hosts: &Hosts, folder: &Path) {
    const POLICY: &str = "
upstream {
  udp dport 25 counter divert
  udp dport 53 sample 1/4 accept
  udp dport 54 sample 1/1 divert
  udp dport 55 sample 1/3 drop
  accept
}
downstream { udp dport 25 divert; accept }
";
    put(folder, "divert.weir", POLICY);
    let sent: Vec<Vec<u8>> =
        [25, 53, 54, 55, 56].iter().flat_map(|&dport| crate::traffic::flows(60, 1, dport)).collect();
    run_with_divert(engine, hosts, folder, &sent);
    run_without_divert(engine, hosts, folder, &sent);
}

/// All frames come from one core, because in the kernel each core has its own state for sampling.
fn run_with_divert(engine: &str, hosts: &Hosts, folder: &Path, sent: &[Vec<u8>]) {
    let divert = Some("divert".to_owned());
    let running = Running::start_as(&hosts.weir, folder, "divert.weir", &Setup { divert, ..Setup::new(engine) });
    let [at_server, at_client] =
        [(&hosts.server, "s"), (&hosts.client, "c")].map(|(host, name)| Listener::at(host, name));
    let at_analyser = Listener::at(&hosts.analyser, "d");
    send_on_queue(&hosts.client, "c", 0, sent);
    send_on_queue(&hosts.server, "s", 0, sent);
    running.wait_for("all are counted", |stats| {
        stats.upstream.total.packets + stats.downstream.total.packets >= 2 * sent.len() as u64
    });
    let stats = running.settled();
    check_account(&stats);
    let (verdicts, replayed) = interpreted(folder, "divert.weir", "upstream", sent);
    let (up, down) = (passing(&verdicts, sent), &sent[60..]);
    check_same(engine, &at_server.received(up.len()), &up);
    check_same(engine, &at_client.received(down.len()), down);
    // The interpreter's number of samples without the 60 that are diverted anyway.
    let samples = replayed["sampled"].as_u64().expect("a number") - 60;
    let received = at_analyser.received(180 + samples as usize);
    let port_of = |frame: &Vec<u8>| u16::from_be_bytes([frame[36], frame[37]]);
    let of_port = |port: u16| received.iter().filter(|frame| port_of(frame) == port).count();
    // Every frame that is diverted from either side arrives once.
    assert_eq!([25, 54].map(of_port), [120, 60], "{engine}");
    assert_eq!([53, 55].map(of_port).iter().sum::<usize>() as u64, samples, "{engine}");
    assert_eq!(received.len() as u64, 180 + samples, "{engine}");
    assert!(received.iter().all(|frame| sent.contains(frame)), "{engine}: they are what was sent");
    let port = |side: &str| stats.interfaces.iter().find(|port| port.side == side).expect("there is one");
    assert_eq!((port("lower").sampled, port("divert").tx_packets), (samples, 180 + samples), "{engine}");
    assert_eq!(running.stop(), 0);
}

fn run_without_divert(engine: &str, hosts: &Hosts, folder: &Path, sent: &[Vec<u8>]) {
    let running = Running::start(&hosts.weir, folder, "divert.weir", engine, 1);
    send_on_queue(&hosts.client, "c", 0, sent);
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent.len() as u64);
    let stats = running.settled();
    check_account(&stats);
    let lower = stats.interfaces.iter().find(|port| port.side == "lower").expect("there is one");
    assert_eq!((lower.tx_dropped.no_divert, lower.sampled), (120, 0), "{engine}");
    assert_eq!(running.stop(), 0);
}
