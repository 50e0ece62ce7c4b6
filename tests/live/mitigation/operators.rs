//! What operators set up and decide: dismissed proposals, postures, IPv6, bundles, and `--state` beside mitigation.

use super::*;
use weir_control::BaselineListed;

/// A posture that is the last resort: without datagrams.
pub const POSTURES: &str = "
table blocked { type ipv4; dynamic; size 100 }
slot attacks { size 8 }
upstream { sample 1/1; ip saddr @blocked drop; slot attacks; accept }
downstream { sample 1/1; accept }
posture high {
  upstream { sample 1/1; udp drop; slot attacks; accept }
  downstream { sample 1/1; accept }
}
";

/// Sends frames at a moderate rate, again and again.
pub fn send(hosts: &Hosts, notation: String) -> Repeated {
    Repeated::on(&hosts.client, move || {
        let all = frames(&notation);
        let (mut wire, mut at) = (Wire::open("c").expect("the client has the wire"), 0);
        move || {
            for _ in 0..BURST {
                let bytes = &all[at % all.len()];
                let one = FrameSet::new(Link::Ethernet, [(bytes.as_slice(), bytes.len() as u32)]);
                wire.send(&one.burst(0)).expect("the wire takes frames");
                at += 1;
            }
            std::thread::sleep(PAUSE);
            true
        }
    })
}

/// Answers of service ports to an IPv6 host.
fn ipv6_flood() -> String {
    let frame = |at: u32| {
        let source = at * 7919 % 60_000 + 1;
        format!(
            "eth / ip6 saddr=2001:db8:ffff::{source:x} daddr=2001:db8::2 hlim=54 / udp sport=123 dport=80 / payload 440\n"
        )
    };
    (0..1000).map(frame).collect()
}

/// Datagrams that look as everyday questions do, to the port that serves, from hosts with every TTL. Answers would not
/// do: this server asks no questions.
pub fn everyday_flood() -> String {
    let frame = |at: u32| {
        let (high, low, port) = (at * 7 % 200, at * 13 % 250 + 1, 32_768 + at * 31 % 28_000);
        let ttl = [64, 64, 128, 255][at as usize % 4] - at * 5 % 20;
        let fill = at % 251;
        let bytes = [28, 32, 38, 44, 62][at as usize / 4 % 5] + at % 6;
        format!(
            "eth / ip saddr=10.20.{high}.{low} daddr=10.9.0.2 ttl={ttl} / udp sport={port} dport={SERVICE} / \
             payload {bytes} fill={fill}\n"
        )
    };
    (0..3000).map(frame).collect()
}

each_kind!(a_proposal_is_dismissed_and_a_posture_is_the_last_resort);
fn a_proposal_is_dismissed_and_a_posture_is_the_last_resort(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POSTURES);
    let options = ["--mitigate", "propose", "--inside", "10.9.0.2/32,2001:db8::/64", "--mitigate-posture", "high"];
    let more = options.into_iter().chain(["--mitigate-table", "blocked", "--mitigate-hold", "3s"]);
    let setup = Setup { more: more.map(str::to_owned).collect(), ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    let _client = in_peace(hosts, &running);

    // IPv6, and what is dismissed is not proposed again.
    let flood = send(hosts, ipv6_flood());
    let attack = wait_for_attack(&running, "it proposes", has("proposed"));
    assert_eq!((attack.victim.as_str(), attack.kind.as_str()), ("2001:db8::2", "udp-reflection"), "{attack:#?}");
    let rule = attack.actions[0].rule.clone();
    assert!(rule.starts_with("ip6 daddr 2001:db8::2 ") && rule.ends_with("drop"), "{rule}");
    let number = attack.attack.to_string();
    let (code, said) = ctl(&running, &["dismiss", &number]);
    assert!(code == 0 && said.starts_with(&format!("attack {number}: ")) && said.contains("dismissed"), "{said}");
    std::thread::sleep(Duration::from_secs(2));
    let now = wait_for_attack(&running, "it lasts", |now| now.attack == attack.attack);
    let of_rule: Vec<&str> = now.actions.iter().filter(|one| one.rule == rule).map(|one| one.state.as_str()).collect();
    assert_eq!(of_rule, ["dismissed"], "{engine}: {now:#?}");
    let (code, said) = ctl(&running, &["dismiss", "99"]);
    assert!(code == 2 && said.contains("there is no attack 99"), "{said}");
    assert_eq!((slot_rules(&running), dropped(&running)), (0, 0), "{engine}");
    drop(flood);

    // No signature separates everyday packets, and the victim is in use: the posture is left.
    let (code, said) = ctl(&running, &["mode", "act"]);
    assert!(code == 0, "{said}");
    let flood = send(hosts, everyday_flood());
    let is_resort = |attack: &AttackEntry| {
        attack.actions.iter().any(|action| action.action == "posture" && action.state == "active")
    };
    let attack = wait_for_attack(&running, "the posture is the last resort", is_resort);
    assert_eq!(attack.victim, "10.9.0.2", "{attack:#?}");
    let status = running.status();
    let automatic = status.automatic.expect("mitigation has activated it");
    assert_eq!((status.posture.as_deref(), automatic.posture.as_str()), (Some("high"), "high"), "{engine}");
    assert_eq!((automatic.in_place_of, status.rollback_to), (None, None), "the operator has decided nothing");
    drop(flood);
    running.wait_until("the posture is left", |running| running.status().posture.is_none());
    assert_eq!((running.status().automatic, running.status().rollback_to), (None, None), "{engine}");

    // It ends with the mode.
    let _flood = send(hosts, everyday_flood());
    wait_for_attack(&running, "the posture is taken again", is_resort);
    let (code, said) = ctl(&running, &["mode", "watch"]);
    assert!(code == 0 && !said.contains("; 0 "), "{said}");
    assert_eq!((running.status().posture, running.status().automatic), (None, None), "{engine}: {}", running.log());
    assert_eq!(running.stop(), 0);
}

each_kind!(a_bundle_is_mitigated_and_nothing_of_it_is_saved);
fn a_bundle_is_mitigated_and_nothing_of_it_is_saved(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let bundle = crate::form::compiled(&folder.join("p.weir"));
    let mut setup = setup(engine, "act");
    let path = |name: &str| folder.join(name).display().to_string();
    let more = ["--state", &path("state"), "--mitigate-export", &path("exports")];
    setup.more.extend(more.map(str::to_owned));
    let running = Running::start_as(&hosts.weir, folder, "p.weirb", &setup);
    let client = in_peace(hosts, &running);
    let flooding = flood(hosts);
    wait_for_attack(&running, "it acts", has("active"));
    running.wait_until("the flood is dropped", |running| dropped(running) > 100);
    drop((flooding, client));
    assert_eq!(running.stop(), 0);

    // The export names the bundle, and has the rules for its slot.
    let export = fs::read_dir(folder.join("exports")).expect("it exists").next().expect("there is one").expect("it is");
    let text = fs::read_to_string(export.path().join("expected.json")).expect("it was written");
    let expected: Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(expected["about"]["notes"].to_string().contains("is a bundle"), "{text}");
    assert_eq!(expected["slots"][0]["slot"], "attacks", "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("replay").arg(&bundle).args([
        "--engine",
        "native",
        "--in",
        "attack.pcapng",
        "--expect",
        "expected.json",
    ]);
    let ran = command.current_dir(export.path()).output().expect("the program was built");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));

    // Rules and attacks do not outlive the process.
    let running = Running::start_as(&hosts.weir, folder, "p.weirb", &setup);
    assert_eq!((slot_rules(&running), attacks(&running).attacks.len()), (0, 0), "{engine}: {}", running.log());
    assert_eq!(running.stop(), 0);
}

each_engine!(what_was_learned_is_listed_set_and_reset);
fn what_was_learned_is_listed_set_and_reset(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "watch"));
    let _client = in_peace(hosts, &running);
    let baseline = |arguments: &[&str]| ctl(&running, &[&["baseline"], arguments].concat());
    let (code, text) = baseline(&[]);
    assert!(code == 0 && text.contains("source: ") && text.contains("  10.9.0.2: "), "{text}");
    for arguments in [&["set", "10.9.0.77", "unproven.udp", "5000"][..], &["set", "source", "9000"]] {
        let (code, text) = baseline(arguments);
        assert!(code == 0 && text.contains("1 set"), "{text}");
    }
    let listed = running.ask(&Request::Attacks { operation: AttackOperation::Baseline { top: 100 } });
    let listed: BaselineListed = serde_json::from_value(listed.expect("it is learned")).expect("a baseline");
    let set = listed.prefixes.iter().find(|prefix| prefix.prefix == "10.9.0.77").expect("it was set");
    // It falls from then on, by half in an hour.
    assert!((4000.0..=5000.0).contains(&set.rates_pps["unproven.udp"]), "{set:?}");
    let (code, text) = baseline(&["reset", "10.9.0.77"]);
    assert!(code == 0 && text.contains("10.9.0.77: 1 forgotten"), "{text}");
    for (arguments, problem) in [
        (&["set", "source", "fast"][..], "`fast` is not a number of packets/s"),
        (&["set", "10.9.0.2", "udp", "1"], "`udp` is not a rate"),
        (&["set", "10.9.0.2", "1"], "which rate of the prefix?"),
        (&["reset", "10.9.0.2/24"], "bits behind the length"),
    ] {
        let (code, text) = baseline(arguments);
        assert!(code == 2 && text.contains(problem), "{text}");
    }
    assert_eq!(baseline(&["reset", "all"]).0, 0);
}
