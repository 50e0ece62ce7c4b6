//! Proxied connections whose policy or process changes: swaps in a handshake, and restarts.

use super::*;
use std::sync::Arc;
use weir_state::flows::FlowTable;
use weir_state::saved::{Clocks, Folder, Saver, restore};

/// Saves the flows of a table, and restores them in the same one as in a new process.
fn restart(table: &Arc<FlowTable>, policy: &Policy) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let needs = policy.program.flow_needs().expect("it tracks");
    let open = || Folder::open(folder.path()).expect("the folder is new");
    let mut saver = Saver::new(folder.path().to_owned(), Some(open()), Arc::default()).flows();
    saver.complete(Some((table, &needs.timeouts))).expect("there is room on the disk");
    drop(saver);
    table.clear();
    let saved = restore(&open(), Clocks::now()).expect("the file can be read").flows.expect("there is a file");
    saved.restore(table, &needs, Clocks::now());
    assert_eq!(saved.take_notices(), [""; 0]);
}

/// A restart between any two packets behind the cookie, and between all of them.
#[test]
fn handshakes_and_connections_continue_after_restarts() {
    let settings = ["synproxy mss 1460 wscale 7 sack-perm timestamp", "pickup off"].map(str::to_owned).to_vec();
    let policy = policy(&Script { settings, rules: vec![], cases: vec![] });
    let lines = [
        "+0 > S seq=100 window=64240 mss=1460 sackok ts=1000,0 wscale=8 : syn-cookie in none <= SA seq=C ack=101 win=0 mss=1460 sackok ts=T,1000 wscale=7",
        "+0 > A seq=101 ack=C+1 window=251 ts=1050,T : new in syn-sent => S seq=100 win=64256 mss=1460 sackok ts=1050,0 wscale=8",
        "+0 > A seq=101 ack=C+1 window=251 ts=1050,T : new in syn-sent => S seq=100 win=64256 mss=1460 sackok ts=1050,0 wscale=8",
        "+0 < SA seq=7000 ack=101 window=65160 mss=1460 sackok ts=9000,1050 wscale=9 : established in syn-recv => A seq=C ack=101 win=509 ts=T,1050 / 1",
        "+0 < SA seq=7000 ack=101 window=65160 mss=1460 sackok ts=9000,1050 wscale=9 : established in syn-recv => A seq=C ack=101 win=509 ts=T,1050 / 1",
        "+0 > A seq=101 ack=C+1 window=251 ts=1110,T : established in established => A seq=101 ack=7001 win=251 ts=1110,9000",
        "+0 < PA seq=7001 ack=101 window=128 ts=9060,1110 / payload 10 : established => PA seq=C+1 ack=101 win=512 ts=T+60,1110 / 10",
        "+0 > A seq=101 ack=C+11 window=251 ts=1160,T+60 : established => A seq=101 ack=7011 win=251 ts=1160,9060",
        "+0 < FA seq=7011 ack=101 window=1 ts=9090,1170 : established in fin-wait => FA seq=C+11 ack=101 win=4 ts=T+90,1170",
        "+0 > FA seq=101 ack=C+12 window=251 ts=1180,T+90 : established in last-ack => FA seq=101 ack=7012 win=251 ts=1180,9090",
    ];
    // A restart compares the times of flows with the clock, so compiling comes first.
    let (mut native, mut xdp) = (policy.native().expect("it compiles"), policy.xdp().expect("it loads"));
    let mut eval = EvalFilter::new(&policy.program, policy.answers());
    let (mut cookie, mut time_ns, mut passed) = (Cookie::default(), weir_state::now_ns(), vec![]);
    for line in lines {
        let line = (line, Carrier::Ipv6);
        assert_eq!(run_line(&policy, &mut eval, line, &mut cookie, &mut time_ns, &mut passed), [""; 0]);
    }
    let tables = [native.flow_table(), xdp.flow_table()].map(|table| table.expect("it tracks").clone());
    let filters: [(&str, &mut dyn Filter); 2] = [("native", &mut native), ("xdp", &mut xdp)];
    for ((engine, filter), table) in filters.into_iter().zip(tables) {
        for after in 1..=passed.len() {
            table.clear();
            for (nth, one) in passed.iter().enumerate() {
                let (verdict, leaves) = decide(filter, std::slice::from_ref(one)).remove(0);
                let at = format!("{engine}, restart after {after}, packet {nth}");
                assert_eq!(shown(&policy, verdict), shown(&policy, one.verdict), "{at}");
                assert_eq!(leaves, one.leaves, "{at}");
                if nth > 0 && (nth == after || after == passed.len()) {
                    restart(&table, &policy);
                }
            }
        }
    }
}

/// What the policy before offers, and what happens with the policy that takes over.
type Handshake<'a> = (&'a str, &'a [String]);

/// A policy takes over between the SYN-ACK and the ACK: what the client was offered counts, not what the policy offers.
/// Another client's SYN has set the epoch of cookies.
#[test]
fn a_swap_in_a_handshake_keeps_what_was_offered() {
    let other = "+0 > S seq=5 window=64240 mss=1460 ts=5,0 wscale=2 sport=9 dport=80 : syn-cookie";
    let syn = "+0 > S seq=100 window=64240 mss=1460 sackok ts=1000,0 wscale=8 : syn-cookie";
    let ack = "+0 > A seq=101 ack=C+1 window=251 ts=1050,T : new in syn-sent";
    let syn_ack =
        "+0 < SA seq=7000 ack=101 window=65160 mss=1460 sackok ts=9000,1050 wscale=9 : established in syn-recv";
    let data = "+0 < PA seq=7001 ack=101 window=128 ts=9060,1110 / payload 10 : established";
    let all = [
        format!("{ack} => S seq=100 win=64256 mss=1460 sackok ts=1050,0 wscale=8"),
        format!("{syn_ack} => A seq=C ack=101 win=509 ts=T,1050 / 1"),
        "+0 > A seq=101 ack=C+1 window=251 ts=1110,T : established => A seq=101 ack=7001 win=251 ts=1110,9000"
            .to_owned(),
        format!("{data} => PA seq=C+1 ack=101 win=512 ts=T+60,1110 / 10"),
    ];
    let without_shift = [
        format!("{ack} => S seq=100 win=251 mss=1460 sackok ts=1050,0"),
        "+0 < SA seq=7000 ack=101 window=65160 sackok ts=9000,1050 : established => A seq=C ack=101 win=65160 ts=T,1050 / 1"
            .to_owned(),
    ];
    let without_any = [
        "+0 > A seq=101 ack=C+1 window=251 : new in syn-sent => S seq=100 win=251 mss=1460".to_owned(),
        "+0 < SA seq=7000 ack=101 window=65160 : established => A seq=C ack=101 win=65160 / 1".to_owned(),
        "+0 < A seq=7001 ack=101 window=300 : established => A seq=C+1 ack=101 win=300".to_owned(),
    ];
    let (full, bare, no_shift) = ("mss 1460 wscale 7 sack-perm timestamp", "mss 1460", "mss 1460 sack-perm timestamp");
    let cases: [(&str, &[Handshake<'_>]); 3] = [
        (full, &[(no_shift, &without_shift), (bare, &without_any)]),
        ("mss 1300 wscale 3 timestamp", &[(full, &all)]),
        (bare, &[(full, &all), (no_shift, &without_shift)]),
    ];
    let proxying = |offer: &str| {
        let settings = vec![format!("synproxy {offer}"), "pickup off".to_owned()];
        policy(&Script { settings, rules: vec![], cases: vec![] })
    };
    let mut wrong = Vec::new();
    for (offer, befores) in cases {
        let policy = proxying(offer);
        let (mut native, mut xdp) = (policy.native().expect("it compiles"), policy.xdp().expect("it loads"));
        let tables = [native.flow_table(), xdp.flow_table()].map(|table| table.expect("it tracks").clone());
        for (before, lines) in befores {
            let before = proxying(before);
            let mut first = EvalFilter::new(&before.program, before.answers());
            let mut eval = EvalFilter::new(&policy.program, policy.answers());
            let (mut cookie, mut others) = (Cookie::default(), Cookie::default());
            let (mut time_ns, mut passed) = (START_NS, vec![]);
            let _answer = run_line(&before, &mut first, (syn, Carrier::Ipv4), &mut cookie, &mut time_ns, &mut vec![]);
            let _answer = run_line(&policy, &mut eval, (other, Carrier::Ipv4), &mut others, &mut time_ns, &mut passed);
            assert!(cookie.number != 0 && others.number != 0, "both SYNs are answered");
            for line in *lines {
                let line = (line.as_str(), Carrier::Ipv4);
                let differences = run_line(&policy, &mut eval, line, &mut cookie, &mut time_ns, &mut passed);
                wrong.extend(differences.iter().map(|difference| format!("{offer}: {difference}")));
            }
            wrong.extend(run_compiled(&policy, &mut native, &|| tables[0].clear(), &passed));
            wrong.extend(run_compiled(&policy, &mut xdp, &|| tables[1].clear(), &passed));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
