//! Lists of limits from the view of a policy's author.

use crate::weir::{Sandbox, texts_and_bundles};
use serde_json::{Value, json};
use std::fmt::Write;

#[test]
fn a_list_whose_prefixes_enclose_each_other_too_often_is_refused() {
    let nested = |depth: u8| {
        let mut list = String::new();
        (8..8 + depth).for_each(|length| writeln!(list, "10.0.0.0/{length},5").expect("a string grows"));
        list
    };
    let sandbox = Sandbox::new();
    let policy = |nested: &str| {
        format!(
            "limits d {{ file \"d.csv\"; {nested} }}\nupstream {{ ip saddr limit @d; accept }}\ndownstream {{ accept }}\n"
        )
    };
    sandbox.put("nested.weir", policy("nested")).put("flat.weir", policy("")).put("d.csv", nested(9));
    sandbox
        .run("check nested.weir --quick")
        .fails(2, &["limits d: 9 of its prefixes enclose each other, at most 8 may"]);
    assert_eq!(sandbox.run("check flat.weir --quick").code, 0);
    sandbox.put("d.csv", nested(8));
    assert_eq!(sandbox.run("check nested.weir --quick").code, 0);
}

/// A nested list of both families that logs everything, and a list of labels that logs exceeded limits.
const LOGGED: &str = "table geo { type ipv4 : label; elements = { 10.0.0.0/8 : SI, 11.0.0.0/8 : AT } }
limits nested { elements = { 10.0.0.0/8 : 1 burst 4, 10.1.0.0/16 : 1 burst 3, 10.1.1.0/24 : 1 burst 5, 2001:db8::/32 : 0 }; default 1/hour burst 2; nested; log all }
limits countries { table geo; default 1/hour burst 6; elements = { AT : 1/hour burst 1 }; log exceeded }
limits quiet { elements = { 10.0.0.0/8 : 1/hour burst 1 } }
upstream {
  ip protocol tcp ip saddr limit @countries exceed mark
  ip saddr limit @nested
  ip6 saddr limit @nested
  ip daddr limit @quiet exceed mark
  accept
}
downstream { ip saddr limit @nested; accept }
";

#[test]
fn what_limits_count_is_the_same_in_every_engine() {
    let sandbox = Sandbox::new();
    let mut packets = String::new();
    let mut send = |count: usize, packet: &str| (0..count).for_each(|_| packets += &format!("eth / {packet} / at=1\n"));
    // The /16 and the /8 have room for three packets. Then the /16 has none, and after one more packet neither has the
    // /8.
    send(5, "ip saddr=10.1.1.1 / udp");
    send(3, "ip saddr=10.2.0.1 / tcp");
    send(4, "ip saddr=11.0.0.1 / tcp");
    send(2, "ip6 saddr=2001:db8::1 / udp");
    sandbox.put("logged.weir", LOGGED).put_capture("traffic.pcap", &packets);
    let limit = |list: &str, what: (&str, &str), at: &str, rate: &str, passed: Option<u64>, exceeded: u64| {
        let mut limit = json!({ "list": list, "direction": "upstream", "at": at, "rate": rate, "passed": passed, "exceeded": exceeded });
        limit[what.0] = json!(what.1);
        limit
    };
    let expected = json!([
        limit("countries", ("label", "AT"), "logged.weir:6", "1/hour burst 1packets", None, 3),
        limit("nested", ("default", "ipv4"), "logged.weir:7", "1/hour burst 2packets", Some(2), 2),
        limit("nested", ("prefix", "10.0.0.0/8"), "logged.weir:7", "1pps burst 4packets", Some(4), 2),
        limit("nested", ("prefix", "10.1.0.0/16"), "logged.weir:7", "1pps burst 3packets", Some(3), 2),
        limit("nested", ("prefix", "2001:db8::/32"), "logged.weir:8", "0pps burst 10packets", Some(0), 2),
        limit("nested", ("prefix", "10.1.1.0/24"), "logged.weir:7", "1pps burst 5packets", Some(3), 0),
    ]);
    assert_eq!(sandbox.run("compile logged.weir -o logged.weirb").code, 0);
    for (policy, engine) in texts_and_bundles("logged") {
        let report = sandbox.run(&format!("replay {policy} --in traffic.pcap --engine {engine} --json")).json();
        let mut limits = report["limits"].clone();
        // The most exceeded limits come first, then those that passed most. Equal ones are sorted by list and name.
        let rank = |limit: &Value| (limit["exceeded"].as_u64(), limit["passed"].as_u64().or(Some(0)));
        let limits_as_told = limits.as_array_mut().expect("a list");
        assert!(limits_as_told.windows(2).all(|two| rank(&two[0]) >= rank(&two[1])), "{engine}: {limits_as_told:#?}");
        limits_as_told
            .sort_by_key(|limit| expected.as_array().expect("a list").iter().position(|known| known == limit));
        assert_eq!(limits, expected, "{engine}");
        let down =
            sandbox.run(&format!("replay {policy} --in traffic.pcap --direction downstream --engine {engine} --json"));
        let down = down.json()["limits"].clone();
        assert!(down.as_array().is_some_and(|limits| limits.len() == 4), "{engine}: {down:#}");
        assert!(down.as_array().is_some_and(|limits| limits.iter().all(|limit| limit["direction"] == "downstream")));
    }
    let stdout = sandbox.run("replay logged.weir --in traffic.pcap --engine eval").out;
    assert!(stdout.contains("@countries AT: 1/hour burst 1packets  (upstream, logged.weir:6)"), "{stdout}");
    assert!(stdout.contains("@nested default ipv4: 1/hour burst 2packets  (upstream, logged.weir:7)"), "{stdout}");
}

#[test]
fn a_log_of_limits_that_cannot_be_is_refused_before_interfaces_are_touched() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", "upstream { accept }\ndownstream { accept }\n");
    let run = |line: &str| {
        sandbox.run_between(&format!("run p.weir --engine afpacket --lower lower --upper upper --control c {line}"))
    };
    run("--limits-log none/limits.json").fails(1, &["none/limits.json", "No such file"]);
    run("--limits-log .").fails(1, &["directory"]);
    run("--limits-log l --limits-interval 1ms").fails(2, &["at least 100 ms"]);
    run("--limits-log l --limits-top 0").fails(2, &["from 1 to"]);
    run("--limits-top 5").fails(2, &["--limits-log"]);
    sandbox.run("ctl limits --top none --control c").fails(2, &["from 1 to"]);
}
