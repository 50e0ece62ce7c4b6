//! `weir check --card` and `weir card plan`: their reports, and what they refuse.

use crate::weir::Sandbox;
use serde_json::{Value, json};

const POLICY: &str = "table bad { type ipv4; elements = { 198.51.100.0/24 } }
upstream {
  udp dport 19 drop
  ip saddr @bad counter drop
  tcp dport { 80, 443 } counter accept
  ip id 7 drop
  drop
}
downstream { accept }
posture calm { upstream { tcp dport 22 counter; accept } }
";
/// Nine of ten packets are for the port that a card can drop for; one is no IP packet.
const FLOOD: &str = "
eth / ip / udp dport=19
eth / ip / udp dport=19
eth / ip / udp dport=19
eth / ip / udp dport=19
eth / ip / udp dport=19
eth / ip / udp dport=19
eth / ip / udp dport=19
eth / ip / udp dport=19
eth / ip / tcp dport=443
eth / arp
";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put_capture("flood.pcap", FLOOD);
    sandbox
}

fn column<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    report["rules"].as_array().expect("rules").iter().map(|rule| &rule[name]).collect()
}

#[test]
fn check_says_what_a_card_takes() {
    let sandbox = sandbox();
    let report = sandbox.run("check p.weir --card open-nic --quick --json").json();
    let card = &report["card"];
    assert_eq!((&card["profile"], &card["chain"]), (&json!("small open NIC"), &json!("upstream")));
    assert_eq!(column(card, "at"), ["p.weir:3", "p.weir:4", "p.weir:5", "p.weir:6", "p.weir:7"]);
    assert_eq!(column(card, "category"), ["ODn", "P1Dc", "OAc", "NDn", "ODn"]);
    assert_eq!(column(card, "offload"), ["hardware", "hybrid", "hardware", "software", "software"]);
    assert_eq!(column(card, "metadata"), [&json!([]), &json!([1]), &json!([4]), &json!([]), &json!([])]);
    let why = "the card begins the lookup of `ip saddr` in @bad";
    assert_eq!(column(card, "why")[1], why);
    let figures = ["dropping", "patterns", "card_rules", "lookups", "trailer_bytes", "trailer_bytes_alone"];
    let figures: Vec<&Value> = figures.iter().map(|name| &card[name]).collect();
    // One bit of `first`, and one lookup.
    assert_eq!(figures, [&json!(1), &json!([2, 64]), &json!([2, 128]), &json!([1, 6]), &json!(1 + 6 + 8), &json!(8)]);
    assert_eq!(sandbox.run("check p.weir --quick --json").json()["card"], Value::Null);
    let text = sandbox.run("check p.weir --card open-nic --quick").out;
    assert!(text.contains("p.weir:4             P1Dc     hybrid   1         the card begins"), "{text}");
    assert!(text.contains("2 of 64 patterns, 2 of 128 rules, 1 of 6 lookups, drops for 1 rules"), "{text}");
}

#[test]
fn profiles_are_names_or_files() {
    let sandbox = sandbox();
    let own = include_str!("../../crates/card/profiles/open-nic.card").replace("counters     64", "counters     0");
    sandbox.put("own.card", &own).put("bad.card", own.replace("lookups      6", "lookups      7"));
    let report = sandbox.run("check p.weir --card own.card --quick --json").json();
    assert_eq!(column(&report["card"], "metadata")[0], &json!([4]), "it drops nothing");
    let line = own.lines().position(|line| line.starts_with("lookups")).expect("it is there") + 1;
    let wrong = format!("weir: bad.card:{line}: `lookups` is a number from 0 to 6");
    sandbox.run("check p.weir --card bad.card --quick").fails(2, &[&wrong]);
    sandbox.run("card plan p.weir --card bad.card").fails(2, &[&wrong]);
    sandbox.run("card serve bad.card --network lo --host lo").fails(2, &[&wrong]);
    let missing = ["weir: none.card: ", "profiles that come with Weir: netfpga-sume, open-nic"];
    sandbox.run("check p.weir --card none.card --quick").fails(2, &missing);
    let failed = sandbox.run("card plan p.weir --card none.card --json");
    assert_eq!(failed.code, 2, "{failed:?}");
    let failure: Value = serde_json::from_str(&failed.out).expect("failures are JSON too");
    assert_eq!(failure["error"]["exit_code"], json!(2));
}

#[test]
fn a_plan_follows_the_capture() {
    let sandbox = sandbox();
    let plan = sandbox.run("card plan p.weir --card open-nic --in flood.pcap --json").json();
    assert_eq!((&plan["packets"], &plan["answered"], &plan["offloads"]), (&json!(10), &json!(0.9), &json!(true)));
    let share = |name: &str, rule: usize| plan["rules"][rule][name].as_f64().expect("a number");
    assert_eq!([share("matched", 0), share("reached", 0), share("reached", 2)], [0.8, 0.9, 0.1]);
    assert_eq!((&plan["rules"][0]["offload"], &plan["chosen"]["dropped"]), (&json!("hardware"), &json!(0.8)));
    assert_eq!(plan["rules"][3]["saves_cycles"], Value::Null, "no card parses it");
    let cycles = |bill: &str| plan[bill]["cycles_per_packet"].as_f64().expect("a number");
    assert!(cycles("chosen") < 0.5 * cycles("alone"), "{plan}");
    // A card that cannot drop wins nothing here, and the plan says so.
    let plan = sandbox.run("card plan p.weir --card netfpga-sume --in flood.pcap --json").json();
    assert_eq!((&plan["offloads"], &plan["chosen"]), (&json!(false), &plan["alone"]), "{plan}");
    assert!(plan["why"].as_str().is_some_and(|why| why.ends_with("bits a packet: nothing is won")), "{plan}");
    let text = sandbox.run("card plan p.weir --card open-nic --in flood.pcap").out;
    assert!(text.contains("estimates") && text.contains("80.0%"), "{text}");
}

/// Without a capture, every packet has answers and reaches every rule. A full link takes no metadata.
#[test]
fn a_plan_without_a_capture_and_for_a_full_link() {
    let sandbox = sandbox();
    let plan = sandbox.run("card plan p.weir --card open-nic --posture calm --json").json();
    assert_eq!((&plan["packets"], &plan["chain"]), (&json!(0), &json!("calm upstream")));
    let plan = sandbox.run("card plan p.weir --card open-nic --pps 14000000 --json").json();
    assert_eq!(plan["offloads"], json!(false), "{plan}");
    assert!(plan["all"]["link_load"].as_f64() > Some(1.0), "{plan}");
    assert!(plan["why"].as_str().is_some_and(|why| why.contains("more than the link carries")), "{plan}");
    sandbox.run("card plan p.weir --card open-nic --link 0").fails(2, &["a number above 0 is expected"]);
    sandbox.run("card plan p.weir --card open-nic --posture storm").fails(2, &["no posture storm"]);
}
