//! Tests the program from outside: its output, its exit codes, and that it never panics.

#[path = "command/additions.rs"]
mod additions;
#[path = "command/bundled_tables.rs"]
mod bundled_tables;
#[path = "command/bundles.rs"]
mod bundles;
#[path = "command/card.rs"]
mod card;
#[path = "command/config.rs"]
mod config;
#[path = "command/detect.rs"]
mod detect;
#[path = "command/detect_captures.rs"]
mod detect_captures;
#[path = "command/detect_evidence.rs"]
mod detect_evidence;
#[path = "command/detect_forged.rs"]
mod detect_forged;
#[path = "command/detect_handshakes.rs"]
mod detect_handshakes;
#[path = "command/export.rs"]
mod export;
#[path = "command/hostile.rs"]
mod hostile;
#[path = "command/inside.rs"]
mod inside;
#[path = "command/journal.rs"]
mod journal;
#[path = "command/json.rs"]
mod json;
#[path = "command/limits.rs"]
mod limits;
#[path = "command/manual.rs"]
mod manual;
#[path = "command/outputs.rs"]
mod outputs;
#[path = "command/own_connection.rs"]
mod own_connection;
#[path = "command/p4.rs"]
mod p4;
#[path = "command/packaging.rs"]
mod packaging;
#[path = "command/peace.rs"]
mod peace;
#[path = "command/postures.rs"]
mod postures;
#[path = "command/readings.rs"]
mod readings;
#[path = "command/replies.rs"]
mod replies;
#[path = "command/signals.rs"]
mod signals;
#[path = "command/tables.rs"]
mod tables;
#[path = "command/terminal.rs"]
mod terminal;
#[path = "command/top.rs"]
mod top;
#[path = "command/weir.rs"]
mod weir;

use serde_json::{Value, json};
use weir::{ENGINES, Sandbox, texts_and_bundles};
use weir_test_support::program::{install, install_script};

const EDGE: &str = "table bad { type ipv4; elements = { 198.51.100.0/24 } }
upstream {
  ip saddr @bad counter drop
  tcp dport { 80, 443 } sample 1/2 accept
  udp sport 53 counter
  udp dport 5000 divert
  drop
}
downstream { accept }
posture calm { upstream { accept } }
";
const TRAFFIC: &str = "
eth / ip saddr=198.51.100.7 / tcp dport=80
eth / ip / tcp dport=80
eth / ip / tcp dport=443 / payload 10
eth / ip / udp sport=53 dport=5000
eth / ip / udp sport=53 dport=53
eth / arp
eth / ip / tcp doff=4
eth / ip / tcp dport=443
";

fn edge() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("edge.weir", EDGE).put_capture("traffic.pcap", TRAFFIC);
    sandbox
}

/// The report without the fields that differ between runs.
fn lasting(mut report: Value) -> Value {
    let fields = report.as_object_mut().expect("an object");
    for name in ["seconds", "mpps", "engine"] {
        assert!(fields.remove(name).is_some(), "there is no {name}");
    }
    report
}

#[test]
fn replay_reports_the_same_in_every_engine() {
    let sandbox = edge();
    let mut reports = Vec::new();
    for &engine in ENGINES {
        let report =
            sandbox.run(&format!("replay edge.weir --in traffic.pcap --engine {engine} --json --verdicts")).json();
        assert_eq!(report["engine"], engine);
        assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
        reports.push(lasting(report));
    }
    let report = &reports[0];
    assert_eq!(report["packets"], 8);
    assert_eq!(report["bytes"], 54 + 54 + 64 + 42 + 42 + 42 + 54 + 54);
    let numbers = ["passed", "dropped", "diverted", "sampled"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(numbers, [4, 3, 1, 2]);
    let verdicts = json!(["drop", "accept", "accept", "divert", "drop", "accept", "drop", "accept"]);
    assert_eq!(report["verdicts"], verdicts);
    let reasons =
        json!({"edge.weir:3": 1, "edge.weir:4": 3, "edge.weir:6": 1, "edge.weir:7": 1, "arp": 1, "malformed-tcp": 1});
    assert_eq!(report["reasons"], reasons);
    let rules: Vec<(&str, u64, u64)> = report["rules"].as_array().unwrap().iter().map(rule).collect();
    let expected = [("edge.weir:3", 1, 54), ("edge.weir:4", 3, 172), ("edge.weir:5", 2, 84), ("edge.weir:6", 1, 42)];
    assert_eq!(rules[..4], expected);
    assert!(reports[1..].iter().all(|other| other == report), "{reports:#?}");
}

fn rule(rule: &Value) -> (&str, u64, u64) {
    let number = |name: &str| rule[name].as_u64().expect("a number");
    (rule["at"].as_str().expect("a text"), number("packets"), number("bytes"))
}

#[test]
fn replay_asks_the_chain_that_is_named() {
    let sandbox = edge();
    let passed = |options: &str| {
        sandbox.run(&format!("replay edge.weir --in traffic.pcap --engine eval --json {options}")).json()["passed"]
            .clone()
    };
    assert_eq!(
        [passed(""), passed("--direction downstream"), passed("--posture calm")],
        [json!(4), json!(7), json!(7)]
    );
    sandbox.run("replay edge.weir --in traffic.pcap --posture storm").fails(2, &["no posture storm", "it has calm"]);
    sandbox.run("replay edge.weir --in traffic.pcap --direction sideways").fails(2, &["upstream"]);
}

#[test]
fn replay_writes_what_passed_and_what_was_dropped() {
    let sandbox = edge();
    let ran = sandbox.run("replay edge.weir --in traffic.pcap --out passed.pcap --dropped dropped.pcap --engine eval");
    assert_eq!(ran.code, 0, "{ran:?}");
    let again = |name: &str| sandbox.run(&format!("replay edge.weir --in {name} --engine eval --json")).json();
    let (passed, dropped) = (again("passed.pcap"), again("dropped.pcap"));
    assert_eq!((&passed["packets"], &passed["passed"]), (&json!(4), &json!(4)));
    assert_eq!((&dropped["packets"], &dropped["dropped"]), (&json!(3), &json!(3)));
    sandbox.run("replay edge.weir --in traffic.pcap --out traffic.pcap").fails(2, &["different files"]);
    sandbox.run("replay edge.weir --in traffic.pcap --out none/passed.pcap").fails(1, &["none/passed.pcap"]);
}

#[test]
fn why_tells_the_story_of_a_packet() {
    let sandbox = edge();
    let story = sandbox.run("why edge.weir --in traffic.pcap --packet 4 --json").json();
    assert_eq!(
        (&story["packet"], &story["verdict"], &story["reason"]),
        (&json!(4), &json!("divert"), &json!("edge.weir:6"))
    );
    let asked = story["rules"].as_array().unwrap();
    let matched: Vec<bool> = asked.iter().map(|rule| rule["matched"].as_bool().unwrap()).collect();
    assert_eq!(matched, [false, false, true, true]);
    let last = asked[0]["tests"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["test"], &last["saw"], &last["held"]),
        (&json!("ip saddr in @bad"), &json!("no entry"), &json!(false))
    );
    let malformed = sandbox.run("why edge.weir --in traffic.pcap --packet 7 --json").json();
    assert_eq!((&malformed["reason"], &malformed["rules"]), (&json!("malformed-tcp"), &json!([])));
    let ran = sandbox.run("why edge.weir --in traffic.pcap --packet 1");
    assert!(ran.code == 0 && ran.out.contains("verdict: drop, reason: edge.weir:3"), "{ran:?}");
    sandbox.run("why edge.weir --in traffic.pcap --packet 9").fails(1, &["no packet 9", "the last is 8"]);
    sandbox.run("why edge.weir --in traffic.pcap --packet 0").fails(2, &["--packet"]);
}

/// A capture whose frames are truncated to `snaplen` bytes (draft-ietf-opsawg-pcap).
fn snapped(text: &str, snaplen: usize) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, snaplen as u32, 1]);
    for packet in weir_test_support::packets(text).expect("they are packets") {
        let kept = &packet.bytes[..packet.bytes.len().min(snaplen)];
        bytes.extend(words(&[0, 0, kept.len() as u32, packet.bytes.len() as u32]));
        bytes.extend(kept);
    }
    bytes
}

#[test]
fn packets_that_the_capture_cut_are_told_from_malformed_ones() {
    const CUT: &str = "
eth / ip / tcp dport=80 / payload 400
eth / ip / udp dport=53 / payload 200
eth / ip6 / tcp dport=443
eth / ip6 / dst / udp dport=53
eth / arp
eth / ip / tcp doff=4 / payload 100
eth / ip len=19 / udp / payload 90
eth / ip / udp dport=53
eth / vlan id=3 / ip / tcp dport=80
";
    let sandbox = Sandbox::new();
    sandbox.put(
        "p.weir",
        "upstream { tcp dport 80 @th,160,8 != 0xff counter; tcp dport 80 accept; drop }\ndownstream { accept }\n",
    );
    sandbox.put("cut.pcap", snapped(CUT, 54)).put("whole.pcap", snapped(CUT, 65535));
    for &engine in ENGINES {
        let report = sandbox.run(&format!("replay p.weir --in cut.pcap --engine {engine} --json")).json();
        // Both IPv6 packets end inside the transport header or the options. The tagged packet lacks the last 4 bytes of
        // TCP. Errors in captured fields (doff, len) are not due to the capture.
        let malformed = json!({ "malformed-tcp": 2, "malformed-ipv6-ext": 1 });
        assert_eq!(report["cut"], json!({ "packets": 7, "bytes_min": 54, "malformed": malformed }), "{engine}");
        assert_eq!(report["reasons"]["malformed-tcp"], 3, "{engine}");
        let whole = sandbox.run(&format!("replay p.weir --in whole.pcap --engine {engine} --json")).json();
        assert_eq!(whole.get("cut"), None, "{engine}");
    }
    let stdout = sandbox.run("replay p.weir --in cut.pcap --engine eval").out;
    assert!(stdout.contains("only the beginning of 7 packets (snaplen)"), "{stdout}");
    assert!(stdout.contains("2 of them are malformed-tcp because the capture ends inside the header"), "{stdout}");
    assert!(!sandbox.run("replay p.weir --in whole.pcap --engine eval").out.contains("snaplen"));

    let why = |packet: usize| {
        sandbox.run(&format!("why p.weir --in cut.pcap --packet {packet} --json")).json()["cut"].clone()
    };
    assert_eq!(why(1), json!({ "captured": 54, "of": 454, "malformed": false }));
    assert_eq!(why(3), json!({ "captured": 54, "of": 74, "malformed": true }));
    assert_eq!(why(6), json!({ "captured": 54, "of": 154, "malformed": false }));
    assert_eq!(why(8), Value::Null);
    let stdout = sandbox.run("why p.weir --in cut.pcap --packet 3").out;
    assert!(stdout.contains("54 of the packet's 74 bytes (snaplen); it is malformed only because"), "{stdout}");
    let stdout = sandbox.run("why p.weir --in cut.pcap --packet 1").out;
    assert!(stdout.contains("outside of the captured bytes"), "{stdout}");
}

/// Sampling depends on the previous packets. `why` and `replay` decide each packet alike.
#[test]
fn why_agrees_with_replay_on_samples() {
    let sandbox = edge();
    let stories =
        (1..=8).map(|packet| sandbox.run(&format!("why edge.weir --in traffic.pcap --packet {packet} --json")).json());
    let sampled = stories.filter(|story| story["sampled"] == true).count();
    assert_eq!(sandbox.run("replay edge.weir --in traffic.pcap --engine eval --json").json()["sampled"], sampled);
}

#[test]
fn diff_names_what_changes_by_rule_and_source() {
    let sandbox = edge();
    sandbox.put("new.weir", EDGE.replace("198.51.100.0/24", "192.0.2.0/24"));
    let report = sandbox.run("diff edge.weir new.weir --in traffic.pcap --json").json();
    let counts = ["packets", "changed", "newly_passed", "newly_dropped"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(counts, [8, 5, 1, 4]);
    let sources = report["by_source"].as_array().unwrap();
    assert_eq!((&sources[0]["source"], &sources[0]["newly_dropped"]), (&json!("192.0.2.1"), &json!(4)));
    assert_eq!((&sources[1]["source"], &sources[1]["newly_passed"]), (&json!("198.51.100.7"), &json!(1)));
    let by_rule = report["by_rule"].as_array().unwrap();
    let change = (&by_rule[0]["old"]["reason"], &by_rule[0]["new"]["reason"], &by_rule[0]["packets"]);
    assert_eq!(change, (&json!("edge.weir:4"), &json!("new.weir:3"), &json!(3)));
    let same = sandbox.run("diff edge.weir edge.weir --in traffic.pcap --json").json();
    assert_eq!((&same["changed"], &same["by_rule"]), (&json!(0), &json!([])));
}

#[test]
fn a_bundle_needs_no_compiler() {
    let sandbox = edge();
    let text = lasting(sandbox.run("replay edge.weir --in traffic.pcap --engine eval --json --verdicts").json());
    assert_eq!(sandbox.run("compile edge.weir -o edge.bundle --cpu x86-64-v3 --json").json()["rules"], 7);
    for (name, value) in [("PATH", ""), ("WEIR_CLANG", "/nonexistent/clang")] {
        for engine in ["", "--engine eval", "--engine native", "--engine xdp"] {
            let line = format!("replay edge.bundle --in traffic.pcap --json --verdicts {engine}");
            let ran = sandbox.run_with(line.split_whitespace(), |command| _ = command.env(name, value));
            assert_eq!(lasting(ran.json()), text, "{name}={value} {line}");
        }
    }
    let story = sandbox.run("why edge.bundle --in traffic.pcap --packet 1 --json").json();
    assert_eq!(story, sandbox.run("why edge.weir --in traffic.pcap --packet 1 --json").json());
    assert_eq!(sandbox.run("diff edge.weir edge.bundle --in traffic.pcap --json").json()["changed"], 0);
    sandbox.run("compile edge.bundle -o again.bundle").fails(2, &["is a bundle, which was checked"]);
    sandbox.run("compile edge.weir -o none/edge.bundle").fails(1, &["none/edge.bundle"]);
}

#[test]
fn without_a_compiler_the_interpreter_decides() {
    let sandbox = edge();
    let bare = |line: &str| {
        sandbox.run_with(line.split_whitespace(), |command| _ = command.env("PATH", "").env_remove("WEIR_CLANG"))
    };
    let ran = bare("replay edge.weir --in traffic.pcap --json");
    assert_eq!(ran.json()["engine"], "eval");
    assert!(ran.err.contains("clang-19") && ran.err.contains("the interpreter (engine eval) is used"), "{ran:?}");
    bare("replay edge.weir --in traffic.pcap --engine native").fails(1, &["apt-get install clang-19"]);
    bare("compile edge.weir -o edge.bundle").fails(1, &["apt-get install clang-19"]);
    assert_eq!(bare("check edge.weir").code, 0);
    let set = |command: &mut std::process::Command| _ = command.env("WEIR_CLANG", "/nonexistent/clang");
    sandbox.run_with(["replay", "edge.weir", "--in", "traffic.pcap"], set).fails(1, &["/nonexistent/clang"]);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let sandbox = Sandbox::new();
    sandbox
        .put("five.weir", include_str!("errors/five-mistakes.weir"))
        .put("geo.csv", "10.0.0.0/8,HR\n11.0.0.0/8,SI\n");
    let ran = sandbox.run("check five.weir");
    ran.fails(2, &["five.weir"]);
    let expected = include_str!("errors/five-mistakes.txt");
    let codes: Vec<&str> = expected.lines().filter(|line| line.starts_with("error[")).map(|line| &line[..12]).collect();
    assert!(codes.len() >= 5, "{expected}");
    ran.fails(2, &codes);
    for line in
        ["replay five.weir --in five.weir", "compile five.weir -o five.bundle", "why five.weir --in x --packet 1"]
    {
        sandbox.run(line).fails(2, &codes);
    }
    let json = sandbox.run("check five.weir --json");
    assert_eq!(json.code, 2);
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&report["valid"], report["errors"].as_array().unwrap().len()), (&json!(false), codes.len()));
}

#[test]
fn a_bad_line_of_a_list_is_named() {
    let sandbox = Sandbox::new();
    let mut list: String =
        (0..77_000).map(|host| format!("10.{}.{}.{}\n", host >> 16, host >> 8 & 255, host & 255)).collect();
    list += "10.1.2.300\n10.9.9.9\n";
    sandbox.put("lists/bad.txt", list).put_capture("one.pcap", "eth / ip / udp");
    let policy = |lenient: &str| {
        format!(
            "table bad {{ type ipv4; file \"lists/bad.txt\"{lenient} }}\nupstream {{ ip saddr @bad drop; accept }}\ndownstream {{ accept }}\n"
        )
    };
    sandbox.put("strict.weir", policy("")).put("lenient.weir", policy(" lenient"));
    for line in ["check strict.weir --quick", "replay strict.weir --in one.pcap --engine eval"] {
        sandbox.run(line).fails(2, &["lists/bad.txt:77001", "10.1.2.300"]);
    }
    let ran = sandbox.run("replay lenient.weir --in one.pcap --engine eval");
    ran.fails(0, &["lists/bad.txt", "1 bad line", "77001"]);
}

#[test]
fn run_and_ctl_say_what_they_lack() {
    let sandbox = edge();
    let run = |line: &str| sandbox.run(&format!("run edge.weir --control none/weir.sock {line}"));
    run("--engine afpacket --lower a,b --upper c,a").fails(2, &["interface a is given twice"]);
    sandbox
        .run_between("run edge.weir --engine afpacket --lower lower --upper upper --control none/weir.sock")
        .fails(1, &["none/weir.sock", "No such file"]);
    run("--engine smoke --lower a --upper b").fails(2, &["smoke", "afpacket", "afxdp"]);
    run("--engine afpacket --lower a --upper b --workers 0").fails(2, &["from 1 to 256"]);
    sandbox
        .run("run edge.weir --engine afpacket --lower nosuch0 --upper nosuch1 --control weir.sock")
        .fails(1, &["interface nosuch0", "No such"]);
    sandbox.put("plain", "no socket");
    sandbox
        .run_between("run edge.weir --engine afpacket --lower lower --upper upper --control plain")
        .fails(1, &["plain", "not a socket"]);
    assert!(sandbox.path("plain").exists() && !sandbox.path("weir.sock").exists());
    sandbox
        .run("run edge.weir --engine afpacket --eal --no-pci --lower eth0 --upper eth1")
        .fails(2, &["--engine dpdk"]);
    if cfg!(not(feature = "dpdk")) {
        let lacking = ["built without DPDK", "--features dpdk"];
        sandbox.run("run edge.weir --engine dpdk --lower net_memif0 --upper net_memif1").fails(2, &lacking);
    }
    sandbox.run("ctl status --control weir.sock").fails(1, &["weir.sock", "no `weir run` has its socket there"]);
    sandbox.run("ctl activate 1 --confirm soon --control weir.sock").fails(2, &["a time like"]);
}

#[test]
fn exit_codes_tell_mistakes_from_failures() {
    let sandbox = edge();
    sandbox.put("short.pcap", &weir::capture(TRAFFIC)[..200]);
    assert_eq!(sandbox.run("check edge.weir --quick").code, 0);
    assert_eq!(sandbox.run("--help").code, 0);
    sandbox.run("").fails(2, &["Usage"]);
    sandbox.run("frobnicate").fails(2, &["frobnicate"]);
    sandbox.run("check none.weir").fails(2, &["none.weir"]);
    sandbox.run("replay none.weir --in traffic.pcap").fails(2, &["none.weir"]);
    sandbox.run("replay edge.weir").fails(2, &["--in"]);
    sandbox.run("replay edge.weir --in none.pcap --engine eval").fails(1, &["none.pcap"]);
    sandbox.run("replay edge.weir --in edge.weir --engine eval").fails(1, &["edge.weir"]);
    sandbox.run("replay edge.weir --in traffic.pcap --engine quantum").fails(2, &["quantum"]);
    sandbox.run("replay edge.weir --in traffic.pcap --verdicts").fails(2, &["--json"]);
    sandbox.run("diff edge.weir none.weir --in traffic.pcap").fails(2, &["none.weir"]);
    // The packets before the damage are reported.
    let ran = sandbox.run("replay edge.weir --in short.pcap --engine eval --json");
    ran.fails(1, &["short.pcap"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap()["packets"], 2);
}

/// Packets of 1.5 seconds: ten per second from each of two addresses.
fn limited() -> Sandbox {
    let sandbox = Sandbox::new();
    let packet = |at: usize| {
        format!(
            "eth / ip saddr=192.0.2.1 / udp / at={0}.{1}\neth / ip saddr=198.51.100.7 / tcp / at={0}.{1}\n",
            at / 10,
            at % 10
        )
    };
    sandbox.put(
        "limit.weir",
        "limits slow { file \"slow.csv\"; default 2 burst 1; log all }\nupstream {\n  ip saddr limit @slow accept\n  udp limit rate 5 burst 1 \
         exceed divert\n  drop\n}\ndownstream { accept }\n",
    );
    sandbox.put("slow.csv", "prefix,rate,burst\n192.0.2.0/24,1,3\n203.0.113.0/24,10mbit\n2001:db8::/32,5\n");
    sandbox.put_capture("traffic.pcap", &(0..15).map(packet).collect::<String>());
    sandbox
}

#[test]
fn limits_go_by_the_time_of_the_capture() {
    let sandbox = limited();
    assert_eq!(sandbox.run("compile limit.weir -o limit.weirb").code, 0);
    for (policy, engine) in texts_and_bundles("limit") {
        let run = || sandbox.run(&format!("replay {policy} --in traffic.pcap --engine {engine} --json")).json();
        let report = run();
        // One address has 3 packets at once and 1 after a second. The other has 1 at once and then one per half second.
        assert_eq!((&report["passed"], &report["dropped"]), (&json!(7), &json!(23)), "{engine}");
        assert_eq!(report["reasons"], json!({"limit": 23, "limit.weir:3": 7}), "{engine}");
        assert_eq!(rule(&report["rules"][0]), ("limit.weir:3", 30, 15 * 42 + 15 * 54), "{engine}");
        assert_eq!(lasting(run()), lasting(report), "{engine}");
    }
    let ran = sandbox.run("replay limit.weir --in traffic.pcap --engine eval");
    assert!(ran.out.contains("(limit) limit.weir:3  ip saddr limit @slow accept"), "{ran:?}");

    let why = |packet: u32| sandbox.run(&format!("why limit.weir --in traffic.pcap --packet {packet} --json")).json();
    let (first, fourth) = (why(1), why(7));
    assert_eq!((&first["verdict"], &first["reason"]), (&json!("accept"), &json!("limit.weir:3")));
    assert_eq!((&fourth["verdict"], &fourth["reason"]), (&json!("drop"), &json!("limit")));
    assert_eq!(fourth["rules"][0]["limits"], json!([{"limit": "@slow", "exceeded": true}]));
    let ran = sandbox.run("why limit.weir --in traffic.pcap --packet 7");
    assert!(ran.out.contains("limit @slow: exceeded"), "{ran:?}");
}

#[test]
fn check_shows_lists_of_limits() {
    let sandbox = limited();
    let report = sandbox.run("check limit.weir --quick --json").json();
    let list = &report["limits"][0];
    let names = ["ipv4", "ipv6", "rates", "limiters", "bucket_bytes", "count_bytes"];
    let numbers = names.map(|name| list[name].as_u64().unwrap());
    // Three prefixes; two buckets for IPv4 besides the default bucket.
    assert_eq!(numbers, [2, 1, 3, 1, 24, 48]);
    assert_eq!(
        (&list["default"], &list["log"], &list["of"]),
        (&json!("2pps burst 1packets"), &json!("all"), &json!("prefixes"))
    );
    let ran = sandbox.run("check limit.weir --quick");
    assert!(ran.out.contains("slow") && ran.out.contains("24 B"), "{ran:?}");
    sandbox.put("slow.csv", "192.0.2.0/24,1\n192.0.2.0/24,fast\n");
    sandbox.run("check limit.weir --quick").fails(2, &["slow.csv:2: `192.0.2.0/24,fast`: not a rate"]);
    sandbox.put("slow.csv", "192.0.2.0/24,1\n192.0.2.0/24,2\n");
    sandbox
        .run("check limit.weir --quick")
        .fails(2, &["slow.csv:2: 192.0.2.0/24 is limited to 2pps", "in ", "slow.csv:1 to 1pps"]);
}

/// `weir bench` runs the program `weir-bench`.
#[test]
fn bench_hands_its_words_on() {
    let sandbox = Sandbox::new();
    let weir = sandbox.path("weir");
    install(env!("CARGO_BIN_EXE_weir").as_ref(), &weir).expect("the folder can be written to");
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(&weir);
        let output = command.arg("bench").args(words).env("PATH", "").output().expect("the program was built");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, stderr) = run(&["live"]);
    assert!(
        code == Some(1) && stderr.contains("weir-bench, which is neither in the directory of this program nor in PATH"),
        "{stderr}"
    );
    assert!(stderr.contains("--package weir-bench` builds it"), "{stderr}");
    let (code, stdout, _) = run(&["live", "--json"]);
    assert!(code == Some(1) && serde_json::from_str::<Value>(&stdout).is_ok(), "{stdout}");
    install_script("#!/bin/sh\necho \"$#: $*\"\nexit 3\n", &sandbox.path("weir-bench")).expect("it is a folder");
    for words in [&["--help"][..], &["live", "--only", "xdp", "--json", "--", "--list"], &[]] {
        let (code, stdout, stderr) = run(words);
        assert_eq!((code, stdout), (Some(3), format!("{}: {}\n", words.len(), words.join(" "))), "{stderr}");
    }
}
