//! `--inside`: the direction of each packet by its source, and tracked connections.

use crate::weir::Sandbox;
use serde_json::json;

const POLICY: &str = "tracking { pickup off }
upstream {
  tcp track
  ct state established accept
  tcp dport 80 ct state new accept
  drop
}
downstream {
  tcp track
  ct state established,related accept
  drop
}
";
const TRAFFIC: &str = "
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=syn seq=100
eth / ip saddr=192.0.2.1 daddr=203.0.113.9 / tcp sport=80 dport=40000 flags=syn,ack seq=500 ack=101
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=101 ack=501
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=psh,ack seq=101 ack=501 / payload 100
eth / ip saddr=192.0.2.1 daddr=203.0.113.9 / tcp sport=80 dport=40000 flags=ack seq=501 ack=201
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=9000000 ack=501 / payload 10
eth / ip saddr=192.0.2.1 daddr=203.0.113.9 / tcp sport=80 dport=40000 flags=rst seq=7
eth / ip saddr=192.0.2.1 daddr=203.0.113.9 / tcp sport=999 flags=syn seq=1
eth / ip saddr=203.0.113.77 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=1 ack=1
";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put_capture("t.pcap", TRAFFIC);
    sandbox
}

#[test]
fn replay_determines_the_direction_of_each_packet() {
    let sandbox = sandbox();
    for engine in ["eval", "native", "xdp"] {
        let line = "replay p.weir --in t.pcap --inside 192.0.2.0/24,2001:db8::/32 --json --verdicts --engine";
        let report = sandbox.run(&format!("{line} {engine}")).json();
        assert_eq!((&report["direction"], &report["engine"]), (&json!("both"), &json!(engine)));
        let (accept, drop) = ("accept", "drop");
        let expected = [accept, accept, accept, accept, accept, drop, drop, drop, drop];
        assert_eq!(report["verdicts"], json!(expected), "{engine}");
        assert_eq!(
            report["reasons"],
            json!({
                "p.weir:4": 2, "p.weir:5": 1, "p.weir:10": 2, "p.weir:11": 1,
                "out-of-window": 1, "rst-out-of-window": 1, "no-state": 1,
            }),
            "{engine}"
        );
        // The rule `tcp track` counts what the tracker does not refuse.
        assert_eq!(
            (&report["rules"][0]["packets"], &report["rules"][4]["packets"]),
            (&json!(3), &json!(3)),
            "{engine}"
        );
    }
    let text = sandbox.run("replay p.weir --in t.pcap --inside 192.0.2.0/24 --engine eval").out;
    assert!(text.contains("p over t.pcap (both, engine eval)"), "{text}");
    assert!(text.contains("(rst-out-of-window)"), "{text}");
}

#[test]
fn why_and_diff_take_it_too() {
    let sandbox = sandbox();
    let report = sandbox.run("why p.weir --in t.pcap --packet 5 --inside 192.0.2.0/24 --json").json();
    assert_eq!((&report["verdict"], &report["reason"]), (&json!("accept"), &json!("p.weir:10")));
    let test = &report["rules"][1]["tests"][1];
    assert_eq!(
        (&test["test"], &test["saw"]),
        (&json!("ct state in established, related"), &json!("established")),
        "{report}"
    );
    sandbox.put("q.weir", POLICY.replace("pickup off", "pickup on"));
    let report = sandbox.run("diff p.weir q.weir --in t.pcap --inside 192.0.2.0/24 --json").json();
    assert_eq!((&report["changed"], &report["newly_passed"]), (&json!(1), &json!(1)));
}

#[test]
fn what_is_refused() {
    let sandbox = sandbox();
    let line = |options: &str| format!("replay p.weir --in t.pcap {options}");
    sandbox.run(&line("--inside 192.0.2.1/24")).fails(2, &["192.0.2.1/24", "bits behind the length of 24 are set"]);
    sandbox.run(&line("--inside eth0")).fails(2, &["a prefix such as 192.0.2.0/24 or 2001:db8::/32 is expected"]);
    sandbox.run(&line("--inside 192.0.2.0/24 --direction upstream")).fails(2, &["--inside", "cannot be used with"]);
}

/// `inside` of the policy in place of the option.
fn with_statement() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", format!("inside {{ 192.0.2.0/24 }}\n{POLICY}")).put_capture("t.pcap", TRAFFIC);
    sandbox
}

#[test]
fn the_policy_says_what_is_inside() {
    let (by_option, by_policy) = (sandbox(), with_statement());
    let expected = by_option.run("replay p.weir --in t.pcap --inside 192.0.2.0/24 --json --verdicts").json();
    let report = by_policy.run("replay p.weir --in t.pcap --json --verdicts").json();
    assert_eq!((&report["direction"], &report["verdicts"]), (&json!("both"), &expected["verdicts"]));
    let why = by_policy.run("why p.weir --in t.pcap --packet 2 --json").json();
    assert_eq!(why["verdict"], json!("accept"), "{why}");
    // The option decides if it is given.
    let other = by_policy.run("replay p.weir --in t.pcap --inside 203.0.113.0/24 --json --verdicts").json();
    assert_ne!(other["verdicts"], expected["verdicts"]);
}

#[test]
fn packets_from_outside_do_not_come_from_inside() {
    let sandbox = with_statement();
    for engine in ["eval", "native", "xdp"] {
        let line = format!("replay p.weir --in t.pcap --direction upstream --json --engine {engine}");
        let report = sandbox.run(&line).json();
        assert_eq!((&report["direction"], &report["reasons"]["p.weir:1"]), (&json!("upstream"), &json!(4)), "{report}");
    }
    let why = sandbox.run("why p.weir --in t.pcap --direction upstream --packet 2");
    assert!(why.out.contains("p.weir:1") && why.out.contains("inside { 192.0.2.0/24 }"), "{why:?}");
}

#[test]
fn detection_takes_what_the_policy_says_is_inside() {
    let (by_option, by_policy) = (sandbox(), with_statement());
    let expected = by_option.run("detect t.pcap --policy p.weir --inside 192.0.2.0/24 --json").json();
    let report = by_policy.run("detect t.pcap --policy p.weir --json").json();
    assert_eq!(report, expected);
    assert!(report["outside"].as_u64() > Some(0), "{report}");
}
