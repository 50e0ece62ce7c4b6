//! Snapshots of a Weir in different states, as the protocol has them.

use crate::{Event, Model, Setup, Snapshot};
use serde_json::{Value, json};
use std::time::Duration;

/// Counters of the scenes, each second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub passed: u64,
    pub dropped: u64,
    pub missed: u64,
    pub unsent: u64,
}

/// A model without colours.
pub fn model() -> Model {
    Model::new(Setup {
        from: "/run/weir.sock".to_owned(),
        is_recording: false,
        has_colour: false,
        explain: |entry| format!("attack {}: {}\n  what was measured\n    active", entry.attack, entry.kind),
    })
}

/// The state of Weir after `uptime_s`.
pub fn status(uptime_s: f64) -> Value {
    let port = |name: &str, side: &str| json!({ "interface": name, "side": side, "state": "up", "mtu": 1500, "longest_frame": null, "too_long": 0 });
    json!({
        "uptime_s": uptime_s, "engine": "xdp", "workers": 2, "access": [], "generation": 3, "posture": null,
        "on_exit": "block", "interfaces": [port("eth0", "lower"), port("eth1", "upper")], "taken_down": [],
        "activations": 2, "confirm_left_s": null, "rollback_to": 2, "rollback_posture": null, "activating": null,
        "mixed": [],
        "flows": { "size": 100_000, "used": 2627, "closing": 185, "is_short": false, "refused": 0 },
        "updates": {
            "watched": ["bad"], "applied": 1, "refused": 0,
            "last": [{ "table": "bad", "entries_before": 10, "entries": 120_000, "by": "watch", "ago_s": 42.0 }],
            "refusals": []
        },
        "generations": [{ "id": 3, "policy": "/etc/weir/edge.weir", "postures": ["high"], "rules": 15 }]
    })
}

/// The counters of Weir.
pub fn stats(Counters { passed, dropped, missed, unsent }: Counters) -> Value {
    let tally = |passed: u64, dropped: u64| {
        let rule =
            |at: &str, rule: &str, packets: u64| json!({ "at": at, "rule": rule, "packets": packets, "bytes": 0 });
        let drops: Value = match dropped {
            0 => json!({}),
            dropped => json!({ "slot": dropped - dropped / 10, "edge.weir:11": dropped / 10 }),
        };
        let mut reasons = drops.clone();
        reasons["edge.weir:18"] = passed.into();
        json!({
            "packets": passed + dropped, "bytes": (passed + dropped) * 200, "passed": passed, "dropped": dropped,
            "diverted": 0, "replied": 0, "sampled": 0, "tables": [], "reasons": reasons, "drops": drops,
            "rules": [rule("edge.weir:11", "ip saddr @bad counter drop", dropped / 10), rule("edge.weir:18", "accept", passed)]
        })
    };
    let both = |passed: u64, dropped: u64| {
        let mut both = tally(passed, dropped);
        both["total"] = tally(passed, dropped);
        both
    };
    let port = |name: &str, side: &str, missed: u64, unsent: u64| {
        json!({
            "interface": name, "side": side, "rx_packets": 0, "rx_bytes": 0, "tx_packets": 0, "tx_bytes": 0,
            "rx_missed": missed, "rx_too_long": 0, "sampled": 0,
            "tx_dropped": { "tx-full": unsent, "link-down": 0, "tx-too-long": 0, "tx-unsupported": 0, "tx-error": 0, "no-divert": 0 }
        })
    };
    json!({
        "upstream": both(passed, dropped), "downstream": both(passed / 2, 0), "workers": [],
        "interfaces": [port("eth0", "lower", missed, 0), port("eth1", "upper", 0, unsent)],
        "additions": { "added": 0, "updated": 0, "additions-overflow": 0, "table-full": 0, "protected": 0 }
    })
}

/// An attack that was detected some seconds ago.
pub fn attack(number: u32, victim: &str, kind: &str, state: &str, dropped: u64) -> Value {
    json!({
        "attack": number, "victim": victim, "kind": kind, "age_s": 12.0, "seen_s": 0.0, "is_over": false,
        "peak_pps": 12_400.0, "evidence": [],
        "vectors": [{
            "kind": kind, "age_s": 12.0, "seen_s": 0.0, "is_over": false, "pps": 10_000.0, "peak_pps": 12_400.0,
            "evidence": [], "actions": [1]
        }],
        "actions": [{
            "number": 1, "kind": kind, "action": "drop", "rule": "udp sport 123 drop", "state": state,
            "place": "slot attacks, rule 1", "age_s": 11.0, "dropped": dropped, "packets": dropped,
            "proven": dropped / 1000, "sample_attack": 90, "sample_attack_of": 90, "sample_legitimate": 0,
            "sample_legitimate_of": 100
        }]
    })
}

/// The answer about attacks.
pub fn attacks(attacks: &[Value], lost: u64) -> Value {
    json!({
        "mode": "act", "not_carried_out": {}, "attacks": attacks,
        "samples": { "one_in": 64, "seen": 1000, "lost": lost, "windows": 400, "blind_windows": 0, "directions": "both" }
    })
}

/// What passed.
pub fn features() -> Value {
    let counts = |packets: u64, bytes: u64| json!({ "packets": packets, "bytes": bytes, "peers": 4, "classes": {} });
    let zero = counts(0, 0);
    let share = |value: &str, share: f64| json!({ "value": value, "share": share, "samples": 9 });
    let direction = |samples: Value| {
        json!({
            "all_packets": 1, "all_bytes": 1, "addresses": 2, "total": counts(500, 90_000), "rest": zero,
            "without_address": zero, "outside": zero, "samples": samples
        })
    };
    let samples = json!({
        "seen": 500, "samples": 64, "sources": [share("198.51.100.9", 0.26), share("198.51.100.10", 0.24)],
        "source_ports": [share("tcp 42379", 0.25)], "destination_ports": [share("tcp 443", 0.7), share("udp 53", 0.3)],
        "lengths": [share("66", 0.5), share("1514", 0.25)], "ttls": [share("57", 1.0)]
    });
    let nothing = json!({
        "seen": 0, "samples": 0, "sources": [], "source_ports": [], "destination_ports": [], "lengths": [], "ttls": []
    });
    let address = |address: &str, packets: u64, back: u64| {
        json!({
            "address": address, "upstream": counts(packets, packets * 90), "downstream": counts(back, back * 900),
            "new_sources": 3
        })
    };
    json!({
        "seconds": 1.0, "age_s": 0.4, "turns": 9, "size": 256, "upstream": direction(samples),
        "downstream": direction(nothing),
        "addresses": [address("192.0.2.10", 460, 450), address("2001:db8::10", 40, 0)]
    })
}

fn room() -> Value {
    json!({
        "tables": [
            { "table": "bad", "entries": 120_000 },
            { "table": "blocked", "entries": 12, "size": 10_000, "refused": 0 }
        ],
        "slots": [{ "slot": "attacks", "rules": 1, "size": 16 }]
    })
}

/// Everything that Weir knows in peace.
pub fn whole(second: u64, counters: Counters) -> Value {
    json!({
        "time_s": 1_764_288_000.0 + second as f64, "status": status(3725.0 + second as f64), "stats": stats(counters),
        "attacks": attacks(&[], 0), "features": features(), "room": room(),
        "limits": { "generation": 3, "limits": [], "total": { "limits": 40, "exceeded": 2 } },
        "absent": { "card": "weir: there is no card: start Weir with --card" }
    })
}

/// A snapshot of a value.
pub fn snapshot(value: Value) -> Snapshot {
    serde_json::from_value(value).expect("a snapshot")
}

/// Shows snapshots to a model, a second apart, and returns the time of the last one.
pub fn show(model: &mut Model, values: impl IntoIterator<Item = Value>) -> Duration {
    let mut now = Duration::ZERO;
    for value in values {
        now += Duration::from_secs(1);
        model.update(Event::Snapshot(Box::new(snapshot(value))), now);
    }
    now
}

/// Counters of a second in peace.
pub fn peace(second: u64) -> Counters {
    Counters { passed: 500 * second, ..Counters::default() }
}

/// Ten seconds of peace, and then an attack of 10,000 packets/s, which actions hold from the second on.
pub fn attacked(second: u64) -> Value {
    let under = second.saturating_sub(10);
    let dropped = 9900 * under.saturating_sub(1);
    let counters =
        Counters { passed: 500 * second + 10_000 * under.min(1) + 100 * under, dropped, ..Counters::default() };
    let mut value = whole(second, counters);
    if under > 0 {
        let mut waits = attack(2, "2001:db8::10", "syn-flood", "proposed", 0);
        waits["actions"][0]["dropped"] = Value::Null;
        (waits["vectors"][0]["pps"], waits["peak_pps"]) = (1200.0.into(), 1500.0.into());
        let mut over = attack(1, "192.0.2.77", "icmp-flood", "quiet", 41_000);
        (over["is_over"], over["seen_s"], over["age_s"]) = (true.into(), 310.0.into(), 900.0.into());
        let held = attack(3, "192.0.2.20", "udp-reflection", "active", dropped - dropped / 10);
        value["attacks"] = attacks(&[over, waits, held], 0);
    }
    value
}
