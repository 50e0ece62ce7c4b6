//! What an attacker who knows the design achieves, against real customers in the same traffic.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use std::collections::HashMap;
use traffic::{Packet, Random, SERVER, Traffic, customer, datagram, segment};
use weir_mitigate::action::Mode;
use weir_mitigate::header::{Header, protocol, tcp};
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

/// What happened.
#[derive(Debug)]
struct Outcome {
    /// Attack packets from two seconds after the begin of the attack, and how many of them were dropped.
    attack: (u64, u64),
    /// Packets of customers, and how many of them were dropped.
    customers: (u64, u64),
    /// The longest time in which all packets of a customer were dropped, seconds.
    longest_block_s: f64,
    /// When the first attack was detected.
    detected_s: Option<f64>,
    actions: usize,
}

fn run(traffic: Traffic, attack_s: f64) -> Outcome {
    let settings = Settings { mode: Mode::Act, ..Settings::default() };
    let mut recording = Recording::new(vec![Prefix::of(false, SERVER.into(), 16)], settings);
    let mut outcome = Outcome { attack: (0, 0), customers: (0, 0), longest_block_s: 0.0, detected_s: None, actions: 0 };
    let mut blocked_since: HashMap<u128, f64> = HashMap::new();
    for Packet { time_s, header, is_attack } in traffic.sorted() {
        let is_dropped = recording.take(&header, (time_s * 1e9) as u64);
        if is_attack && time_s >= attack_s + 2.0 {
            outcome.attack.0 += 1;
            outcome.attack.1 += u64::from(is_dropped);
        } else if !is_attack && header.daddr == u128::from(SERVER) {
            outcome.customers.0 += 1;
            outcome.customers.1 += u64::from(is_dropped);
            if is_dropped {
                let since_s = *blocked_since.entry(header.saddr).or_insert(time_s);
                outcome.longest_block_s = outcome.longest_block_s.max(time_s - since_s);
            } else {
                blocked_since.remove(&header.saddr);
            }
        }
    }
    outcome.detected_s = recording.mitigator().attacks().map(|attack| attack.from_ns as f64 / 1e9).next();
    outcome.actions = recording.mitigator().attacks().map(|attack| attack.records.len()).sum();
    outcome
}

impl Outcome {
    #[track_caller]
    fn holds(&self, attack_share_min: f64) {
        let share = |(all, part): (u64, u64)| part as f64 / all.max(1) as f64;
        assert!(share(self.attack) >= attack_share_min, "{self:?}");
        assert!(share(self.customers) <= 0.001, "{self:?}");
        assert!(self.longest_block_s <= 60.0, "{self:?}");
    }
}

fn flood(random: &mut Random, saddr: u32) -> Header {
    datagram(saddr, SERVER, random.port(), 27015, 28 + 1000)
}

#[test]
fn a_flood_of_made_up_sources_is_dropped_and_customers_are_served() {
    let mut traffic = Traffic::of_customers(100, 40.0);
    traffic.attack(20.0, 40.0, 5000.0, |random, _| {
        let saddr = random.address();
        flood(random, saddr)
    });
    let outcome = run(traffic, 20.0);
    assert!(outcome.detected_s.is_some_and(|at| (20.0..21.0).contains(&at)), "{outcome:?}");
    outcome.holds(0.99);
}

#[test]
fn customers_whose_addresses_the_attacker_uses_stay_connected() {
    // Datagrams, and segments to the same port as the customers' own.
    for is_tcp in [false, true] {
        let mut traffic = Traffic::of_customers(100, 120.0);
        traffic.attack(20.0, 120.0, 2000.0, |random, _| {
            let saddr = customer(random.below(100));
            match is_tcp {
                false => flood(random, saddr),
                true => Header {
                    window: 512,
                    ..segment(saddr, SERVER, random.port(), 80, tcp::SYN, random.below(u32::MAX), 0, 0)
                },
            }
        });
        run(traffic, 20.0).holds(0.95);
    }
}

#[test]
fn a_source_that_carries_much_of_an_attack_is_not_blocked_if_it_is_a_customers() {
    let mut traffic = Traffic::of_customers(50, 150.0);
    traffic.attack(20.0, 150.0, 1000.0, |random, _| flood(random, customer(7)));
    run(traffic, 20.0).holds(0.95);
}

/// Customers, and pulses of a flood.
fn in_pulses(end_s: f64, begins_s: impl Iterator<Item = f64>, length_s: f64, pps: f64) -> Traffic {
    let mut traffic = Traffic::of_customers(100, end_s);
    for begin_s in begins_s {
        traffic.attack(begin_s, begin_s + length_s, pps, |random, _| {
            let saddr = random.address();
            flood(random, saddr)
        });
    }
    traffic
}

#[test]
fn pulses_between_windows_are_caught_at_the_second_and_remembered() {
    let begins_s = (0..12).map(|pulse| 20.0 + f64::from(pulse) * 8.0);
    // The first pulse passes, and the second until its window ends.
    let outcome = run(in_pulses(120.0, begins_s, 0.2, 20_000.0), 27.0);
    assert!(outcome.detected_s.is_some_and(|at| at < 29.0), "{outcome:?}");
    outcome.holds(0.99);
}

#[test]
fn pulses_that_are_further_apart_than_suspicion_lasts_are_caught_at_the_third() {
    // Each is in one window.
    let begins_s = (0..14).map(|pulse| 20.1 + f64::from(pulse) * 11.0);
    // Two pulses pass, and the third until its window ends.
    let outcome = run(in_pulses(180.0, begins_s, 0.05, 60_000.0), 41.0);
    assert!(outcome.detected_s.is_some_and(|at| at < 43.0), "{outcome:?}");
    outcome.holds(0.99);
}

#[test]
fn a_slow_ramp_does_not_become_normal() {
    let mut traffic = Traffic::of_customers(20, 2400.0);
    // From 1 to 2000 packets a second in forty minutes.
    for step in 0..240 {
        let begin_s = f64::from(step) * 10.0;
        let pps = 2000f64.powf(begin_s / 2400.0);
        traffic.attack(begin_s, begin_s + 10.0, pps, |random, _| {
            let saddr = random.address();
            flood(random, saddr)
        });
    }
    let outcome = run(traffic, 2000.0);
    assert!(outcome.detected_s.is_some_and(|at| at < 2000.0), "{outcome:?}");
    // What the ramp has made usual before passes; the reference knows its packets.
    outcome.holds(0.95);
}

#[test]
fn carpet_bombing_is_found_in_the_wide_prefix() {
    let mut traffic = Traffic::of_customers(100, 40.0);
    traffic.attack(20.0, 40.0, 5000.0, |random, _| {
        let (saddr, daddr) = (random.address(), SERVER & 0xffff_0000 | random.below(1 << 16));
        datagram(saddr, daddr, 53, random.port(), 28 + 1400)
    });
    let outcome = run(traffic, 20.0);
    assert!(outcome.detected_s.is_some_and(|at| at < 22.0), "{outcome:?}");
    outcome.holds(0.95);
}

#[test]
fn a_change_of_vector_is_followed() {
    let mut traffic = Traffic::of_customers(100, 80.0);
    traffic.attack(20.0, 80.0, 4000.0, |random, time_s| {
        let saddr = random.address();
        let header = match (time_s / 10.0) as u32 % 4 {
            0 => datagram(saddr, SERVER, 53, random.port(), 28 + 1400),
            1 => segment(saddr, SERVER, random.port(), 80, tcp::SYN, random.below(u32::MAX), 0, 0),
            2 => Header { protocol: protocol::ICMP, icmp_type: 8, length: 1028, ..Header::between(saddr, SERVER) },
            _ => segment(saddr, SERVER, random.port(), 80, tcp::RST, random.below(u32::MAX), 0, 0),
        };
        // The attacker's stack has its own initial TTL and no options.
        Header { ttl: 235 + random.below(16) as u8, doff: if header.doff > 0 { 5 } else { 0 }, ..header }
    });
    // One second of each ten is needed to learn.
    run(traffic, 20.0).holds(0.95);
}

#[test]
fn a_crowd_of_customers_is_no_attack() {
    let mut traffic = Traffic::of_customers(50, 60.0);
    traffic.customers(50..1050, 30.0, 60.0);
    let outcome = run(traffic, 0.0);
    assert_eq!((outcome.actions, outcome.customers.1, outcome.detected_s), (0, 0, None), "{outcome:?}");
}

#[test]
fn a_real_source_that_floods_its_own_connection_is_blocked_for_half_a_minute() {
    let mut traffic = Traffic::of_customers(50, 60.0);
    let bot = 0x0a14_1e28;
    traffic.session(bot, 10.0);
    let seq = 1 << 30;
    let mut sent = 0;
    traffic.attack(20.0, 40.0, 10_000.0, |_, _| {
        sent += 1;
        segment(bot, SERVER, traffic::sport(bot, 10.0), 80, tcp::ACK | tcp::PSH, seq + sent, 5000, 1000)
    });
    let outcome = run(traffic, 20.0);
    assert_eq!(outcome.customers.1, 0, "{outcome:?}");
    outcome.holds(0.95);
}
