//! The SYN proxy between real hosts: Linux is the client and the server, the interpreter decides each packet.
//!
//! ```text
//! client 10.9.0.1 (c) ---- (lower) bridge (upper) ---- (s) server 10.9.0.2
//!       fd09::1                                                   fd09::2
//! ```
//! The bridge forwards, replies and rewrites as the verdicts say. Nothing else connects both hosts. It proves that
//! Linux takes part: it answers the keep-alive, sends nothing before, and never notices the translation.

#[path = "synproxy/bridge.rs"]
mod bridge;
mod engines;
#[path = "live/hosts.rs"]
#[allow(dead_code, reason = "tests on interfaces use the rest")]
mod hosts;
#[path = "synproxy/talk.rs"]
mod talk;

use bridge::{Bridge, Lost};
use hosts::{Host, Hosts, SERVER};
use std::net::{IpAddr, Ipv6Addr};
use talk::{client_first, refused, serve, server_first};

/// Options of TCP that a host has: timestamps, selective acknowledgements, window scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options([bool; 3]);

const ALL: Options = Options([true, true, true]);
const NONE: Options = Options([false, false, false]);

impl Options {
    /// Sets the options of a host.
    fn set(self, host: &Host) {
        let names = ["tcp_timestamps", "tcp_sack", "tcp_window_scaling"];
        for (name, is_on) in names.into_iter().zip(self.0) {
            let path = format!("/proc/sys/net/ipv4/{name}");
            host.run(move || std::fs::write(path, if is_on { "1" } else { "0" }).expect("the host's own setting"));
        }
    }
}

/// The protocol under TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Ipv4,
    Ipv6,
}

const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);

impl Network {
    const BOTH: [Network; 2] = [Network::Ipv4, Network::Ipv6];

    /// Gives both hosts an address, and returns the address of the server.
    fn set_up(self, hosts: &Hosts) -> IpAddr {
        if self == Network::Ipv4 {
            return SERVER.into();
        }
        for (host, interface, address) in [(&hosts.client, "c", CLIENT6), (&hosts.server, "s", SERVER6)] {
            let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
            host.run(move || std::fs::write(path, "0").expect("the host's own setting"));
            host.ip(&format!("addr add {address}/64 dev {interface} nodad"));
        }
        SERVER6.into()
    }
}

/// What a policy says of a server.
fn offer(options: Options) -> &'static str {
    match options {
        Options([true, true, true]) => "wscale 7 sack-perm timestamp",
        Options([true, true, false]) => "sack-perm timestamp",
        Options([true, false, true]) => "wscale 7 timestamp",
        Options([true, false, false]) => "timestamp",
        Options([false, ..]) => "",
    }
}

/// What a client does, with its name.
type Talk = (&'static str, fn(IpAddr) -> std::io::Result<()>);

/// Lets hosts talk through a bridge.
fn talk_through(network: Network, client: Options, server: Options, offer: &str, lost: Lost) {
    let hosts = Hosts::new();
    let address = network.set_up(&hosts);
    client.set(&hosts.client);
    server.set(&hosts.server);
    let bridge = Bridge::start(&hosts.weir, offer, lost);
    serve(&hosts.server, address);
    let what = format!("{network:?}, client {client:?}, server {server:?}, {offer:?}, {lost:?}");
    let talks: &[Talk] = match lost {
        // This SYN is not sent again if the client has nothing to say.
        Lost::SynToServer => &[("client first", client_first)],
        _ => &[("client first", client_first), ("server first", server_first), ("refused", refused)],
    };
    for &(name, talk) in talks {
        hosts
            .client
            .run(move || talk(address))
            .unwrap_or_else(|error| panic!("{what}: {name}: {error}\n{}", bridge.said()));
    }
    let counts = bridge.stop();
    assert!(counts.replies as usize >= talks.len(), "{what}: each SYN was answered: {counts:?}");
    assert_eq!(counts.lost > 0, lost != Lost::Nothing, "{what}: {counts:?}");
    assert!(counts.translated >= 20, "{what}: {counts:?}");
    // What closed sockets get, and what a lost packet makes old.
    assert!(counts.dropped <= 20, "{what}: nothing real is dropped: {counts:?}");
}

#[test]
fn linux_talks_through_the_proxy_with_all_options() {
    for network in Network::BOTH {
        talk_through(network, ALL, ALL, offer(ALL), Lost::Nothing);
    }
}

#[test]
fn clients_lack_options() {
    let clients = [NONE, Options([true, false, false]), Options([true, true, false]), Options([false, true, true])];
    for (network, client) in Network::BOTH.into_iter().flat_map(|network| clients.map(|client| (network, client))) {
        talk_through(network, client, ALL, offer(ALL), Lost::Nothing);
    }
}

#[test]
fn servers_lack_options() {
    let servers = [NONE, Options([true, false, true]), Options([true, true, false])];
    for (network, server) in Network::BOTH.into_iter().flat_map(|network| servers.map(|server| (network, server))) {
        talk_through(network, ALL, server, offer(server), Lost::Nothing);
        // The policy promises more than the server has.
        talk_through(network, ALL, server, offer(ALL), Lost::Nothing);
    }
}

#[test]
fn each_packet_of_the_handshake_is_lost_once() {
    let each = [Lost::Syn, Lost::SynAck, Lost::SynToServer, Lost::SynAckOfServer, Lost::KeepAlive, Lost::AckToServer];
    for (network, lost) in Network::BOTH.into_iter().flat_map(|network| each.map(|lost| (network, lost))) {
        talk_through(network, ALL, ALL, offer(ALL), lost);
    }
}
