//! A local user without rights cannot invent samples: no interface leads to the daemon's measurement.

use super::*;
use nix::sys::socket::{setsockopt, sockopt::BindToDevice};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use std::collections::BTreeSet;
use std::net::UdpSocket;

/// The user `nobody`.
const INTRUDER: u32 = 65_534;
/// Datagrams that the intruder sends out of each interface: a flood of ten seconds.
const FORGED: usize = 16_000;
/// Windows in which the daemon learns what is usual.
const PEACE_WINDOWS: u64 = 16;

/// The interfaces of the thread's network namespace.
fn interfaces() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").expect("every user may read it");
    table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// As a user without rights, sends datagrams for the server out of interfaces. Returns how many the kernel took.
fn forge(interfaces: BTreeSet<String>) -> usize {
    let user = Uid::from_raw(INTRUDER);
    set_thread_res_uid(user, user, user).expect("root may become anybody");
    let mut sent = 0;
    for interface in &interfaces {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("every user may have a socket");
        let Ok(()) = setsockopt(&socket, BindToDevice, &interface.into()) else { continue };
        for at in 0..FORGED {
            let port = 1024 + at * 31 % 50_000;
            sent += usize::from(socket.send_to(&[0; 400], (SERVER, port as u16)).is_ok());
            if at.is_multiple_of(BURST) {
                std::thread::sleep(PAUSE);
            }
        }
    }
    sent
}

each_engine_and_host!(a_local_user_cannot_invent_an_attack);
fn a_local_user_cannot_invent_an_attack(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let before = hosts.weir.run(interfaces);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "act"));
    let added: BTreeSet<String> = hosts.weir.run(interfaces).difference(&before).cloned().collect();
    // Before that, nothing is usual, and nothing an attack.
    running.wait_until("peace is known", |running| attacks(running).samples.windows >= PEACE_WINDOWS);
    let (targets, windows) = (added.clone(), attacks(&running).samples.windows);
    let sent = hosts.weir.start(move || forge(targets)).join().expect("the intruder does not fail");
    running.wait_until("what was sent is measured", |running| attacks(running).samples.windows >= windows + 3);
    let listed = attacks(&running);
    assert_eq!(listed.attacks, [], "{engine}: {sent} datagrams on {added:?}: {}", running.log());
    assert_eq!((listed.samples.seen, listed.samples.lost), (0, 0), "{engine}: {sent} datagrams on {added:?}");
    assert_eq!(added, BTreeSet::new(), "{engine}: interfaces that lead to mitigation");
    assert_eq!(slot_rules(&running), 0, "{engine}");
    assert_eq!(running.stop(), 0);
}
