//! The layouts of tables, as a policy's author sees and changes them.

use crate::weir::Sandbox;
use serde_json::{Value, json};

const FUSED: &str = "table good { type ipv4; elements = { 192.0.2.1, 192.0.2.2 } }
table bad { type ipv4; elements = { 192.0.2.2, 192.0.2.3 } }
table nets { type ipv4; elements = { 192.0.2.0/24 } }
upstream {
  ip saddr @good ip saddr != @bad accept
  ip saddr @bad drop
  ip saddr @nets drop
  accept
}
downstream { accept }
";
const TRAFFIC: &str = "
eth / ip saddr=192.0.2.1 / udp
eth / ip saddr=192.0.2.2 / udp
eth / ip saddr=192.0.2.3 / udp
eth / ip saddr=192.0.2.4 / udp
";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("fused.weir", FUSED).put_capture("traffic.pcap", TRAFFIC);
    sandbox
}

fn table<'a>(report: &'a Value, name: &str) -> &'a Value {
    let tables = report["tables"].as_array().expect("a list of tables");
    tables.iter().find(|table| table["name"] == name).expect("the policy has the table")
}

#[test]
fn check_says_which_tables_share_an_image_and_why() {
    let sandbox = sandbox();
    let report = sandbox.run("check fused.weir --quick --json").json();
    let [good, bad, nets] = ["good", "bad", "nets"].map(|name| table(&report, name));
    assert_eq!((&good["layout"], &good["fused_with"]), (&json!("exact-sets"), &json!(["bad"])));
    assert_eq!((&bad["layout"], &bad["fused_with"]), (&json!("exact-sets"), &json!(["good"])));
    assert_eq!((&nets["layout"], &nets["fused_with"]), (&json!("rank-leaf"), &json!([])));
    let reason = good["layout_reason"].as_str().unwrap();
    assert!(
        reason.starts_with("one lookup for 2 tables: expected exact-sets ") && reason.contains("; apart "),
        "{reason}"
    );
    // The shared image is counted once.
    let bytes = |table: &Value| table["bytes"].as_u64().unwrap();
    assert_eq!((bytes(good), report["table_bytes"].as_u64()), (bytes(bad), Some(bytes(good) + bytes(nets))));
    let text = sandbox.run("check fused.weir --quick").out;
    assert!(text.contains("in good's"), "{text}");
}

#[test]
fn a_policy_may_keep_a_table_apart() {
    let sandbox = sandbox();
    sandbox.put("apart.weir", FUSED.replacen("{ type ipv4;", "{ type ipv4; layout exact-set;", 1));
    let report = sandbox.run("check apart.weir --quick --json").json();
    let good = table(&report, "good");
    assert_eq!((&good["layout"], &good["fused_with"]), (&json!("exact-set"), &json!([])));
    assert!(good["layout_reason"].as_str().unwrap().starts_with("the policy says so; "), "{good}");
    assert_eq!(sandbox.run("diff fused.weir apart.weir --in traffic.pcap --json").json()["changed"], 0);
    sandbox.put("wrong.weir", FUSED.replace("nets { type ipv4;", "nets { type ipv4; layout exact-sets;"));
    sandbox.run("check wrong.weir").fails(2, &["wrong.weir:3", "exact-sets"]);
}

#[test]
fn why_speaks_of_tables_and_not_of_images() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile fused.weir -o fused.bundle --json").json()["tables"], 2);
    for policy in ["fused.weir", "fused.bundle"] {
        let story = sandbox.run(&format!("why {policy} --in traffic.pcap --packet 3 --json")).json();
        assert_eq!(story["reason"], "fused.weir:6");
        let asked = story["rules"].as_array().unwrap();
        let last = |rule: usize| asked[rule]["tests"].as_array().unwrap().last().unwrap().clone();
        let lookup = |rule: usize| [last(rule)["test"].clone(), last(rule)["saw"].clone()];
        assert_eq!(lookup(0), [json!("ip saddr in @good"), json!("no entry")]);
        assert_eq!(lookup(1), [json!("ip saddr in @bad"), json!("found")]);
    }
    for engine in ["eval", "native", "xdp"] {
        let report = sandbox.run(&format!("replay fused.bundle --in traffic.pcap --engine {engine} --json")).json();
        assert_eq!((&report["passed"], &report["dropped"]), (&json!(1), &json!(3)), "{engine}: {report}");
    }
}

#[test]
fn layouts_follow_the_costs_of_the_machine() {
    let sandbox = sandbox();
    // Three images of half a MiB share 1.5 MiB of the cache, and one image for all three has 2. If memory is slow from
    // there on, two share an image.
    let hosts =
        |octet: u32| (0..60_000).map(|i: u32| format!("{octet}.{}.{}.1\n", i >> 8, i & 255)).collect::<String>();
    sandbox.put("a.txt", hosts(10)).put("b.txt", hosts(11)).put("c.txt", hosts(12));
    let tables = ["a", "b", "c"].map(|name| format!("table {name} {{ type ipv4; file \"{name}.txt\" }}\n")).concat();
    let rules = "upstream { ip saddr @a accept; ip saddr @b drop; ip saddr @c drop; accept }\ndownstream { accept }\n";
    sandbox.put("lists.weir", tables + rules);
    let costs = |rows: &[(u64, f64)]| {
        let rows: Vec<Value> =
            rows.iter().map(|(bytes, cycles)| json!({ "bytes": bytes, "cycles_per_line": cycles })).collect();
        json!({ "scenario": "line-costs", "rows": rows }).to_string()
    };
    sandbox.put("near.json", costs(&[(1 << 20, 1.0)])).put("far.json", costs(&[(7 << 18, 1.0), (2 << 20, 100.0)]));
    let layouts = |options: &str| {
        let report = sandbox.run(&format!("check lists.weir --quick --json {options}")).json();
        ["a", "b", "c"].map(|name| table(&report, name)["layout"].as_str().unwrap().to_owned())
    };
    assert_eq!(layouts(""), ["exact-sets"; 3]);
    assert_eq!(layouts("--costs near.json"), ["exact-sets"; 3]);
    assert_eq!(layouts("--costs far.json"), ["exact-sets", "exact-sets", "exact-set"]);

    sandbox.put("none.json", costs(&[])).put("text.json", "{\n\"scenario\": 7").put("zero.json", costs(&[(64, 0.0)]));
    sandbox.put("tables.json", r#"{ "scenario": "tables", "rows": [] }"#);
    let refused = [("none", "has no rows"), ("text", "line 2"), ("zero", "0 cycles"), ("tables", "`line-costs`")];
    for (name, problem) in refused {
        let line = format!("--costs {name}.json");
        sandbox.run(&format!("check lists.weir {line}")).fails(2, &[&format!("{name}.json"), problem]);
        sandbox.run(&format!("compile lists.weir -o x.bundle {line}")).fails(2, &[&format!("{name}.json"), problem]);
    }
    sandbox.run("check lists.weir --costs nothing.json").fails(2, &["nothing.json", "No such file"]);
    sandbox.run("check lists.weir --costs /dev/zero").fails(2, &["/dev/zero", "longer than 1 MiB"]);
}
