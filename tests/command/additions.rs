//! Rules that add to tables, in `replay`, `why`, `check` and `compile`.

use crate::lasting;
use crate::weir::{Sandbox, texts_and_bundles};
use serde_json::json;

/// The source exceeds its limit with the second packet. It is blocked from the next tick of 10 ms on, for 50 ms.
const TRAFFIC: &str = "
eth / ip saddr=192.0.2.1 / udp dport=9 / at=1
eth / ip saddr=192.0.2.1 / udp dport=9 / at=1.001
eth / ip saddr=192.0.2.1 / udp dport=7 / at=1.009
eth / ip saddr=192.0.2.1 / udp dport=7 / at=1.010
eth / ip saddr=192.0.2.1 / udp dport=7 / at=1.059
eth / ip saddr=192.0.2.1 / udp dport=7 / at=1.060
eth / ip saddr=192.0.2.2 / tcp dport=23 / at=2
eth / ip saddr=192.0.2.3 / tcp dport=23 / at=2
eth / ip saddr=192.0.2.2 / tcp dport=80 / at=2.01
eth / ip saddr=192.0.2.2 / tcp dport=23 / at=2.02
eth / ip saddr=192.0.2.2 / tcp dport=80 / at=3
";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let policy = "table bad { type ipv4; dynamic; size 1; timeout 50ms }\nupstream {\n  ip saddr @bad drop\n  \
                  udp dport 9 limit each ip saddr 1 burst 1 exceed add @bad accept\n  \
                  tcp dport 23 update @bad { ip saddr }\n  accept\n}\ndownstream { accept }\n";
    sandbox.put("p.weir", policy).put_capture("traffic.pcap", TRAFFIC);
    sandbox
}

#[test]
fn additions_go_by_the_time_of_the_capture() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile p.weir -o p.weirb").code, 0);
    let mut reports = Vec::new();
    for (policy, engine) in texts_and_bundles("p") {
        let run = sandbox.run(&format!("replay {policy} --in traffic.pcap --engine {engine} --json --verdicts"));
        reports.push(lasting(run.json()));
    }
    let (accept, drop) = ("accept", "drop");
    let verdicts = [accept, drop, accept, drop, drop, accept, accept, accept, drop, drop, accept];
    assert_eq!(reports[0]["verdicts"], json!(verdicts));
    // The table has room for one of the two scanners. The last packet of the first finds the table again empty.
    let additions = json!({"added": 2, "updated": 0, "additions-overflow": 0, "table-full": 1, "protected": 0});
    assert_eq!(reports[0]["additions"], additions);
    reports.iter().for_each(|report| assert_eq!(*report, reports[0]));
    let text = sandbox.run("replay p.weir --in traffic.pcap").out;
    assert!(text.contains("\n  rules added 2 entries to tables and updated 0, table-full 1\n"), "{text}");
}

#[test]
fn explanations_know_what_earlier_packets_added() {
    let sandbox = sandbox();
    let reason = |packet: u32| {
        let reason = |policy: &str| {
            sandbox.run(&format!("why {policy} --in traffic.pcap --packet {packet} --json")).json()["reason"].clone()
        };
        assert_eq!(reason("p.weir"), reason("p.weirb"));
        reason("p.weir")
    };
    assert_eq!(sandbox.run("compile p.weir -o p.weirb").code, 0);
    assert_eq!([reason(2), reason(4), reason(6)], [json!("limit"), json!("p.weir:3"), json!("p.weir:6")]);
}
