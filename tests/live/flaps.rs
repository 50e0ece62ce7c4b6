//! Links that go and come back: packets flow again at once, and each that did not is accounted for.

use crate::box_under_test::Running;
use crate::hosts::{Flags, Wires};
use crate::traffic::{flows, send};
use crate::{check_account, each_kernel_engine_with, put};
use std::thread;
use std::time::Duration;
use weir::run::stats::{InterfaceStats, Stats};

const ALL: &str = "upstream { accept }\ndownstream { accept }\n";

/// How long after its link is up an interface may be taken to be down (docs/live.md): the engines need a fifth of it, the rest is for a machine
/// that has no time for them.
const BOUND: Duration = Duration::from_millis(100);

fn port<'a>(stats: &'a Stats, side: &str) -> &'a InterfaceStats {
    stats.interfaces.iter().find(|port| port.side == side).expect("there is one")
}

/// The flags of an interface follow its wire up to a second late; a flood's packets must not wait for that.
#[test]
fn a_link_that_is_up_again_carries_at_once() {
    const TIMES: usize = 3;
    each_kernel_engine_with(Wires { flags: Flags::Late, ..Wires::default() }, |engine, hosts, folder| {
        put(folder, "all.weir", ALL);
        let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
        let sent = flows(100, 2, 9);
        for (host, interface) in [(&hosts.weir, "upper"), (&hosts.server, "s")] {
            for time in 0..TIMES {
                host.ip(&format!("link set dev {interface} down"));
                let lost = port(&running.stats(), "upper").tx_dropped.link_down;
                send(&hosts.client, "c", &sent);
                running.wait_for("they are lost", |stats| port(stats, "upper").tx_dropped.link_down > lost);
                // Not asked for again: the kernel brings the flags up to date for who asks.
                host.ip(&format!("link set dev {interface} up"));
                thread::sleep(BOUND);
                let before = running.settled();
                send(&hosts.client, "c", &sent);
                let all = before.upstream.total.packets + sent.len() as u64;
                running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
                let stats = running.settled();
                let (before, after) = (port(&before, "upper"), port(&stats, "upper"));
                assert_eq!(after.tx_dropped.link_down, before.tx_dropped.link_down, "{engine}, {interface}, {time}");
                assert_eq!(after.tx_packets, before.tx_packets + sent.len() as u64, "{engine}, {interface}, {time}");
                check_account(&stats);
            }
        }
        assert_eq!(running.stop(), 0);
    });
}
