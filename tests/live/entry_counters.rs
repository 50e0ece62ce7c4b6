//! Tables with `counters`: packets and bytes of each entry, in order, by rate and by idle time.

use crate::device_under_test::Running;
use crate::hosts::Hosts;
use crate::put;
use crate::tables::{ctl, done, refused};
use crate::traffic::{StopOnDrop, frames, send};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_control::Request;

const POLICY: &str = "
table blocked { type ipv4; counters; elements = { 10.20.0.0/16, 10.20.1.1, 10.20.2.2 } }
table geo { type ipv4 : label; counters; elements = { 10.30.0.0/16 : AA, 10.31.0.0/16 : BB } }
table suspects { type ipv4; dynamic; counters }
table plain { type ipv4; elements = { 192.0.2.1 } }
upstream {
  ip saddr @blocked sample 1/1000000
  ip saddr @blocked drop
  ip saddr @geo { BB } drop
  ip saddr @suspects drop
  ip saddr @plain drop
  accept
}
downstream { accept }
";

/// Bytes of the test frames.
const BYTES: u64 = 60;
/// Time in which the last packets are counted at their entries.
const COUNTED_MAX: Duration = Duration::from_secs(5);

fn frame(source: &str) -> Vec<u8> {
    let text = format!("eth / ip saddr={source} daddr=10.9.0.2 / udp sport=1000 dport=9 / payload 18\n");
    let frame = frames(&text).remove(0);
    assert_eq!(frame.len() as u64, BYTES);
    frame
}

/// Sends packets from sources, and waits until all are counted.
fn deliver(running: &Running, hosts: &Hosts, packets: &[(&str, usize)]) {
    let before = running.stats().upstream.total.packets;
    let all: Vec<Vec<u8>> = packets.iter().flat_map(|&(source, count)| vec![frame(source); count]).collect();
    for some in all.chunks(64) {
        send(&hosts.client, "c", some);
    }
    let all = before + all.len() as u64;
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
}

/// Entry, packets and bytes of each entry of an answer.
fn counts(answer: &Value) -> Vec<(String, u64, u64)> {
    let number = |entry: &Value, field: &str| entry[field].as_u64().unwrap_or_else(|| panic!("{field} in {entry}"));
    let entries = answer["entries"].as_array().expect("entries");
    let text = |entry: &Value| entry["entry"].as_str().expect("an entry").to_owned();
    entries.iter().map(|entry| (text(entry), number(entry, "packets"), number(entry, "bytes"))).collect()
}

/// Waits until a list has the expected counts. A worker counts a packet at its entry after it has counted it by reason.
#[track_caller]
fn expect(running: &Running, command: &str, expected: &[(&str, u64)]) {
    let expected: Vec<_> =
        expected.iter().map(|&(entry, packets)| (entry.to_owned(), packets, packets * BYTES)).collect();
    let start = Instant::now();
    while counts(&done(running, command)) != expected && start.elapsed() < COUNTED_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(counts(&done(running, command)), expected);
}

each_engine_form_and_p4!(entries_count_their_packets);
fn entries_count_their_packets(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    put(folder, "q.weir", &POLICY.replace("  accept\n", "  udp dport 1 counter\n  accept\n"));
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 2);
    let sent =
        [("10.20.1.1", 7), ("10.20.2.2", 3), ("10.20.9.9", 90), ("10.30.0.1", 4), ("10.31.0.1", 5), ("10.9.0.1", 2)];
    deliver(&running, hosts, &sent);

    // The longest entry, once a packet although two rules match.
    let all = [("10.20.0.0/16", 90), ("10.20.1.1", 7), ("10.20.2.2", 3)];
    expect(&running, "blocked list", &all);
    expect(&running, "blocked list --by packets --top 2", &all[..2]);
    expect(&running, "blocked list --from 10.20.1.0", &all[1..]);
    // Only what a rule matches by the entry.
    expect(&running, "geo list", &[("10.30.0.0/16", 0), ("10.31.0.0/16", 5)]);
    expect(&running, "geo list --by packets", &[("10.31.0.0/16", 5)]);
    let found = done(&running, "geo get 10.31.0.1")["found"].clone();
    assert_eq!((&found["label"], &found["packets"], &found["bytes"]), (&json!("BB"), &json!(5), &json!(5 * BYTES)));
    assert!(found["last_s"].as_f64().is_some_and(|seconds| seconds < 60.0), "{found}");
    assert_eq!(done(&running, "geo get 10.30.0.1")["found"]["last_s"], Value::Null);
    expect(&running, "blocked list --idle 1h", &[]);
    let (_, text, _) = ctl(&running, "blocked list --by packets --top 1");
    assert!(text.starts_with("10.20.0.0/16 90 packets 5,400 bytes, last "), "{text}");
    refused(&running, "plain list --by packets", "table plain: it has no counters");
    refused(&running, "plain list --idle 1s", "table plain: it has no counters");

    // An entry keeps its counts when others change and when another policy has the table; one that comes back begins
    // anew. A new entry of the same label counts for itself.
    let second = running.load(&folder.join("q.weir"));
    done(&running, "suspects add 10.40.0.1 10.40.0.2");
    done(&running, "blocked del 10.20.2.2");
    done(&running, "geo add 10.31.7.0/24,BB 10.30.0.0/16,BB");
    deliver(&running, hosts, &[("10.40.0.1", 6), ("10.20.2.2", 1), ("10.31.7.7", 2), ("10.30.0.1", 3)]);
    running.ask(&Request::Activate { generation: second, confirm_s: None }).expect("it is ready");
    done(&running, "blocked add 10.20.2.2");
    deliver(&running, hosts, &[("10.40.0.1", 1), ("10.20.2.2", 2), ("10.31.0.1", 1)]);
    expect(&running, "suspects list", &[("10.40.0.1", 7), ("10.40.0.2", 0)]);
    expect(&running, "blocked list", &[("10.20.0.0/16", 91), ("10.20.1.1", 7), ("10.20.2.2", 2)]);
    expect(&running, "geo list", &[("10.30.0.0/16", 3), ("10.31.0.0/16", 6), ("10.31.7.0/24", 2)]);

    // A list as an atomic change, which rebuilds the image.
    put(folder, "list.txt", "10.20.0.0/16\n10.20.5.5\n10.20.6.6\n");
    done(&running, &format!("blocked replace {} --atomic", folder.join("list.txt").display()));
    deliver(&running, hosts, &[("10.20.5.5", 4), ("10.20.1.1", 1)]);
    expect(&running, "blocked list", &[("10.20.0.0/16", 92), ("10.20.5.5", 4), ("10.20.6.6", 0)]);

    by_rate_and_idle_time(&running, hosts);
}

/// Lists the table `blocked`. Its entries 10.20.5.5 and 10.20.6.6 have sent before.
fn by_rate_and_idle_time(running: &Running, hosts: &Hosts) {
    // The source that sends now comes first, whatever others have sent before.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                send(&hosts.client, "c", &vec![frame("10.20.6.6"); 32]);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let answer = done(running, "blocked list --by rate");
        drop(sending);
        let entries = answer["entries"].as_array().expect("entries");
        assert_eq!(entries.len(), 1, "{answer}");
        assert_eq!(entries[0]["entry"], "10.20.6.6");
        let (pps, bps) = (entries[0]["pps"].as_f64().expect("a rate"), entries[0]["bps"].as_f64().expect("a rate"));
        // Both rates are rounded.
        assert!(pps >= 1.0 && (bps / pps - 8.0 * BYTES as f64).abs() < 8.0 * BYTES as f64 * 0.6, "{answer}");
    });
    // Units of time are 1.07 s.
    std::thread::sleep(Duration::from_millis(3300));
    deliver(running, hosts, &[("10.20.5.5", 1)]);
    let idle = done(running, "blocked list --idle 2s");
    let idle: Vec<String> = counts(&idle).into_iter().map(|(entry, ..)| entry).collect();
    assert!(idle.contains(&"10.20.6.6".to_owned()) && !idle.contains(&"10.20.5.5".to_owned()), "{idle:?}");
}
