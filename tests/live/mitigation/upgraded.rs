//! A flood goes on while Weir is upgraded: it stays one attack, and is held.

use super::*;

test_on!([xdp] an_attack_that_is_held_stays_held_in_an_upgrade);
fn an_attack_that_is_held_stays_held_in_an_upgrade(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let mut setup = setup(engine, "act");
    let events = folder.join("events");
    setup.more.extend(["--mitigate-log".to_owned(), events.display().to_string()]);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    let client = in_peace(hosts, &running);
    let flood = flood(hosts);
    let before = wait_for_attack(&running, "it acts", has("active"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let done = command.args(["ctl", "--control"]).arg(running.control()).arg("upgrade").output().expect("it was built");
    assert!(done.status.success(), "{done:?}\n{}", running.log());
    // The first answer of the new program has the attack with its rules.
    let listed = attacks(&running);
    let [attack] = &listed.attacks[..] else { panic!("{listed:#?}\n{}", running.log()) };
    assert!(attack.attack == before.attack && !attack.is_over && has("active")(attack), "{attack:#?}");
    assert!(slot_rules(&running) > 0, "{attack:#?}");
    let (dropped_before, windows) = (dropped(&running), listed.samples.windows);
    running.wait_until("windows pass", |running| attacks(running).samples.windows > windows + 8);
    assert!(dropped(&running) > dropped_before, "{}", running.log());
    drop(flood);
    wait_for_attack(&running, "it is over", |attack| attack.is_over);
    assert_eq!((attacks(&running).attacks.len(), slot_rules(&running)), (1, 0), "{}", running.log());
    drop(client);
    assert_eq!(running.stop(), 0);
    let events = fs::read_to_string(events).expect("it was written");
    assert_eq!(["attack-began", "attack-ended"].map(|name| events.matches(name).count()), [1, 1], "{events}");
}
