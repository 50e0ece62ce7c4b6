//! The example of a detector blocks a source that sends too much, and no other.

use crate::device_under_test::{Running, Setup};
use crate::hosts::{Hosts, Wires};
use crate::put;
use crate::traffic::{frames, send};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A program that ends with the test.
struct UntilEnd(Child);

impl Drop for UntilEnd {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

fn example(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/detector").join(name)
}

fn packets(source: &str, count: usize) -> Vec<Vec<u8>> {
    let one = format!("eth / ip saddr={source} daddr=10.9.0.2 / udp sport=1000 dport=9\n");
    frames(&one.repeat(count))
}

each_engine!(the_example_of_a_detector_blocks_who_sends_too_much, Wires { divert: 1, ..Wires::default() });
fn the_example_of_a_detector_blocks_who_sends_too_much(engine: &str, hosts: &Hosts, folder: &Path) {
    const LOUD: &str = "10.20.1.1";
    const QUIET: &str = "10.20.1.2";
    let policy = fs::read_to_string(example("detector.weir")).expect("the example is there");
    assert!(policy.contains("sample 1/100"));
    put(folder, "detector.weir", &policy.replace("sample 1/100", "sample 1/10"));
    let setup = Setup { workers: 2, divert: Some("divert".to_owned()), ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "detector.weir", &setup);
    let mut detector = hosts.analyser.run(|| {
        let mut command = Command::new("python3");
        command.arg(example("detector.py")).args(["d", "20"]).stdin(Stdio::null()).stdout(Stdio::piped());
        UntilEnd(command.spawn().unwrap_or_else(|error| panic!("python3: {error}; see scripts/install-deps.sh")))
    });
    let found = detector.0.stdout.take().expect("it is a pipe");
    let mut stream = Command::new(env!("CARGO_BIN_EXE_weir"));
    stream.args(["ctl", "--control"]).arg(running.control()).args(["table", "suspects", "stream"]);
    let _stream = UntilEnd(stream.stdin(found).stdout(Stdio::null()).spawn().expect("the program was built"));

    // The detector opens its socket meanwhile, so the first packets may not be seen.
    let mut sent = 0;
    let mut send_all = |source: &str, count: usize| {
        send(&hosts.client, "c", &packets(source, count));
        sent += count as u64;
        running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent).upstream.total.dropped
    };
    let mut rounds = 0;
    while send_all(LOUD, 100) == 0 {
        rounds += 1;
        assert!(rounds < 200, "{engine}: nothing was blocked: {}", running.log());
        thread::sleep(Duration::from_millis(10));
        send_all(QUIET, 10);
    }
    assert!(rounds >= 2, "{engine}: a few packets are allowed");
    let blocked = send_all(LOUD, 50);
    assert_eq!(send_all(LOUD, 50), blocked + 50, "{engine}: it is blocked");
    assert_eq!(send_all(QUIET, 50), blocked + 50, "{engine}: the other is not");

    let mut list = Command::new(env!("CARGO_BIN_EXE_weir"));
    list.args(["ctl", "--control"]).arg(running.control()).args(["table", "suspects", "list", "--json"]);
    let listed = list.output().expect("the program was built").stdout;
    let listed: serde_json::Value = serde_json::from_slice(&listed).expect("it prints JSON");
    let timeout = listed["entries"][0]["timeout_s"].as_f64().expect("it has a timeout");
    assert_eq!((&listed["total"], &listed["entries"][0]["entry"]), (&1.into(), &LOUD.into()), "{engine}");
    assert!((500.0..=600.0).contains(&timeout), "{engine}: {timeout}");
    assert_eq!(running.stop(), 0);
}
