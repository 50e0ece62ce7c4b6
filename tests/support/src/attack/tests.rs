use super::expectation::{Amount, Claim};
use super::{PolicySource, START_NS, attack};

const HEAD: &str = "who a spoofer\nwants harm\npromise none\npolicy\n  upstream { accept }\nend\n";

fn read(body: &str) -> super::Attack {
    attack(&format!("{HEAD}{body}")).unwrap_or_else(|error| panic!("{error}\n{body}"))
}

fn error(body: &str) -> String {
    attack(&format!("{HEAD}{body}")).expect_err("it is wrong")
}

#[test]
fn packets_come_in_the_order_of_their_times() {
    let attack = read(
        "let ask ip saddr=[10.0.0.0 + $] / udp\neach 0-2 every 2s\n  attacker > $ask sport=[1000 + $ * 2]\nend\n\
         at 1s\ncustomer < ip / tcp : drop in none # why\n+0.5 customer > ip / tcp seq=C+1 / at=0.25\n\
         expect everyone accepted all\n",
    );
    assert_eq!(attack.policy, Some(PolicySource::Text("  upstream { accept }\n".into())));
    let seen: Vec<_> = attack.steps.iter().map(|step| (step.time_ns / 1_000_000, step.sender.as_str())).collect();
    assert_eq!(seen, [(0, "attacker"), (1000, "customer"), (1500, "customer"), (2000, "attacker"), (4000, "attacker")]);
    let [first, answer, late, .., last] = &attack.steps[..] else { panic!("five packets") };
    assert_eq!((first.line, first.is_upstream, answer.is_upstream), (9, true, false));
    assert_eq!((answer.expected.as_deref(), answer.flows.as_ref().map(Vec::len)), (Some("drop"), Some(0)));
    assert_eq!(late.packet.time_ns, START_NS + 250_000_000);
    assert_eq!(late.with_cookie(8).expect("it reads").bytes[24..28], [0, 0, 0, 9]);
    assert_eq!((last.packet.bytes[15], &last.packet.bytes[20..22]), (2, &[3, 236][..]));
}

#[test]
fn loops_are_nested() {
    let attack = read("each n = 1-2\neach 3-4 every 10ms\nx > ip ttl=[$n * 10 + $] : accept\nend\n+1 x < ip\nend\n");
    let ttls: Vec<_> = attack.steps.iter().map(|step| (step.time_ns / 1_000_000, step.packet.bytes[8])).collect();
    assert_eq!(ttls, [(0, 13), (10, 14), (1020, 64), (1020, 23), (1030, 24), (2040, 64)]);
}

#[test]
fn expectations() {
    let claim = |text: &str| Claim::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let Claim::Packets { whose, fate, amount } = claim("attacker from 2s until 1m state-full at most 0.1%") else {
        panic!("of packets")
    };
    assert_eq!((whose.sender.as_str(), whose.from_ns, whose.until_ns), ("attacker", 2_000_000_000, 60_000_000_000));
    assert_eq!((fate.as_str(), amount), ("state-full", Amount::AtMostPercent(0.1)));
    assert_eq!(claim("flows established 1"), Claim::Flows { state: "established".into(), amount: Amount::Exactly(1) });
    assert_eq!(claim("detect spares everybody"), Claim::Spares(None));
    assert_eq!(claim("detect blocks 192.0.2.1"), Claim::Blocks(Some("192.0.2.1".into())));
    let before_ns = Some(250_000_000);
    assert_eq!(claim("detect attack on 192.0.2.1 before 250ms"), Claim::Attack { on: "192.0.2.1".into(), before_ns });
    assert!(Amount::AtLeastPercent(80.0).holds(8, 10) && !Amount::AtLeastPercent(80.0).holds(7, 10));
    assert!(Amount::All.holds(3, 3) && !Amount::Exactly(0).holds(1, 3) && Amount::AtMost(1).holds(1, 3));
}

#[test]
fn mistakes_name_the_line() {
    let fine = "x > ip : accept\n";
    for (body, message) in [
        ("x > ip\n", "line 1: nothing is expected"),
        ("expect x accepted all\n", "line 1: there are no packets"),
        ("x ! ip\n", "line 7: `x ! ip` is no packet such as `attacker > ip / udp`"),
        ("x > ipp : accept\n", "line 7: no layer is called `ipp`"),
        ("everyone > ip : accept\n", "line 7: `everyone` sends no packets"),
        ("x > ip ttl=$n : accept\n", "line 7: `$n` is unknown"),
        ("each 1-2\nx > ip : accept\n", "line 7: `each` has no `end`"),
        ("each 2-1\nx > ip : accept\nend\n", "line 7: `2-1` is no range"),
        ("each 1-2\nat 1s\nend\nx > ip : accept\n", "line 7: the loop has no packets"),
        ("x > ip : any\n", "line 7: nothing is expected behind ` : `"),
        ("end\n", "line 7: `end` without `each`"),
        ("each 1-999999\nx > ip : accept\nend\n", "line 8: more than 200000 packets"),
        ("at noon\n", "line 7: `noon` is no time such as 20ms or 1.5s"),
        ("who again\n", "line 7: a second `who`"),
        ("policy b.weir\n", "line 7: a second policy"),
        ("let A ip\n", "line 7: `A` is no name: small letters and `_`"),
    ] {
        assert_eq!(error(body), message, "{body}");
    }
    for (expected, message) in [
        ("y accepted all", "line 8: `y` sends no packets"),
        ("x accepted", "line 8: `` is no amount such as `all`, `none`, `7` or `at most 0.1%`"),
        ("x", "line 8: what is expected of these packets?"),
        ("detect x accepted all", "line 8: `accepted all`: detection only says what is `dropped`"),
        ("detect no attack", "line 1: `inside` is missing"),
    ] {
        assert_eq!(error(&format!("{fine}expect {expected}\n")), message, "{expected}");
    }
    assert_eq!(attack("x > ip : accept\n").expect_err("it is wrong"), "line 1: `who` is missing");
    let no_policy = "who a\nwants b\npromise c\nx > ip : accept\n";
    assert_eq!(attack(no_policy).expect_err("it is wrong"), "line 1: a policy is missing");
}
