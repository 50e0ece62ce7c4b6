//! `weir run` over ssh: a policy that would end the operator's own connection is refused, or he is asked.

use crate::weir::{Ran, Sandbox};
use std::io::Write;
use std::process::{Command, Stdio};

/// What sshd tells a shell. Both ends are this machine, so every interface of the test is the loopback.
const IPV4: &str = "127.0.0.1 50000 127.0.0.1 22";
const IPV6: &str = "::1 50000 ::1 22";
const LINE: &str = "run p.weir --engine xdp --host lo --control c.sock";

fn run(sandbox: &Sandbox, line: &str, connection: &str) -> Ran {
    sandbox.run_with(line.split_whitespace(), |command| _ = command.env("SSH_CONNECTION", connection))
}

/// Whether the policy is refused because of the connection. The loopback is refused later, so nothing ever starts.
#[track_caller]
fn is_refused(policy: &str, connection: &str, words: &[&str]) {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", policy);
    let ran = run(&sandbox, LINE, connection);
    match words {
        [] => assert!(!ran.err.contains("your own connection"), "{policy}: {ran:?}"),
        words => {
            ran.fails(2, &["p.weir would end your own connection", "--drop-own-connection"]);
            ran.fails(2, words);
        }
    }
}

#[test]
fn a_policy_that_drops_the_operators_packets_is_refused_with_the_rule() {
    let from = "from 127.0.0.1:50000 to 127.0.0.1:22";
    is_refused(
        "upstream {\n  tcp dport 80 accept\n  drop\n}\ndownstream { accept }\n",
        IPV4,
        &[from, "p.weir:3 drops a packet from you: `drop`"],
    );
    is_refused(
        "upstream { accept }\ndownstream {\n  tcp sport 22 drop\n  accept\n}\n",
        IPV4,
        &["p.weir:3 drops a packet to you: `tcp sport 22 drop`"],
    );
    is_refused(
        "upstream { ip saddr 127.0.0.0/8 accept; drop }\ndownstream { accept }\n",
        IPV6,
        &["from [::1]:50000 to [::1]:22"],
    );
    is_refused("upstream { divert }\ndownstream { accept }\n", IPV4, &["p.weir:1 drops a packet from you"]);
    let admins = "table admins { type ipv4; elements = { 192.0.2.0/24 } }\n";
    is_refused(
        &format!("{admins}upstream {{ ip saddr @admins accept; drop }}\ndownstream {{ accept }}\n"),
        IPV4,
        &[from],
    );
}

#[test]
fn connections_that_stand_and_new_ones_are_tried() {
    let tracked = |settings: &str, upstream: &str| {
        format!(
            "tracking {{ size 1024{settings} }}\nupstream {{ tcp track; {upstream}; drop }}\ndownstream {{ tcp track; accept }}\n"
        )
    };
    let both = "ct state established accept; ct state new tcp dport 22 accept";
    is_refused(&tracked("", both), IPV4, &[]);
    is_refused(&tracked("; pickup off", both), IPV4, &["a packet from you"]);
    is_refused(&tracked("", "ct state established accept"), IPV4, &["your own connection"]);
    // New connections are refused, but open connections stay.
    is_refused(
        "upstream { tcp flags & (syn | ack) == syn drop; accept }\ndownstream { accept }\n",
        IPV4,
        &["drops the SYN of a new connection from you"],
    );
}

/// A connection that passes ends all the same if neighbours cannot be found.
#[test]
fn what_finds_neighbours_must_pass_too() {
    let arp = |default: &str| {
        format!("defaults {{ arp {default} }}\nupstream {{ tcp dport 22 accept; drop }}\ndownstream {{ accept }}\n")
    };
    is_refused(&arp("accept"), IPV4, &[]);
    is_refused(&arp("drop"), IPV4, &["ARP, without which your connection ends, is dropped: arp"]);
    let icmp = |rule: &str| format!("upstream {{\n  tcp dport 22 accept\n  {rule}\n}}\ndownstream {{ accept }}\n");
    let only_discovery = "ip6 hoplimit 255 icmpv6 type { 135, 136 } accept; drop";
    is_refused(&icmp(only_discovery), IPV6, &[]);
    is_refused(&icmp("drop"), IPV6, &["p.weir:3 drops neighbour discovery (ICMPv6)", "`drop`"]);
}

#[test]
fn other_policies_and_other_connections_start() {
    let open = "upstream { tcp dport 22 accept; drop }\ndownstream { accept }\n";
    is_refused(open, IPV4, &[]);
    is_refused(&open.replace("upstream {", "upstream { icmpv6 accept;"), IPV6, &[]);
    let shut = "upstream { drop }\ndownstream { drop }\n";
    for elsewhere in [
        // No address of this machine, as in a container.
        "127.0.0.1 50000 192.0.2.77 22",
        "",
        "nonsense",
        "127.0.0.1 50000 127.0.0.1",
        "127.0.0.1 99999 127.0.0.1 22",
    ] {
        let sandbox = Sandbox::new();
        sandbox.put("p.weir", shut);
        // The parents of the test may be logged in, too, but not through this interface.
        let ran = run(&sandbox, "run p.weir --engine xdp --host none --control c.sock", elsewhere);
        assert!(!ran.err.contains("your own connection"), "{elsewhere}: {ran:?}");
    }
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", shut);
    let elsewhere = run(&sandbox, "run p.weir --engine xdp --host none --control c.sock", IPV4);
    assert!(!elsewhere.err.contains("your own connection"), "another interface: {elsewhere:?}");
    for line in [format!("{LINE} --drop-own-connection"), format!("{LINE} --drop-own-connection --confirm 60s")] {
        let ran = run(&sandbox, &line, IPV4);
        assert!(!ran.err.contains("your own connection"), "{line}: {ran:?}");
    }
    // A trial would be an outage all the same.
    run(&sandbox, &format!("{LINE} --confirm 60s"), IPV4).fails(2, &["your own connection"]);
    run(&sandbox, &format!("{LINE} --confirm 0s"), IPV4).fails(2, &["--confirm: a time above 0 and up to 30 days"]);
}

#[test]
fn between_two_sides_the_hosts_own_address_counts_too() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", "upstream { tcp dport 80 accept; drop }\ndownstream { accept }\n");
    let line = "run p.weir --engine afpacket --lower lo --upper none --control c.sock";
    run(&sandbox, line, IPV4).fails(2, &["p.weir would end your own connection", "p.weir:1 drops a packet from you"]);
}

#[test]
fn a_connection_that_only_a_parent_process_knows_counts() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", "upstream { drop }\ndownstream { accept }\n");
    // As sudo does, the second shell removes the variable.
    let script = format!("env -u SSH_CONNECTION sh -c '\"$0\" {LINE}; exit $?' \"$0\"; exit $?");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).env("SSH_CONNECTION", IPV4);
    let output = command.current_dir(sandbox.path("")).stdin(Stdio::null()).output().expect("there is a shell");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && err.contains("p.weir would end your own connection"), "{err}");
}

/// Runs the program on a terminal, and answers its question.
fn on_terminal(sandbox: &Sandbox, answer: &str) -> String {
    let mut command = Command::new("script");
    let line = format!("{} {LINE}", env!("CARGO_BIN_EXE_weir"));
    command.args(["-qec", &line, "/dev/null"]).current_dir(sandbox.path("")).env("SSH_CONNECTION", IPV4);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is util-linux");
    child.stdin.take().expect("it is piped").write_all(answer.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn on_a_terminal_the_operator_is_asked() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", "upstream { drop }\ndownstream { accept }\n");
    for (answer, starts) in [("y\n", true), ("yes\n", true), ("n\n", false), ("\n", false), ("maybe\n", false)] {
        let shown = on_terminal(&sandbox, answer);
        assert!(shown.contains("p.weir would end your own connection") && shown.contains("[y/N]"), "{shown}");
        assert_eq!(shown.contains("weir: not started"), !starts, "{answer:?}: {shown}");
    }
}
