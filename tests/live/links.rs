//! The state of interfaces in the status, and what the log says of links and MTUs that change.

use crate::device_under_test::Running;
use crate::hosts::{Hosts, Wires};
use crate::traffic::{Listener, frames, send};
use crate::{check_account, put};
use std::path::Path;
use std::time::Duration;
use weir_abi::verdict::Sampled;
use weir_abi::{Action, Reason, Verdict};
use weir_control::{InterfaceStatus, LinkState};
use weir_engine::live::afxdp::AfXdpLane;
use weir_engine::live::{Interfaces, Lane, PortReading, Side};

const ALL: &str = "upstream { accept }\ndownstream { accept }\n";

/// The state of the interface of a side.
fn state(running: &Running, side: &str) -> InterfaceStatus {
    let found = running.status().interfaces.into_iter().find(|one| one.side == side);
    found.unwrap_or_else(|| panic!("no {side} interface has a state: {}", running.log()))
}

each_engine!(a_link_that_is_down_is_in_the_status_and_in_the_log);
fn a_link_that_is_down_is_in_the_status_and_in_the_log(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 2);
    assert_eq!([state(&running, "lower").state, state(&running, "upper").state], [LinkState::Up; 2], "{engine}");
    let named = |what: &str| {
        let name = if engine == "dpdk" { "net_af_packet_upper" } else { "upper" };
        format!("weir: {name} {what}")
    };
    let steps = [
        (&hosts.server, "s", "down", LinkState::NoLink, "has no link: its other end is missing or down"),
        (&hosts.server, "s", "up", LinkState::Up, "is up again"),
        (&hosts.weir, "upper", "down", LinkState::Down, "was taken down"),
        (&hosts.weir, "upper", "up", LinkState::Up, "is up again"),
    ];
    for (at, (host, interface, to, expected, said)) in steps.into_iter().enumerate() {
        let before = running.log().matches(&named(said)).count();
        host.ip(&format!("link set dev {interface} {to}"));
        running.wait_until("the log says it", |running| running.log().matches(&named(said)).count() == before + 1);
        assert_eq!(state(&running, "upper").state, expected, "{engine}, step {at}");
        assert_eq!(state(&running, "lower").state, LinkState::Up, "{engine}, step {at}");
    }
    assert_eq!(running.stop(), 0);
}

each_kernel_engine!(
    an_mtu_that_is_raised_is_said_and_loses_nothing_in_silence,
    Wires { mtu: 1500, ..Wires::default() }
);
fn an_mtu_that_is_raised_is_said_and_loses_nothing_in_silence(engine: &str, hosts: &Hosts, folder: &Path) {
    // A program without fragments makes veth refuse a longer MTU.
    let mtu = if engine == "xdp" { 3000 } else { 9000 };
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let of_client: &[(_, _)] = &[(&hosts.client, "c"), (&hosts.weir, "lower")];
    let of_server: &[(_, _)] = &[(&hosts.server, "s"), (&hosts.weir, "upper")];
    let raise = |ends: &[(&crate::hosts::Host, &str)]| {
        ends.iter().for_each(|(host, name)| host.ip(&format!("link set dev {name} mtu {mtu}")));
    };
    raise(of_client);
    running.wait_until("the log says it", |running| {
        running.log().contains(&format!("weir: lower has MTU {mtu} (before: 1500): packets of more than 1500 bytes"))
    });
    let lower = state(&running, "lower");
    assert_eq!((lower.mtu, state(&running, "upper").mtu), (Some(mtu), Some(1500)), "{engine}");
    assert!(lower.problem.is_some_and(|problem| problem.contains("the MTU of upper")), "{engine}");

    let long = frames(&format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp dport=9 / payload {}\n", mtu - 28));
    assert_eq!(long[0].len(), mtu as usize + 14);
    let sent: Vec<Vec<u8>> = (0..20).flat_map(|_| long.clone()).collect();
    send(&hosts.client, "c", &sent);
    running.wait_until("the losses are in the status", |running| state(running, "upper").too_long == 20);
    running.wait_until("and in the log", |running| running.log().contains("weir: upper: "));
    let stats = running.settled();
    let upper = stats.interfaces.iter().find(|one| one.side == "upper").expect("there is one");
    assert_eq!((upper.tx_packets, upper.tx_dropped.tx_too_long), (0, 20), "{engine}");

    raise(of_server);
    running.wait_until("the log says it", |running| {
        running.log().lines().any(|line| line == format!("weir: lower has MTU {mtu}"))
    });
    assert_eq!([state(&running, "lower").problem, state(&running, "upper").problem], [None, None], "{engine}");
    let received = Listener::at(&hosts.server, "s");
    send(&hosts.client, "c", &sent);
    assert_eq!(received.received(sent.len()), sent, "{engine}: {}", running.log());
    check_account(&running.settled());
    assert_eq!(state(&running, "upper").too_long, 20, "{engine}");
    assert_eq!(running.stop(), 0);
}

/// Receives on the lower side of a lane until its port has received and lost so many packets together. Returns its
/// counts.
fn receive(lane: &mut AfXdpLane, packets: u64) -> PortReading {
    loop {
        let count = lane.receive(Side::Lower).expect("the interface is there").frames().len();
        let accept = Verdict::new(Action::Accept, Reason::rule(0), Sampled::No);
        lane.dispatch(&vec![accept; count], &[]).expect("the interface is there");
        let reading = lane.ports()[0].read();
        if reading.rx_packets + reading.rx_missed + reading.rx_too_long >= packets {
            return reading;
        }
        lane.wait(Duration::from_millis(1)).expect("the interface is there");
    }
}

/// Before Linux 6.6 a packet takes one frame. Packets that are longer are counted as such, not as missed.
#[test]
fn packets_that_no_frame_of_afxdp_takes_are_counted() {
    let hosts = Hosts::with(Wires { mtu: 1500, queues: 1, ..Wires::default() });
    let mut lane = hosts.weir.run(|| {
        let one = |name: &str| vec![name.to_owned()];
        let interfaces = Interfaces { lower: one("lower"), upper: one("upper"), divert: None };
        let lanes = AfXdpLane::open_with_one_frame(&interfaces, 1).expect("the interfaces are there");
        lanes.into_iter().next().expect("a lane for each worker")
    });
    let nature = lane.ports()[0].nature;
    let longest = nature.longest.expect("it has a limit");
    for (host, name) in [(&hosts.client, "c"), (&hosts.weir, "lower"), (&hosts.weir, "upper"), (&hosts.server, "s")] {
        host.ip(&format!("link set dev {name} mtu 9000"));
    }
    let of_length = |length: u32| {
        frames(&format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp dport=9 / payload {}\n", length - 42)).remove(0)
    };
    let sent: Vec<Vec<u8>> = (0..20).flat_map(|_| [60, longest, longest + 1, 9014]).map(of_length).collect();
    send(&hosts.client, "c", &sent);
    let reading = receive(&mut lane, sent.len() as u64);
    assert_eq!((reading.rx_packets, reading.rx_too_long, reading.rx_missed), (40, 40, 0), "{reading:?}");
    // The lane receives as before.
    send(&hosts.client, "c", &[of_length(60)]);
    let reading = receive(&mut lane, sent.len() as u64 + 1);
    assert_eq!((reading.rx_packets, reading.rx_too_long, reading.rx_missed), (41, 40, 0), "{reading:?}");
}
