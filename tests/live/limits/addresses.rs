//! The addresses that exceed `limit each` most, as clients and logs show them.

use super::*;

each_engine!(the_most_exceeded_addresses_are_listed);
fn the_most_exceeded_addresses_are_listed(engine: &str, hosts: &Hosts, folder: &Path) {
    const LISTED: [u8; 3] = [10, 20, 1];
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
    let host = |host: usize, exceeded: u64| (format!("10.20.1.{host}"), exceeded);
    send_all(60);
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
}
