//! The counters of limits, as clients and logs show them.

use super::*;
use crate::upgrades::upgraded;

/// The counts of each prefix: passed and exceeded packets.
type PrefixCounts = BTreeMap<String, (u64, u64)>;

fn prefix_counts(expected: &[(&str, u64, u64)]) -> PrefixCounts {
    expected.iter().map(|&(prefix, passed, exceeded)| (prefix.to_owned(), (passed, exceeded))).collect()
}

/// The result of `ctl limits`: counts by prefix, the number of limits, and the number of exceeded ones.
fn listed(running: &Running, top: usize) -> (PrefixCounts, u64, u64) {
    let answer = running.ask(&Request::Limits { top, list: Some("customers".to_owned()) });
    let answer = answer.unwrap_or_else(|failure| panic!("{failure}: {}", running.log()));
    let status: LimitsStatus = serde_json::from_value(answer).expect("counts of limits");
    let one = |limit: &CountedLimit| match &limit.what {
        Some(Limited::Prefix(prefix)) => (prefix.clone(), (limit.passed.expect("all is logged"), limit.exceeded)),
        other => panic!("{other:?}"),
    };
    (status.limits.iter().map(one).collect(), status.total.limits, status.total.exceeded)
}

/// The sums of the lines of logs, by prefix and in total.
fn logged(paths: &[PathBuf]) -> (PrefixCounts, (u64, u64)) {
    let (mut counts, mut sums) = (PrefixCounts::new(), (0, 0));
    for path in paths {
        let text = fs::read_to_string(path).expect("the log is there");
        for line in text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is an object")) {
            let number = |field: &str| line[field].as_u64().unwrap_or_else(|| panic!("{field}: {line}"));
            let sum = match line["prefix"].as_str() {
                Some(prefix) => counts.entry(prefix.to_owned()).or_default(),
                None => {
                    assert_eq!(number("left_out"), 0, "{line}");
                    &mut sums
                }
            };
            *sum = (sum.0 + number("passed"), sum.1 + number("exceeded"));
        }
    }
    (counts, sums)
}

each_engine!(what_limits_count_is_told_and_logged);
fn what_limits_count_is_told_and_logged(engine: &str, hosts: &Hosts, folder: &Path) {
    const A: [u8; 3] = [10, 20, 1];
    const B: [u8; 3] = [10, 20, 2];
    const C: [u8; 3] = [10, 20, 3];
    let policy = |name: &str, list: &str| {
        put(folder, &format!("{name}.csv"), list);
        let limits = format!("limits customers {{ file \"{name}.csv\"; log all }}\n");
        put(
            folder,
            &format!("{name}.weir"),
            &(limits + "upstream { ip saddr limit @customers; accept }\ndownstream { accept }\n"),
        );
    };
    policy("first", "10.20.1.0/24,1/hour,10\n10.20.2.0/24,1/hour,20\n10.20.9.0/24,1/hour,5\n");
    policy("second", "10.20.1.0/24,1/hour,11\n10.20.3.0/24,1/hour,15\n");
    let more = ["--limits-log", "limits.log", "--limits-interval", "100ms"].map(str::to_owned).to_vec();
    let setup = Setup { workers: 2, more, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "first.weir", &setup);
    let mut sent = 0;
    let mut send_all = |counts: &[([u8; 3], usize)]| {
        let packets: Vec<Vec<u8>> =
            counts.iter().flat_map(|&(from, count)| from_hosts(from, 1..1 + count, 9)).collect();
        send(&hosts.client, "c", &packets);
        sent += packets.len() as u64;
        all_of(&running, sent);
    };
    send_all(&[(A, 200), (B, 100), (FREE_OF_LISTS, 50)]);
    let a_and_b = prefix_counts(&[("10.20.1.0/24", 10, 190), ("10.20.2.0/24", 20, 80)]);
    assert_eq!(listed(&running, 20), (a_and_b.clone(), 3, 2), "{engine}");
    assert_eq!(listed(&running, 1).0, prefix_counts(&[("10.20.1.0/24", 10, 190)]), "{engine}");

    let logs = ["limits.log", "limits.log.1"].map(|name| folder.join(name));
    running.wait_until("something is logged", |_| fs::metadata(&logs[0]).is_ok_and(|file| file.len() > 0));
    fs::rename(&logs[0], &logs[1]).expect("it can be renamed");
    let second = running.load(&folder.join("second.weir"));
    let ask = |request: &Request| {
        running.ask(request).unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    };
    ask(&Request::Activate { generation: second, confirm_s: None });
    send_all(&[(A, 101), (B, 100), (C, 60)]);
    // A keeps its count and has room for one more packet. C is new.
    let a_and_c = prefix_counts(&[("10.20.1.0/24", 11, 290), ("10.20.3.0/24", 15, 45)]);
    assert_eq!(listed(&running, 20), (a_and_c, 2, 2), "{engine}");
    ask(&Request::Rollback);
    send_all(&[(A, 7), (B, 5)]);
    let back = prefix_counts(&[("10.20.1.0/24", 11, 297), ("10.20.2.0/24", 20, 85)]);
    assert_eq!(listed(&running, 20), (back, 3, 2), "{engine}");

    running.wait_until("the renamed log is left alone", |_| logs[0].exists());
    assert_eq!(running.stop(), 0);
    let all = prefix_counts(&[("10.20.1.0/24", 11, 297), ("10.20.2.0/24", 20, 85), ("10.20.3.0/24", 15, 45)]);
    let sums = all.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    assert_eq!(logged(&logs), (all, sums), "{engine}");
}

test_on!([afpacket, xdp] debts_continue_after_an_upgrade_and_counts_in_the_kernel);
/// In user space counts begin anew, as the log of limits does (docs/guide/upgrade.md).
fn debts_continue_after_an_upgrade_and_counts_in_the_kernel(engine: &str, hosts: &Hosts, folder: &Path) {
    const A: [u8; 3] = [10, 20, 1];
    const B: [u8; 3] = [10, 20, 2];
    let limits =
        "limits customers { elements = { 10.20.1.0/24 : 1/hour burst 10, 10.20.2.0/24 : 1/hour burst 20 }; log all }\n";
    put(
        folder,
        "edge.weir",
        &format!("{limits}upstream {{ ip saddr limit @customers; accept }}\ndownstream {{ accept }}\n"),
    );
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &Setup::new(engine));
    let send_all = |counts: &[([u8; 3], usize)], sent: u64| {
        let packets: Vec<Vec<u8>> =
            counts.iter().flat_map(|&(from, count)| from_hosts(from, 1..1 + count, 9)).collect();
        send(&hosts.client, "c", &packets);
        running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent);
    };
    send_all(&[(A, 14), (B, 15)], 29);
    let before = prefix_counts(&[("10.20.1.0/24", 10, 4), ("10.20.2.0/24", 15, 0)]);
    assert_eq!(listed(&running, 20), (before, 2, 1), "{engine}");
    upgraded(&running);
    // A has no room, and B has room for five packets.
    send_all(&[(A, 3), (B, 9)], 41);
    let total = running.stats().upstream.total;
    assert_eq!((total.passed, total.reasons.get("limit")), (30, Some(&11)), "{engine}: {total:#?}");
    let since = prefix_counts(match engine {
        "xdp" => &[("10.20.1.0/24", 10, 7), ("10.20.2.0/24", 20, 4)],
        _ => &[("10.20.1.0/24", 0, 3), ("10.20.2.0/24", 5, 4)],
    });
    assert_eq!(listed(&running, 20), (since, 2, 2), "{engine}");
    assert_eq!(running.stop(), 0);
}
