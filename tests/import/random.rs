//! Random rulesets, of words that rulesets are made of: whatever is imported has a policy that the compiler takes.

use proptest::prelude::*;
use weir_import::{Options, Source};

/// Matches and targets of iptables, sensible or not.
const WORDS: [&str; 30] = [
    "-p tcp",
    "-p udp",
    "! -p icmp",
    "-p 47",
    "-s 192.0.2.77/24",
    "! -d 10.0.0.0/8",
    "-i eth0",
    "! -o eth1",
    "-i lo",
    "-i eth+",
    "-m tcp --dport 22",
    "-m multiport --ports 1,5:9",
    "-m multiport ! --dports 70000",
    "--tcp-flags ALL NONE",
    "! --syn",
    "-m conntrack --ctstate NEW,RELATED",
    "-m state ! --state INVALID",
    "-m limit --limit 3/day",
    "-m limit --limit 9/sec",
    "-m hashlimit --hashlimit-above 5/sec --hashlimit-mode srcip --hashlimit-name x",
    "-m connlimit --connlimit-above 600",
    "-m connlimit --connlimit-above 5 --connlimit-mask 24",
    "-m set --match-set gone src",
    "-m length --length 10:5",
    "-f",
    "-m ttl --ttl-lt 0",
    "-m icmp --icmp-type 3/99",
    "-m iprange --src-range 9.9.9.9-1.1.1.1",
    "-m mark --mark 0x1/0x1",
    "-m comment --comment \"} drop # {\"",
];
const TARGETS: [&str; 12] = [
    "-j ACCEPT",
    "-j DROP",
    "-j REJECT --reject-with tcp-reset",
    "-j RETURN",
    "-j a",
    "-j b",
    "-g b",
    "-j LOG --log-prefix \"x\"",
    "-j MARK --set-xmark 0x1/0xffffffff",
    "-j NFQUEUE --queue-num 1",
    "-j SET --add-set gone src",
    "",
];
/// Expressions of nftables, likewise.
const EXPRESSIONS: [&str; 24] = [
    r#"{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":{"set":[22,{"range":[80,90]}]}}}"#,
    r#"{"match":{"op":"!=","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":{"prefix":{"addr":"10.0.0.1","len":8}}}}"#,
    r#"{"match":{"op":"<","left":{"payload":{"protocol":"ip","field":"ttl"}},"right":0}}"#,
    r#"{"match":{"op":">","left":{"payload":{"protocol":"udp","field":"length"}},"right":99999}}"#,
    r#"{"match":{"op":"==","left":{"payload":{"base":"nh","offset":1000,"len":999}},"right":5}}"#,
    r#"{"match":{"op":"in","left":{"payload":{"protocol":"tcp","field":"flags"}},"right":["syn","ack"]}}"#,
    r#"{"match":{"op":"==","left":{"&":[{"payload":{"protocol":"tcp","field":"flags"}},["fin","syn"]]},"right":["fin","rst"]}}"#,
    r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}}"#,
    r#"{"match":{"op":"!=","left":{"ct":{"key":"state"}},"right":"new"}}"#,
    r#"{"match":{"op":"==","left":{"meta":{"key":"iifname"}},"right":"eth0"}}"#,
    r#"{"match":{"op":"==","left":{"meta":{"key":"mark"}},"right":"5"}}"#,
    r#"{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"daddr"}},"right":"@gone"}}"#,
    r#"{"match":{"op":"==","left":{"payload":{"protocol":"ip6","field":"daddr"}},"right":"@v4"}}"#,
    r#"{"vmap":{"key":{"payload":{"protocol":"udp","field":"dport"}},"data":{"set":[[53,{"accept":null}],[54,{"jump":{"target":"a"}}]]}}}"#,
    r#"{"limit":{"rate":5,"burst":5,"per":"second"}}"#,
    r#"{"limit":{"rate":18446744073709551615,"burst":0,"per":"week","inv":true,"rate_unit":"mbytes","burst_unit":"bytes"}}"#,
    r#"{"set":{"op":"add","elem":{"payload":{"protocol":"ip","field":"saddr"}},"set":"@v4","stmt":[{"ct count":{"val":900,"inv":true}}]}}"#,
    r#"{"set":{"op":"update","elem":{"elem":{"val":{"payload":{"protocol":"ip","field":"saddr"}},"timeout":10}},"set":"@v4"}}"#,
    r#"{"log":null}"#,
    r#"{"drop":null}"#,
    r#"{"accept":null}"#,
    r#"{"return":null}"#,
    r#"{"goto":{"target":"b"}}"#,
    r#"{"jump":{"target":"a"}}"#,
];

fn lines() -> impl Strategy<Value = String> {
    let rule = (0..3usize, prop::collection::vec(0..WORDS.len(), 0..4), 0..TARGETS.len());
    prop::collection::vec(rule, 0..12).prop_map(|rules| {
        let mut text = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [1:2]\n:a - [0:0]\n:b - [0:0]\n".to_owned();
        for (chain, words, target) in rules {
            let words: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
            // A chain calls only later ones.
            let target = if chain > 0 { TARGETS[target].replace("-j a", "-j b") } else { TARGETS[target].to_owned() };
            let target = if chain == 2 { target.replace("-j b", "").replace("-g b", "") } else { target };
            text += &format!("-A {} {} {target}\n", ["FORWARD", "a", "b"][chain], words.join(" "));
        }
        text + "COMMIT\n"
    })
}

fn objects() -> impl Strategy<Value = String> {
    let rule = (0..3usize, prop::collection::vec(0..EXPRESSIONS.len(), 0..4));
    prop::collection::vec(rule, 0..12).prop_map(|rules| {
        let chain =
            |name: &str, more: &str| format!(r#"{{"chain":{{"family":"inet","table":"t","name":"{name}"{more}}}}}"#);
        let mut all = vec![
            chain("f", r#","type":"filter","hook":"forward","prio":0,"policy":"drop""#),
            chain("a", ""),
            chain("b", ""),
            r#"{"set":{"family":"inet","table":"t","name":"v4","type":"ipv4_addr","elem":["192.0.2.1"]}}"#.to_owned(),
        ];
        for (index, (chain, expressions)) in rules.into_iter().enumerate() {
            let is_call = |text: &str| text.contains("\"target\"");
            let expressions =
                expressions.into_iter().map(|at| EXPRESSIONS[at]).filter(|text| chain == 0 || !is_call(text));
            let expressions: Vec<&str> = expressions.collect();
            let name = ["f", "a", "b"][chain];
            all.push(format!(
                r#"{{"rule":{{"family":"inet","table":"t","chain":"{name}","handle":{index},"expr":[{}]}}}}"#,
                expressions.join(",")
            ));
        }
        format!(r#"{{"nftables":[{}]}}"#, all.join(","))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_policy_that_comes_out_compiles(lines in lines(), objects in objects(), outside in any::<bool>()) {
        let outside = if outside { vec!["eth0".to_owned()] } else { Vec::new() };
        let options = Options { outside, ..Options::default() };
        let source = |text: String| Source { name: "random".to_owned(), text };
        // The importer has the compiler check what comes out, and refuses what has errors.
        let imported = [
            weir_import::iptables(&[source(lines)], &options),
            weir_import::nft(&source(objects), &options),
        ];
        for imported in imported {
            prop_assert!(imported.is_ok(), "{}", imported.unwrap_err());
        }
    }
}
