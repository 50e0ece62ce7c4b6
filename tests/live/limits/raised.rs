//! A limit that was raised passes packets at once, although its bucket is deep in debt by the old limit.

use super::*;

each_engine!(a_raised_limit_passes_at_once);
fn a_raised_limit_passes_at_once(engine: &str, hosts: &Hosts, folder: &Path) {
    const LISTED: [u8; 3] = [10, 20, 1];
    const RULE: [u8; 3] = [10, 20, 2];
    const EACH: [u8; 3] = [10, 20, 3];
    /// Packets of each subnet after the change: the new burst but one, because two CPUs may read the clock.
    const AFTER: usize = 9;
    let policy = |name: &str, [listed, rule, each]: [&str; 3]| {
        let text = format!(
            "limits customers {{ elements = {{ 10.20.1.0/24 : {listed} }} }}
upstream {{
  ip saddr limit @customers
  ip saddr {{ 10.20.2.0/24 }} limit rate {rule}
  ip saddr {{ 10.20.3.0/24 }} limit each ip saddr/24 {each} size 1024
  accept
}}
downstream {{ accept }}
"
        );
        put(folder, name, &text);
    };
    // Debts of ten hours, of ten hours, and of thirty seconds. Both rates for each address have the same ticks, so the
    // table is kept.
    policy("first.weir", ["1/hour burst 10", "1/hour burst 10", "100pps burst 3000"]);
    policy("second.weir", ["10kpps burst 10", "10kpps burst 10", "110pps burst 10"]);
    // Of two workers, one may refuse a packet by an earlier time than the other one had, and the next packet passes.
    let running = Running::start(&hosts.weir, folder, "first.weir", engine, 1);
    let mut sent = 0;
    let mut send_all = |counts: [usize; 3]| {
        for (subnet, mut left) in [LISTED, RULE, EACH].into_iter().zip(counts) {
            while left > 0 {
                let some = left.min(200);
                send(&hosts.client, "c", &from_hosts(subnet, 1..1 + some, 9));
                (sent, left) = (sent + some as u64, left - some);
            }
        }
        exceeded(&all_of(&running, sent))
    };
    let before = send_all([15, 15, 4000]);
    // The last one passes a hundred more for each second that the sender takes.
    assert!(before > 5 + 5, "{engine}: every limit is exceeded: {before}");
    let second = running.load(&folder.join("second.weir"));
    assert_eq!(send_all([1, 1, 0]), before + 2, "{engine}: a generation that is only loaded changes nothing");
    let activate = Request::Activate { generation: second, confirm_s: None };
    running.ask(&activate).unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    // The slowest of the new limits earns its burst in this time.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(send_all([AFTER; 3]), before + 2, "{engine}: every packet has room");
    // A rollback begins with the small debts of the new limits, so all bursts are nearly whole.
    running.ask(&Request::Rollback).unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    assert_eq!(send_all([9, 9, 2000]), before + 2, "{engine}: lower limits keep the debt that there is");
    assert_eq!(send_all([9, 9, 0]), before + 2 + 8 + 8, "{engine}: they hold from then on");
    assert_eq!(running.stop(), 0);
}
