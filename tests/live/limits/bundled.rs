//! A bundle has the buckets and counts of the text policy before it, and gives them back.

use super::*;
use weir_engine::cpu::Cpu;
use weir_loading::LoadError;

/// Writes a policy, and another one as a bundle. The second list has more prefixes, so its image is larger.
fn policies(folder: &Path) -> Result<(), LoadError> {
    let policy = |name: &str, more: &str, rule: &str| {
        let list: String =
            (0..2000).map(|net| format!("10.{}.{}.0/24,1/hour,5\n", 100 + net / 256, net % 256)).collect();
        put(folder, &format!("{name}.csv"), &format!("10.20.1.0/24,1/hour,10\n{more}{list}"));
        let text = format!(
            "table places {{ type ipv4 : label; elements = {{ 10.20.4.0/24 : SI }} }}
limits customers {{ file \"{name}.csv\"; log all }}
limits countries {{ table places; elements = {{ SI : 1/hour burst 7 }} }}
upstream {{
  {rule}
  ip saddr limit @customers
  ip saddr limit @countries
  ip saddr {{ 10.20.2.0/24 }} limit rate 1/hour burst 8
  ip saddr {{ 10.20.3.0/24 }} limit each ip saddr/24 1/hour burst 9 size 1024
  accept
}}
downstream {{ accept }}
"
        );
        put(folder, &format!("{name}.weir"), &text);
    };
    policy("first", "", "");
    policy("second", "10.20.5.0/24,1/hour,4\n", "tcp dport 7 drop");
    let second = weir_loading::load(&folder.join("second.weir"))?;
    Ok(second.bundle(Cpu::Native)?.bundle.write(&folder.join("second.weirb"), None)?)
}

each_engine!(a_bundle_shares_its_limits_with_the_text_before_it);
fn a_bundle_shares_its_limits_with_the_text_before_it(engine: &str, hosts: &Hosts, folder: &Path) {
    const LISTED: [u8; 3] = [10, 20, 1];
    const RULE: [u8; 3] = [10, 20, 2];
    const EACH: [u8; 3] = [10, 20, 3];
    const LABEL: [u8; 3] = [10, 20, 4];
    /// In the second list only.
    const NEW: [u8; 3] = [10, 20, 5];
    policies(folder).unwrap_or_else(|error| panic!("{engine}: {error}"));
    let running = Running::start(&hosts.weir, folder, "first.weir", engine, 2);
    let mut sent = 0;
    let mut send_all = |counts: &[([u8; 3], usize)]| {
        let packets: Vec<Vec<u8>> =
            counts.iter().flat_map(|&(subnet, count)| from_hosts(subnet, 1..1 + count, 9)).collect();
        send(&hosts.client, "c", &packets);
        sent += packets.len() as u64;
        exceeded(&all_of(&running, sent))
    };
    let listed = || {
        let answer = running.ask(&Request::Limits { top: 5, list: Some("customers".to_owned()) });
        let answer = answer.unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
        let status: LimitsStatus = serde_json::from_value(answer).expect("counts of limits");
        let one = |limit: &CountedLimit| (limit.what.clone(), limit.passed, limit.exceeded);
        status.limits.iter().map(one).collect::<Vec<_>>()
    };
    let prefix = |subnet: [u8; 3]| {
        let [a, b, c] = subnet;
        Some(Limited::Prefix(format!("{a}.{b}.{c}.0/24")))
    };
    // Of each limit, all but one packet of the burst.
    assert_eq!(send_all(&[(LISTED, 9), (RULE, 7), (EACH, 8), (LABEL, 6), (NEW, 20)]), 0, "{engine}");
    let second = running.load(&folder.join("second.weirb"));
    running
        .ask(&Request::Activate { generation: second, confirm_s: None })
        .unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    // A worker whose clock was read earlier finds less room. So the last of a burst is sent later than the others.
    assert_eq!(send_all(&[(LISTED, 4), (RULE, 4), (EACH, 4), (LABEL, 4), (NEW, 3)]), 12, "{engine}: one of each limit");
    let exceeding = send_all(&[(NEW, 2)]);
    assert_eq!(exceeding, 12 + 1, "{engine}: four of the new one");
    assert_eq!(listed(), [(prefix(LISTED), Some(10), 3), (prefix(NEW), Some(4), 1)], "{engine}: counts go on");
    running.ask(&Request::Rollback).unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    let back = send_all(&[(LISTED, 2), (RULE, 2), (EACH, 2), (LABEL, 2), (NEW, 2)]);
    assert_eq!(back, exceeding + 8, "{engine}: the text finds what the bundle has charged");
    assert_eq!(listed(), [(prefix(LISTED), Some(10), 5)], "{engine}");
    assert_eq!(running.stop(), 0);
}
