//! A flood goes on while Weir is upgraded: it stays one attack, and is held, also by a posture.

use super::operators::{POSTURES, everyday_flood, send};
use super::*;
use crate::upgrades::upgraded;

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

test_on!([afpacket, xdp] an_automatic_posture_continues_and_ends_after_an_upgrade);
fn an_automatic_posture_continues_and_ends_after_an_upgrade(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POSTURES);
    let mut setup = setup(engine, "act");
    setup.more.extend(["--mitigate-posture", "high"].map(str::to_owned));
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    let client = in_peace(hosts, &running);
    let flood = send(hosts, everyday_flood());
    let is_held = |attack: &AttackEntry| {
        attack.actions.iter().any(|action| action.action == "posture" && action.state == "active")
    };
    let attack = wait_for_attack(&running, "the posture is the last resort", is_held);
    let decides = |status: &Status| (status.generation, status.posture.clone(), status.automatic.clone());
    let before = decides(&running.status());
    assert!(before.1.as_deref() == Some("high") && before.2.is_some(), "{engine}: {before:?}");
    let missing = upgraded(&running).carried.expect("it was upgraded").missing;
    assert_eq!((decides(&running.status()), missing), (before, vec![]), "{engine}: {}", running.log());
    assert!(attacks(&running).attacks.iter().any(|one| one.attack == attack.attack && is_held(one)), "{engine}");
    // The action that the new program has taken over ends it.
    drop(flood);
    running.wait_until("the posture is left", |running| running.status().posture.is_none());
    let status = running.status();
    assert_eq!((status.automatic, status.rollback_to), (None, None), "{engine}: {}", running.log());
    assert!(running.log().contains("the automatic posture high ends: it is not needed any more"), "{}", running.log());
    drop(client);
    assert_eq!(running.stop(), 0);
}
