//! Limits of connections on interfaces: real connections of one client, also while the policy is swapped.

use crate::device_under_test::Running;
use crate::hosts::{CLIENT, Hosts, SERVER};
use crate::{check_account, put};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;
use weir_control::{FlowOperation, FlowsKilled, Request};

const PORT: u16 = 8000;
/// How long a client tries to open a connection that is refused.
const TRY: Duration = Duration::from_millis(300);

/// A policy that lets a client hold two connections.
fn policy(number: u64) -> String {
    format!(
        "tracking {{ size 4096; pickup off }}
upstream {{ tcp dport {} counter drop; tcp dport {PORT} limit each ip saddr connections 2 size 1024; tcp track; ct state established,related accept; ct state new tcp dport {PORT} accept; drop }}
downstream {{ tcp track; ct state established,related accept; drop }}
",
        100 + number
    )
}

/// Opens a connection, and returns both ends.
fn open(hosts: &Hosts, listener: &TcpListener) -> [TcpStream; 2] {
    let near = hosts.client.run(|| TcpStream::connect((SERVER, PORT)).expect("the policy accepts"));
    [near, listener.accept().expect("the client connects").0]
}

fn talk([near, far]: &mut [TcpStream; 2]) {
    let mut received = [0; 4];
    near.write_all(b"pass").expect("it is queued");
    far.read_exact(&mut received).expect("the connection stands");
    assert_eq!(&received, b"pass");
}

/// Tries to open one more connection. Each of its SYNs is refused.
fn refused(engine: &str, hosts: &Hosts, running: &Running) {
    let limited = |stats: &weir_control::Stats| stats.upstream.total.reasons.get("limit").copied().unwrap_or_default();
    let before = limited(&running.stats());
    let server = SocketAddr::from((SERVER, PORT));
    assert!(hosts.client.run(move || TcpStream::connect_timeout(&server, TRY).is_err()), "{engine}");
    running.wait_for("the SYN is refused", move |stats| limited(stats) > before);
}

each_engine_host_and_p4!(a_client_holds_as_many_connections_as_it_may);
fn a_client_holds_as_many_connections_as_it_may(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", &policy(0));
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    let listener = hosts.server.run(|| TcpListener::bind((SERVER, PORT)).expect("the server has the address"));
    let mut first = open(hosts, &listener);
    let mut second = open(hosts, &listener);
    refused(engine, hosts, &running);
    // The next policy knows the connections, and their number.
    put(folder, "next.weir", &policy(1));
    let generation = running.load(&folder.join("next.weir"));
    running.ask(&Request::Activate { generation, confirm_s: None }).expect("it can be activated");
    talk(&mut first);
    refused(engine, hosts, &running);
    talk(&mut second);
    // What the operator ends makes room, without a packet of it.
    let port = second[0].local_addr().expect("it is connected").port();
    let killed = running.ask(&Request::Flows {
        operation: FlowOperation::Kill { matches: format!("ip saddr {CLIENT} tcp sport {port}") },
    });
    let killed = weir_control::read::<FlowsKilled>(killed.expect("flows can be ended")).expect("a number");
    assert_eq!(killed, FlowsKilled { killed: 1 }, "{engine}");
    let mut third = open(hosts, &listener);
    refused(engine, hosts, &running);
    // A connection that both sides close makes room, too.
    drop(first);
    let mut fourth = open(hosts, &listener);
    talk(&mut third);
    talk(&mut fourth);
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}
