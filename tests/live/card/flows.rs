//! Ports of DPDK whose drivers take flows (rte_flow). No virtual driver takes flows that count, so a library in front
//! of DPDK has them (tests/live/card/flows.c).

use super::running::{POLICY, arrive, counted_for_table, filled, frame, in_card, source, status};
use crate::device_under_test::{Running, Setup};
use crate::form;
use crate::hosts::{Hosts, Wires};
use crate::tables::done;
use crate::traffic::send;
use crate::{check_account, put};
use std::path::Path;
use std::process::Command;

/// Flows that the library has room for.
const FLOWS: usize = 8;

fn setup(port: &str) -> Setup {
    let card = format!("rte-flow:port={port},entries=100");
    let more = ["--card", &card, "--card-table", "bad,six", "--card-period", "100ms"];
    Setup { more: more.map(str::to_owned).to_vec(), ..Setup::new("dpdk") }
}

/// The words of a Weir that refuses to start.
fn refused(hosts: &Hosts, folder: &Path, setup: &Setup) -> String {
    let (code, said) = Running::refused_as(&hosts.weir, folder, "p.weir", setup);
    assert!(code != 0, "{said}");
    said
}

#[test]
fn a_port_without_flows_is_no_card() {
    let (hosts, folder) = (Hosts::with(Wires::default()), tempfile::tempdir().expect("a temporary folder"));
    put(folder.path(), "p.weir", POLICY);
    let said = refused(&hosts, folder.path(), &setup("net_af_packet_lower"));
    let driver = "its driver takes no flows that drop the packets of a source and count them (rte_flow)";
    assert!(said.contains(&format!("interface net_af_packet_lower: {driver}: ")), "{said}");
    let said = refused(&hosts, folder.path(), &setup("net_af_packet_upper"));
    assert!(said.contains("net_af_packet_upper: it is not a port of `--engine dpdk --lower`"), "{said}");
    // A ring, in place of the setup's ports.
    let mut ring = Command::new(env!("CARGO_BIN_EXE_weir"));
    ring.args(["run", "p.weir", "--engine", "dpdk", "--lower", "net_ring0", "--upper", "net_ring1"]);
    ring.args(["--eal", "--no-huge -m 1024 --no-pci --vdev=net_ring0 --vdev=net_ring1"]);
    ring.args(&setup("net_ring0").more);
    ring.current_dir(folder.path()).arg("--control").arg(folder.path().join("control.sock"));
    let output = hosts.weir.run(move || ring.output().expect("the program was built"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&format!("interface net_ring0: {driver}: ")), "{said}");
}

/// Compiles the library.
fn library(folder: &Path) -> String {
    let library = folder.join("flows.so");
    let flags = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output().expect("DPDK was built with it");
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/live/card/flows.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-march=corei7"]);
    compiler.args(flags.split_whitespace()).arg(source).arg("-o").arg(&library);
    assert!(compiler.status().expect("there is a compiler").success());
    library.display().to_string()
}

#[test]
fn the_flows_of_a_port_drop_the_fastest_sources_and_everything_is_counted() {
    let (hosts, folder) = (Hosts::with(Wires::default()), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "p.weir", POLICY);
    let environment = vec![("LD_PRELOAD".to_owned(), library(folder))];
    let setup = Setup { environment, ..setup("net_af_packet_lower") };
    // The library is no part of clang.
    form::compiled(&folder.join("p.weir"));
    let running = Running::start_as(&hosts.weir, folder, "p.weirb", &setup);
    // More sources than the card has room for: it says so.
    let (six, all) = ("2001:db8::66", (1..=12).map(source).collect::<Vec<_>>());
    done(&running, &format!("bad add {}", all.join(" ")));
    done(&running, &format!("six add {six}"));
    let once: Vec<Vec<u8>> = all.iter().map(String::as_str).chain([six]).map(frame).collect();
    let mut sent = 0;
    running.wait_until("the card is full", |running| {
        send(&hosts.client, "c", &once);
        sent += once.len() as u64;
        in_card(running).len() == FLOWS
    });
    let place = status(&running).places.remove(0);
    assert_eq!((place.capacity, place.entries), (FLOWS, FLOWS));
    for _ in 0..10 {
        send(&hosts.client, "c", &once);
        sent += once.len() as u64;
    }
    let dropped = |stats: &weir_control::Stats| {
        let rules = stats.upstream.total.rules.iter().filter(|rule| rule.rule.contains("@six"));
        counted_for_table(stats) + rules.map(|rule| rule.packets).sum::<u64>()
    };
    let stats = running.wait_for("all are counted", |stats| dropped(stats) >= sent);
    check_account(&stats);
    assert_eq!(dropped(&stats), sent, "{stats:#?}");
    let by_card = stats.card.as_ref().expect("there is a card").upstream.total;
    assert!(by_card.dropped >= 10 * (FLOWS as u64 - 1), "{by_card:?}");
    // What leaves the table leaves the card before the answer.
    let entry = in_card(&running).into_iter().find(|entry| !entry.contains(':')).expect("there is one");
    done(&running, &format!("bad del {entry}"));
    assert!(!in_card(&running).contains(&entry));
    assert_eq!(arrive(&hosts, &entry, 5), 5);
    done(&running, "bad flush");
    done(&running, "six flush");
    assert!(in_card(&running).is_empty());
    assert_eq!(arrive(&hosts, six, 5), 5);
    done(&running, &format!("six add {six}"));
    filled(&running, &hosts, &[six]);
    assert_eq!((arrive(&hosts, six, 0), running.stop()), (0, 0));
}
