//! The addresses that exceed `limit each` most, as clients and logs show them.

use super::*;

const LISTED: [u8; 3] = [10, 20, 1];
/// Packets of each of the hosts that pass.
const PASSED: u64 = 2;
/// Starts of Weir. In one of 5,000 two hosts share a bucket and a record.
const STARTS: usize = 3;

fn host(host: usize, exceeded: u64) -> (String, u64) {
    (format!("10.20.1.{host}"), exceeded)
}

/// The entries that are listed if the first host has sent one packet, the second two, and so on.
fn own_counts(hosts: usize) -> impl Iterator<Item = (String, u64)> {
    (1..=hosts).filter(|&number| number as u64 > PASSED).map(|number| host(number, number as u64 - PASSED))
}

/// Whether the hash of this start gives two of the hosts one bucket and one record. Then one of them is listed, with
/// the packets of both but those that pass.
fn two_share_a_record(listed: &[(String, u64)], hosts: usize) -> bool {
    let pairs = (1..=hosts).flat_map(|other| (1..other).map(move |one| [one, other]));
    let mut shared = pairs.filter(|pair| {
        let sum = pair.iter().sum::<usize>() as u64 - PASSED;
        let names = pair.map(|number| host(number, 0).0);
        let rest: Vec<_> = own_counts(hosts).filter(|(name, _)| !names.contains(name)).collect();
        let is_listed = names.iter().any(|name| listed.contains(&(name.clone(), sum)));
        is_listed && listed.len() == rest.len() + 1 && rest.iter().all(|one| listed.contains(one))
    });
    shared.next().is_some()
}

#[test]
fn shared_records_are_recognised() {
    let own: Vec<_> = own_counts(60).collect();
    assert!(!two_share_a_record(&own, 60));
    let with = |leave: &[usize], also: (String, u64)| -> Vec<_> {
        let is_left = |name: &String| !leave.iter().any(|&number| host(number, 0).0 == *name);
        own.iter().filter(|(name, _)| is_left(name)).cloned().chain([also]).collect()
    };
    for (leave, also, is_shared) in [
        (&[7, 60][..], host(7, 65), true),
        (&[7, 60], host(60, 65), true),
        (&[60], host(60, 59), true),
        (&[], host(2, 1), true),
        (&[7, 60], host(8, 65), false),
        (&[7, 60], host(7, 64), false),
        (&[60], host(60, 57), false),
        (&[6, 7, 60], host(7, 65), false),
    ] {
        assert_eq!(two_share_a_record(&with(leave, also.clone()), 60), is_shared, "{leave:?} {also:?}");
    }
}

each_engine!(the_most_exceeded_addresses_are_listed);
fn the_most_exceeded_addresses_are_listed(engine: &str, hosts: &Hosts, folder: &Path) {
    assert!((0..STARTS).any(|_| lists_those_without_shared_records(engine, hosts, folder)), "{engine}");
}

/// Returns false if two of the addresses share a record.
fn lists_those_without_shared_records(engine: &str, hosts: &Hosts, folder: &Path) -> bool {
    let policy = |name: &str, more: &str| {
        let rules = "udp limit each ip saddr 1/hour burst 2 size 1024 log exceeded\n  limit each ip daddr 1gbit";
        put(folder, name, &format!("upstream {{\n  {more}\n  {rules}\n  accept\n}}\ndownstream {{ accept }}\n"));
    };
    policy("first.weir", "");
    policy("second.weir", "tcp dport 7 drop");
    let more = ["--limits-log", "limits.log", "--limits-interval", "100ms"].map(str::to_owned).to_vec();
    let setup = Setup { workers: 2, more, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "first.weir", &setup);
    let mut sent = 0;
    // Of host 1 one packet, of host 2 two packets, and so on.
    let mut send_all = |count: usize| {
        let packets: Vec<Vec<u8>> =
            (1..=count).flat_map(|host| (0..host).flat_map(move |_| from_hosts(LISTED, host..host + 1, 9))).collect();
        send(&hosts.client, "c", &packets);
        sent += packets.len() as u64;
        all_of(&running, sent);
    };
    let listed = |top: usize| {
        let answer = running.ask(&Request::Limits { top, list: None });
        let answer = answer.unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
        let status: LimitsStatus = serde_json::from_value(answer).expect("counts of limits");
        let one = |limit: &CountedLimit| match &limit.what {
            Some(Limited::Address(address)) => {
                assert_eq!((limit.list.as_str(), limit.passed), ("each", None));
                (address.clone(), limit.exceeded)
            }
            other => panic!("{other:?}"),
        };
        (status.limits.iter().map(one).collect::<Vec<_>>(), status.total.exceeded)
    };
    send_all(60);
    if two_share_a_record(&listed(60).0, 60) {
        assert_eq!(running.stop(), 0);
        fs::remove_file(folder.join("limits.log")).expect("the log is there");
        return false;
    }
    // Two packets of each pass. Sixty addresses are in 128 sets of eight, so every count is exact.
    assert_eq!(listed(3), (vec![host(60, 58), host(59, 57), host(58, 56)], 58), "{engine}");
    let second = running.load(&folder.join("second.weir"));
    running
        .ask(&Request::Activate { generation: second, confirm_s: None })
        .unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    send_all(60);
    assert_eq!(listed(2), (vec![host(60, 118), host(59, 116)], 59), "{engine}: buckets and counts stay");
    assert_eq!(running.stop(), 0);

    let text = fs::read_to_string(folder.join("limits.log")).expect("the log is there");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let own = lines.iter().filter(|line| line["address"] == "10.20.1.60");
    assert_eq!(own.map(|line| line["exceeded"].as_u64().expect("a count")).sum::<u64>(), 118, "{engine}");
    true
}
