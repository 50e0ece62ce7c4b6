//! A flood that goes on behind the SYN proxy of a posture is one attack.

use super::operators::send;
use super::*;

/// The proxy stands in front of the samples, so they do not show the flood.
const PROXY: &str = "
tracking { synproxy mss 1460 wscale 7 sack-perm timestamp }
slot attacks { size 8 }
upstream { sample 1/1; slot attacks; accept }
downstream { sample 1/1; accept }
posture high {
  upstream { tcp synproxy; sample 1/1; slot attacks; accept }
  downstream { tcp track; sample 1/1; accept }
}
";
/// Windows that the flood goes on behind the proxy: 10 s, three times what the posture is held without packets.
const WINDOWS: u64 = 40;

/// SYNs as hosts of all kinds send them, to the port that serves.
fn syns() -> String {
    let frame = |at: u32| {
        let random = at.wrapping_mul(0x9e37_79b1);
        let draw = |bits: u32, of: u32| random.rotate_left(bits).wrapping_mul(0x85eb_ca6b) % 0xffff % of;
        let [_, _, high, low] = random.to_be_bytes();
        let ttl = [64, 64, 128, 255][draw(3, 4) as usize] - draw(7, 20);
        let window = [64_240, 65_535, 29_200, 8_192][draw(11, 4) as usize];
        let options = ["020405b40103030801010402", "020405b40402080a00000001000000000103030a"][draw(17, 2) as usize];
        format!(
            "eth / ip saddr=10.20.{}.{} daddr=10.9.0.2 ttl={ttl} / tcp sport={} dport={SERVICE} flags=syn \
             window={window} seq={random} options={options}\n",
            high % 200,
            low % 250 + 1,
            1024 + draw(23, 60_000)
        )
    };
    (0..4000).map(frame).collect()
}

each_kind!(a_flood_that_a_posture_answers_with_cookies_is_one_attack);
fn a_flood_that_a_posture_answers_with_cookies_is_one_attack(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", PROXY);
    let options =
        ["--mitigate", "act", "--inside", "10.9.0.2/32", "--mitigate-hold", "3s", "--mitigate-posture", "high"];
    let setup = Setup { more: options.map(str::to_owned).to_vec(), ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    let _client = in_peace(hosts, &running);
    let is_resort = |attack: &AttackEntry| {
        attack.actions.iter().any(|action| action.action == "posture" && action.state == "active")
    };
    let floods = [send(hosts, syns()), send(hosts, syns())];
    let begun = wait_for_attack(&running, "the posture is the last resort", is_resort);
    let cookies = || running.stats().upstream.total.reasons.get("syn-cookie").copied().unwrap_or(0);
    let (windows, before) = (attacks(&running).samples.windows, cookies());
    running.wait_until("the flood goes on", |running| attacks(running).samples.windows >= windows + WINDOWS);
    assert!(cookies() > before + 1000, "{engine}: {}", running.log());
    let listed = attacks(&running).attacks;
    let [attack] = &listed[..] else { panic!("{engine}: {listed:#?}\n{}", running.log()) };
    assert!(attack.attack == begun.attack && !attack.is_over, "{engine}: {attack:#?}");
    let postures: Vec<&str> =
        attack.actions.iter().filter(|action| action.action == "posture").map(|action| action.state.as_str()).collect();
    assert_eq!(postures, ["active"], "{engine}: {attack:#?}\n{}", running.log());

    // It ends with the flood.
    drop(floods);
    running.wait_until("the posture is left", |running| running.status().posture.is_none());
    wait_for_attack(&running, "the attack is over", |attack| attack.is_over);
    assert_eq!(attacks(&running).attacks.len(), 1, "{engine}: {}", running.log());
    assert_eq!(running.stop(), 0);
}
