//! Exact counts of what passes: a victim that samples do not show is found, and customers are no attack.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use std::collections::BTreeMap;
use traffic::{Random, SERVER, Traffic, datagram};
use weir_abi::PacketClass;
use weir_mitigate::action::{Action, Decision, Measure, Mode, Trial};
use weir_mitigate::class;
use weir_mitigate::defence::Defence;
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
    let inside = Prefix::of(false, SERVER.into(), 16);
    let settings = Settings { mode: Mode::Watch, ..Settings::default() };
    let mut defence = Defence::new(vec![inside], settings, 1);
    let (mut sheet, mut seen, mut windows, mut found) = (Sheet::default(), 0, 0, Vec::new());
    for (number, packet) in traffic.sorted().iter().enumerate() {
        let now_ns = (packet.time_s * 1e9) as u64;
        while now_ns >= (windows + 1) * WINDOW_NS {
            windows += 1;
            let end_ns = windows * WINDOW_NS;
            if observes && windows % EXCHANGE == 0 {
                defence.observe(sheet.exchange(end_ns - EXCHANGE * WINDOW_NS, end_ns));
            }
            let sampling = Sampling { one_in: ONE_IN, seen: std::mem::take(&mut seen), lost: 0, missing: 0 };
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
        if number % ONE_IN as usize == 0 {
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
