//! Addresses that may mean two things, in every place where an entry enters, and what is said of ignored text.

use crate::weir::Sandbox;
use serde_json::json;

/// Both readings of `203.0.113.77/24`.
const READINGS: [&str; 2] = ["`203.0.113.0/24`", "`203.0.113.77` for the one address"];

fn policy(items: &str, rules: &str) -> String {
    format!("{items}\nupstream {{ {rules}; accept }}\ndownstream {{ accept }}\n")
}

#[test]
fn host_bits_are_refused_wherever_an_entry_enters() {
    let sandbox = Sandbox::new();
    sandbox.put("plain.txt", "192.0.2.0/24\n203.0.113.77/24\n");
    sandbox.put("set.csv", "network,note\n192.0.2.0/24,x\n203.0.113.77/24,y\n");
    sandbox.put("set.ipset", "create a hash:net\nadd a 203.0.113.77/24\n");
    sandbox.put("mask.txt", "203.0.113.77/255.255.255.0\n");
    sandbox.put("limits.csv", "192.0.2.0/24,5\n203.0.113.77/24,5\n");
    let table = |file: &str| policy(&format!("table t {{ type ipv4; file \"{file}\" }}"), "ip saddr @t drop");
    for (place, text) in [
        ("element", policy("table t { type ipv4; elements = { 203.0.113.77/24 } }", "ip saddr @t drop")),
        ("dynamic", policy("table t { type ipv4; dynamic; elements = { 203.0.113.77/24 } }", "ip saddr @t drop")),
        ("define", policy("define A = 203.0.113.77/24", "ip saddr $A drop")),
        ("match", policy("", "ip saddr 203.0.113.77/24 drop")),
        ("set", policy("", "ip daddr { 192.0.2.1, 203.0.113.77/24 } drop")),
        ("inside", policy("inside { 203.0.113.77/24 }", "tcp dport 22 drop")),
        ("observe", policy("observe { inside 203.0.113.77/24 }", "tcp dport 22 drop")),
        ("limit", policy("limits l { elements = { 203.0.113.77/24 : 5 } }", "ip saddr limit @l")),
        ("plain", table("plain.txt")),
        ("csv", table("set.csv")),
        ("ipset", table("set.ipset")),
        ("netmask", table("mask.txt")),
        ("limits", policy("limits l { file \"limits.csv\" }", "ip saddr limit @l")),
    ] {
        sandbox.put("p.weir", text);
        let ran = sandbox.run("check p.weir --quick");
        assert_eq!(ran.code, 2, "{place}: {ran:?}");
        for reading in READINGS {
            assert!(ran.err.contains(reading) || ran.out.contains(reading), "{place}: {ran:?}");
        }
    }
    sandbox.put("p.weir", policy("", "tcp dport 22 drop")).put_capture("t.pcap", "eth / ip / tcp\n");
    sandbox.run("replay p.weir --in t.pcap --inside 203.0.113.77/24").fails(2, &READINGS);
    sandbox.run("detect t.pcap --inside 203.0.113.77/24").fails(2, &READINGS);
}

/// A lenient list leaves the line out, and says so.
#[test]
fn what_lists_leave_out_or_read_is_said_with_counts() {
    let sandbox = Sandbox::new();
    sandbox.put("hosts", "127.0.0.1 localhost\n0.0.0.0 ads.example\n0.0.0.0 track.example # x\n192.0.2.9\n");
    sandbox.put(
        "padded.dat",
        "192.000.002.000 - 192.000.002.255 , 000 , Range\n198.051.100.105 - 198.051.100.105 , 000 , Host\n",
    );
    sandbox.put("bits.txt", "203.0.113.77/24\n198.51.100.040\n192.0.2.0/255.255.255.0\n");
    sandbox.put("geo.csv", "network,country\n192.0.2.0/24,HR\n198.51.100.0/24,\n203.0.113.0/24,\"\"\n");
    sandbox.put("limits.csv", "192.0.2.0/24,5\n192.0.2.0/24,5\n");
    let table = |name: &str, rest: &str| format!("table {name} {{ {rest} }}\n");
    let items = [
        table("hosts", "type ipv4; file \"hosts\""),
        table("padded", "type ipv4; file \"padded.dat\""),
        table("bits", "type ipv4; file \"bits.txt\" lenient"),
        table("geo", "type ipv4 : label; file \"geo.csv\""),
        "limits l { file \"limits.csv\" }\n".to_owned(),
    ];
    let rules = "ip saddr @hosts drop; ip saddr @padded drop; ip saddr @bits drop; ip saddr @geo { HR } drop; ip saddr limit @l";
    sandbox.put("p.weir", policy(&items.concat(), rules));
    let report = sandbox.run("check p.weir --quick --json").json();
    let mut notices: Vec<&str> =
        report["notices"].as_array().expect("a list").iter().filter_map(|n| n.as_str()).collect();
    notices.sort_unstable();
    assert_eq!(
        notices,
        [
            "bits.txt: 2 bad lines skipped, the first: line 1: `203.0.113.77/24`: bits are set behind the length: write \
             `203.0.113.0/24` for the network, or `203.0.113.77` for the one address",
            "geo.csv: 2 entries have an empty label and were left out, the first in line 3",
            "hosts: 3 lines have words behind the entry, which are ignored, the first in line 1",
            "limits l: 1 limits were given again, which changes nothing",
            "padded.dat: 2 lines have octets with leading zeros, which were read as decimal numbers, the first in line 1",
            "padded.dat: 2 lines have words behind the entry, which are ignored, the first in line 1",
            "table hosts: 1 prefixes were given again, which changes nothing",
        ]
    );
    let tables = report["tables"].as_array().expect("a list");
    let entries: Vec<_> = tables.iter().map(|table| &table["entries"]).collect();
    assert_eq!(entries, [&json!(3), &json!(2), &json!(1), &json!(1)]);
}
