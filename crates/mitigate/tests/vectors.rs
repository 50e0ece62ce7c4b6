//! An attack of several kinds on one victim: each is a vector with evidence, rate, actions, begin and end.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Random, SERVER, Traffic, datagram, segment, sport};
use weir_abi::PacketClass;
use weir_mitigate::Attack;
use weir_mitigate::action::{Measure, Mode};
use weir_mitigate::header::{Header, tcp};
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

/// Customers, with attacks of some kinds, each with its times and its rate.
fn customers(until_s: f64) -> Traffic {
    Traffic::of_customers(50, until_s)
}

fn reflected(random: &mut Random, _: f64) -> Header {
    datagram(random.address() & 0x7fff_ffff, SERVER, 19, 27_015, 900)
}

fn syn(random: &mut Random, _: f64) -> Header {
    let saddr = random.address() & 0x7fff_ffff;
    Header { window: 512, ..segment(saddr, SERVER, random.port(), 80, tcp::SYN, random.below(1 << 30), 0, 0) }
}

/// The one attack of a recording, and the packets of it that passed after a time.
fn attack(traffic: Traffic, mode: Mode, from_s: f64) -> (Attack, u32) {
    let inside = vec![Prefix::of(false, SERVER.into(), 16)];
    let settings = Settings { mode, hold_ns: 5_000_000_000, ..Settings::default() };
    let mut recording = Recording::new(inside, settings);
    let mut passed = 0;
    for packet in traffic.sorted() {
        let is_dropped = recording.take(&packet.header, (packet.time_s * 1e9) as u64);
        passed += u32::from(packet.is_attack && !is_dropped && packet.time_s >= from_s);
    }
    let attacks: Vec<&Attack> = recording.mitigator().attacks().collect();
    let [attack] = attacks[..] else { panic!("{attacks:#?}") };
    (attack.clone(), passed)
}

/// Kind, begin and last excess of each vector, in seconds, and whether it is over.
fn vectors(attack: &Attack) -> Vec<(&'static str, f64, f64, bool)> {
    let seconds = |ns: u64| (ns as f64 / 1e9).round();
    let vector =
        |one: &weir_mitigate::vector::Vector| (one.kind(), seconds(one.from_ns), seconds(one.last_ns), one.is_over);
    attack.vectors.all().iter().map(vector).collect()
}

#[test]
fn a_second_kind_on_the_same_victim_is_a_vector_of_its_own() {
    for mode in [Mode::Watch, Mode::Act] {
        let mut traffic = customers(70.0);
        traffic.attack(10.0, 60.0, 3000.0, reflected);
        traffic.attack(20.0, 40.0, 2000.0, syn);
        let (attack, _) = attack(traffic, mode, 0.0);
        let expected = [("udp-reflection", 11.0, 60.0, false), ("syn-flood", 21.0, 40.0, true)];
        let found = vectors(&attack);
        assert!(found.len() == 2 && found[0].0 == expected[0].0 && found[1] == (expected[1].0, found[1].1, 40.0, true));
        assert!((20.0..=21.0).contains(&found[1].1) && (10.0..=11.0).contains(&found[0].1), "{mode:?}: {found:?}");
        // The kind and evidence of the attack stay, and those of the vector are its own.
        assert_eq!((attack.kind(), attack.class), ("udp-reflection", PacketClass::UdpService));
        let [of_udp, of_syn] = attack.vectors.all() else { panic!("{attack:#?}") };
        assert!(of_udp.evidence[0].measure.starts_with("UDP from service ports"), "{of_udp:?}");
        assert!(of_syn.evidence[0].measure.starts_with("SYN") && of_syn.evidence[0].value > 100.0, "{of_syn:?}");
        // Also what is dropped belongs to the rate.
        assert!((2900.0..3100.0).contains(&of_udp.peak_pps), "{mode:?}: {of_udp:?}");
        assert!((1900.0..2100.0).contains(&of_syn.peak_pps), "{mode:?}: {of_syn:?}");
        for class in [PacketClass::UdpService, PacketClass::Syn] {
            let mut own = attack.records.iter().filter(|record| record.class == class);
            assert!(own.any(|record| matches!(record.action.measure, Measure::Drop(_))), "{class:?}: {attack:#?}");
        }
    }
}

#[test]
fn a_second_kind_that_is_small_beside_the_first_is_stopped() {
    // Less than 3 % of the peak of the first, which is over before.
    let mut traffic = customers(40.0);
    traffic.attack(10.0, 12.0, 100_000.0, reflected);
    traffic.attack(12.0, 40.0, 100.0, reflected);
    traffic.attack(20.0, 40.0, 1000.0, syn);
    let (attack, passed) = attack(traffic, Mode::Act, 22.0);
    assert_eq!(vectors(&attack).len(), 2, "{attack:#?}");
    assert!(passed < 200, "{passed} of 19,800: {attack:#?}");
}

#[test]
fn a_source_that_is_blocked_in_another_attack_is_a_vector() {
    let bot = traffic::customer(77);
    let mut traffic = customers(40.0);
    traffic.session(bot, 5.0);
    traffic.attack(10.0, 40.0, 3000.0, reflected);
    let mut sent = 0;
    traffic.attack(20.0, 30.0, 6000.0, |_, _| {
        sent += 1;
        segment(bot, SERVER, sport(bot, 5.0), 80, tcp::ACK | tcp::PSH, (1 << 30) + sent, 5000, 1000)
    });
    let (attack, _) = attack(traffic, Mode::Act, 0.0);
    let [_, of_tcp] = attack.vectors.all() else { panic!("{attack:#?}") };
    assert_eq!(of_tcp.kind(), "tcp-flood");
    assert!(of_tcp.evidence[0].measure.contains("of a proven source"), "{of_tcp:?}");
    let block = attack.records.iter().find(|record| matches!(record.action.measure, Measure::Block(..)));
    assert_eq!(block.map(|record| record.class), Some(PacketClass::Tcp), "{attack:#?}");
}
