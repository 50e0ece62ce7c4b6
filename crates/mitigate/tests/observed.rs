//! Exact counts of what passes: a victim that samples do not show is found, and customers are no attack.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use std::collections::BTreeMap;
use traffic::{Packet, Random, SERVER, Traffic, datagram, segment};
use weir_abi::PacketClass;
use weir_mitigate::action::{Action, Decision, Measure, Mode, Trial};
use weir_mitigate::class;
use weir_mitigate::defence::Defence;
use weir_mitigate::header::{Header, tcp};
use weir_mitigate::measure::WINDOW_NS;
use weir_mitigate::measure::counts::Counts;
use weir_mitigate::measure::observed::Observed;
use weir_mitigate::measure::sampling::Sampling;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;

/// One packet in this many is sampled: a flood of 2,000 packets a second has one sample in two windows.
const ONE_IN: u32 = 1000;
/// Windows between two exchanges.
const EXCHANGE: u64 = 4;

/// An attack that was detected: its time, its highest rate without proof, and its victim.
type Found = (f64, f64, String);

/// Exact counts of a second, as `observe` makes them.
#[derive(Default)]
struct Sheet([BTreeMap<u128, Counts>; 2]);

impl Sheet {
    fn count(&mut self, direction: usize, address: u128, class: PacketClass) {
        let counts = self.0[direction].entry(address).or_insert(Counts::new(Prefix::of(false, address, 32)));
        counts.packets[class as usize] += 1;
        counts.bytes += 60;
    }

    fn exchange(&mut self, from_ns: u64, to_ns: u64) -> Observed {
        let [to, from] = std::mem::take(self).0.map(|of| of.into_values().collect::<Vec<Counts>>());
        Observed::new(from_ns, to_ns, to, from)
    }
}

/// What is detected by samples, and with the counts of `observe`.
fn detected(traffic: Traffic, observes: bool) -> Vec<Found> {
    detected_one_in(traffic, observes, ONE_IN)
}

/// What is detected where one packet in `one_in` is sampled, by chance.
fn detected_one_in(traffic: Traffic, observes: bool, one_in: u32) -> Vec<Found> {
    let inside = Prefix::of(false, SERVER.into(), 16);
    let settings = Settings { mode: Mode::Watch, ..Settings::default() };
    let mut defence = Defence::new(vec![inside], settings, 1);
    let mut random = Random::new(7);
    let (mut sheet, mut seen, mut windows, mut found) = (Sheet::default(), 0, 0, Vec::new());
    for packet in &traffic.sorted() {
        let now_ns = (packet.time_s * 1e9) as u64;
        while now_ns >= (windows + 1) * WINDOW_NS {
            windows += 1;
            let end_ns = windows * WINDOW_NS;
            if observes && windows % EXCHANGE == 0 {
                defence.observe(sheet.exchange(end_ns - EXCHANGE * WINDOW_NS, end_ns));
            }
            let sampling = Sampling { one_in, seen: std::mem::take(&mut seen), lost: 0, missing: 0 };
            for decision in defence.end_window(end_ns, sampling) {
                if let Decision::Detected { victim, .. } = decision {
                    found.push((end_ns as f64 / 1e9, victim.to_string()));
                }
            }
            defence.begin_window();
        }
        let header = packet.header;
        let (direction, address) =
            if inside.contains(false, header.daddr) { (0, header.daddr) } else { (1, header.saddr) };
        sheet.count(direction, address, class::of(&header));
        if random.below(one_in) == 0 {
            seen += 1;
            defence.see(&header, None, now_ns);
        }
    }
    let peak_pps = |victim: &str| {
        let of_victim = defence.mitigator().attacks().filter(|attack| attack.victim.to_string() == victim);
        of_victim.map(|attack| attack.peak_pps).fold(0.0, f64::max)
    };
    found.into_iter().map(|(at_s, victim)| (at_s, peak_pps(&victim), victim)).collect()
}

fn flooded(host: impl Fn(&mut Random) -> u32) -> Traffic {
    let mut traffic = Traffic::of_customers(50, 16.0);
    traffic.attack(10.0, 16.0, 2000.0, |random, _| datagram(random.address(), host(random), random.port(), 27015, 500));
    traffic
}

#[test]
fn a_victim_that_samples_do_not_show_is_found() {
    let traffic = || flooded(|_| SERVER + 7);
    assert_eq!(detected(traffic(), false), []);
    let found = detected(traffic(), true);
    let [(at_s, peak_pps, victim)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*victim, Prefix::of(false, u128::from(SERVER) + 7, 32).to_string());
    assert!(*at_s <= 12.0, "{found:?}");
    // It is exact: an estimate would be a multiple of 4,000.
    assert!((1990.0..=2010.0).contains(peak_pps), "{found:?}");
}

#[test]
fn a_carpet_that_samples_do_not_show_is_found_in_its_prefix() {
    let wide = Prefix::of(false, SERVER.into(), 16);
    let traffic = || flooded(|random| wide.address() as u32 + random.below(1 << 16));
    assert_eq!(detected(traffic(), false), []);
    let found = detected(traffic(), true);
    assert!(found.len() == 1 && found[0].2 == wide.to_string() && found[0].0 <= 12.0, "{found:?}");
}

#[test]
fn customers_and_a_crowd_of_them_are_no_attack() {
    assert_eq!(detected(Traffic::of_customers(50, 30.0), true), []);
    let mut crowd = Traffic::of_customers(50, 30.0);
    crowd.customers(50..1000, 15.0, 30.0);
    assert_eq!(detected(crowd, true), []);
}

#[test]
fn counts_of_a_time_before_an_action_begins_or_ends_are_not_used() {
    let detects = |begin_ns: Option<u64>, end_ns: Option<u64>| {
        let inside = Prefix::of(false, SERVER.into(), 16);
        let settings = Settings { mode: Mode::Watch, ..Settings::default() };
        let mut defence = Defence::new(vec![inside], settings, 1);
        let end_window = |defence: &mut Defence, number: u64| {
            let sampling = Sampling { one_in: ONE_IN, seen: 0, lost: 0, missing: 0 };
            defence.end_window(number * WINDOW_NS, sampling)
        };
        (1..=20).for_each(|number| drop(end_window(&mut defence, number)));
        let now_ns = 20 * WINDOW_NS;
        if let Some(begin_ns) = begin_ns {
            let measure = Measure::Block((false, 1), now_ns);
            defence.enforce(Action { id: 1, attack: 1, measure, trial: Trial::default() }, begin_ns);
        }
        end_ns.into_iter().for_each(|end_ns| defence.lift(1, end_ns));
        let mut sheet = Sheet::default();
        (0..2000).for_each(|_| sheet.count(0, u128::from(SERVER), PacketClass::Udp));
        defence.observe(sheet.exchange(now_ns - EXCHANGE * WINDOW_NS, now_ns));
        (21..=23).flat_map(|number| end_window(&mut defence, number)).count()
    };
    let late_ns = 20 * WINDOW_NS - 1;
    assert_eq!((detects(None, None), detects(Some(1), None)), (1, 1));
    assert_eq!((detects(Some(late_ns), None), detects(Some(1), Some(late_ns))), (0, 0));
    assert_eq!(detects(None, Some(late_ns)), 1, "what was not in force changes nothing");
}

/// Datagrams of 4,000 packets/s from the port of a service, and as many questions for them or none.
fn answers(from_s: f64, servers: u32, is_asked: bool) -> Traffic {
    let mut traffic = Traffic::of_customers(0, 0.0);
    let server = |random: &mut Random| 0x0800_0000 + random.below(servers) * 7919;
    traffic.attack(from_s, from_s + 12.0, 4000.0, |random, _| {
        datagram(server(random), SERVER + 7, 53, random.port(), 1400)
    });
    if is_asked {
        traffic.attack(from_s, from_s + 12.0, 4000.0, |random, _| {
            datagram(SERVER + 7, server(random), random.port(), 53, 70)
        });
    }
    traffic
}

/// 10 samples of an attack in a window cannot be told from chance. Before exact counts came, such an attack was learned
/// as usual if it began with the daemon.
#[test]
fn a_reflection_in_an_idle_network_is_found_whenever_it_begins() {
    for from_s in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0] {
        for (servers, one_in) in [(50, 100), (5000, 100), (50, 1000), (5000, 1000)] {
            let found = detected_one_in(answers(from_s, servers, false), true, one_in);
            let [(at_s, peak_pps, _)] = &found[..] else { panic!("{servers} from {from_s} 1/{one_in}: {found:?}") };
            assert!(
                *at_s <= from_s + 3.5 && (3900.0..=4100.0).contains(peak_pps),
                "from {from_s} 1/{one_in}: {found:?}"
            );
        }
    }
}

/// Samples seldom show both a question and its answer, but exact counts show that there are questions.
#[test]
fn a_resolver_that_is_there_from_the_start_is_no_attack() {
    for from_s in [0.0, 0.5] {
        for (servers, one_in) in [(50, 100), (5000, 100), (5000, 1000)] {
            let found = detected_one_in(answers(from_s, servers, true), true, one_in);
            assert_eq!(found, [], "{servers} from {from_s} 1/{one_in}");
        }
    }
}

#[test]
fn customers_of_a_start_are_no_attack_where_few_packets_are_sampled() {
    for (customers, one_in) in [(50, 4), (50, 100), (1000, 4), (1000, 16), (1000, 100)] {
        assert_eq!(detected_one_in(Traffic::of_customers(customers, 12.0), true, one_in), [], "{customers} 1/{one_in}");
    }
    let mut crowd = Traffic::of_customers(50, 30.0);
    crowd.customers(50..1000, 15.0, 30.0);
    for one_in in [4, 16, 100] {
        assert_eq!(detected_one_in(crowd.clone(), true, one_in), [], "1/{one_in}");
        assert_eq!(detected_one_in(crowd.clone(), false, one_in), [], "1/{one_in}");
    }
}

/// A connection of a client whose packets are lost with this probability. It sends them again, up to six times.
fn lossy_connection(random: &mut Random, client: u32, begin_s: f64, lost_percent: u32) -> Vec<Packet> {
    const ROUND_TRIP_S: f64 = 0.03;
    let mut packets = Vec::new();
    let mut add = |time_s: f64, header: Header| packets.push(Packet { time_s, header, is_attack: false });
    let mut tries = || (0..6).take_while(|_| random.below(100) < lost_percent).count() as i32;
    let port = traffic::sport(client, begin_s);
    let to_server = |flags, seq, ack, bytes| segment(client, SERVER, port, 80, flags, seq, ack, bytes);
    let to_client = |flags, seq, ack, bytes| segment(SERVER, client, 80, port, flags, seq, ack, bytes);
    let (mut seq, mut answered) = (1001, 5001);
    // A SYN is sent again after a second, data after a quarter of one. Each further wait is twice as long.
    let mut time_s = begin_s + (2.0f64.powi(tries()) - 1.0);
    add(time_s, to_server(tcp::SYN, seq - 1, 0, 0));
    add(time_s + ROUND_TRIP_S / 2.0, to_client(tcp::SYN | tcp::ACK, answered - 1, seq, 0));
    for _ in 0..6 {
        time_s += ROUND_TRIP_S;
        if tries() == 0 {
            add(time_s, to_server(tcp::ACK, seq, answered, 0));
        }
        time_s += 0.25 * (2.0f64.powi(tries()) - 1.0);
        add(time_s, to_server(tcp::PSH | tcp::ACK, seq, answered, 200));
        seq += 200;
        add(time_s + ROUND_TRIP_S / 2.0, to_client(tcp::PSH | tcp::ACK, answered, seq, 1200));
        answered += 1200;
    }
    packets
}

/// 300 new clients in a second, where 17 connections are usual, behind a line that loses their packets.
#[test]
fn a_crowd_behind_a_full_line_is_no_attack() {
    for lost_percent in [50, 85] {
        let (mut crowd, mut random) = (Traffic::of_customers(50, 25.0), Random::new(3));
        for number in 0..3000 {
            let begin_s = 15.0 + f64::from(number) / 300.0;
            let packets = lossy_connection(&mut random, traffic::customer(50 + number), begin_s, lost_percent);
            crowd.add(packets.into_iter().filter(|packet| packet.time_s < 25.0));
        }
        for (one_in, observes) in [(1, false), (1, true), (4, false), (4, true)] {
            let found = detected_one_in(crowd.clone(), observes, one_in);
            assert_eq!(found, [], "{lost_percent} % lost, 1/{one_in}");
        }
    }
}
