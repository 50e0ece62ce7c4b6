//! Tests of what is evidence against a source.

use super::Unanswered;
use crate::header::Header;
use crate::measure::sampling::Sampling;
use crate::measure::{Extractor, HeavySource, WINDOW_NS, Window};

const SOURCE: (bool, u128) = (false, 1);

/// A window in which the source sends so many packets, and gets so many answers for so many bytes.
fn window(number: u64, (packets, answers, exchanged): (u64, u64, u64), sampling: Sampling) -> Window {
    let mut window = Extractor::new(Vec::new(), 1, 0).close(WINDOW_NS);
    (window.from_ns, window.to_ns) = (number * WINDOW_NS, (number + 1) * WINDOW_NS);
    window.real = vec![Header::between(1, 2)];
    window.heavy = vec![HeavySource { source: SOURCE, packets, answers, exchanged }];
    window.is_two_way = true;
    window.estimate(sampling);
    window
}

/// The windows in which the source is found.
fn found(windows: impl IntoIterator<Item = Window>) -> Vec<u64> {
    let mut unanswered = Unanswered::default();
    let found = windows.into_iter().filter(|window| !unanswered.judge(window, 0.0).is_empty());
    found.map(|window| window.from_ns / WINDOW_NS).collect()
}

#[test]
fn two_windows_whose_losses_are_known_decide() {
    let windows = |of: &dyn Fn(u64) -> (u64, u64, u64)| found((0..5).map(|at| window(at, of(at), Sampling::ALL)));
    assert_eq!(windows(&|_| (500, 0, 0)), [2, 3, 4]);
    assert_eq!(windows(&|at| if at == 0 { (500, 0, 0) } else { (500, 200, 0) }), [] as [u64; 0]);
    // Bytes that are acknowledged count, whatever the number of answers.
    assert_eq!(windows(&|_| (500, 5, 500 * 1448)), [] as [u64; 0]);
    // Repeated acknowledgements are no more than one packet each.
    assert_eq!(windows(&|_| (500, 10, 0)), [2, 3, 4]);
    // After a gap, nobody knows what was lost in the window before.
    let with_gap = [0, 1, 9, 10, 11].map(|at| window(at, (500, 0, 0), Sampling::ALL));
    assert_eq!(found(with_gap), [10, 11]);
}

#[test]
fn few_packets_decide_nothing() {
    // A receiver that merges 128 packets would have sent two, four and five answers.
    let windows = |packets: u64| found((0..4).map(|at| window(at, (packets, 0, 0), Sampling::ALL)));
    assert_eq!([windows(128), windows(256), windows(320)], [vec![], vec![2, 3], vec![2, 3]]);
    // 20.7 answers of 128 packets would be seen of 2628 samples.
    let sampling = Sampling { one_in: 64, seen: 1000, lost: 0, missing: 0 };
    let windows = |seen: u64, count: u64| found((0..count).map(|at| window(at, (seen, 0, 0), sampling)));
    assert_eq!([windows(1300, 4), windows(1325, 4)], [vec![3], vec![2, 3]]);
    // More windows are more evidence.
    assert_eq!(windows(500, 8), [6, 7]);
}

#[test]
fn lost_samples_count_as_answers() {
    let windows = |lost: u64| {
        let sampling = Sampling { one_in: 1, seen: 10_000, lost, missing: 0 };
        found((0..8).map(|at| window(at, (500, 0, 0), sampling)))
    };
    assert_eq!(windows(0), [2, 3, 4, 5, 6, 7]);
    assert_eq!(windows(1), [] as [u64; 0]);
    // Copies that are missing may be lost, unless they were missing before.
    let missing = |of: &dyn Fn(u64) -> u64| {
        let sampling = |at: u64| Sampling { one_in: 1, seen: 10_000, lost: 0, missing: of(at) };
        let quiet = Window { heavy: Vec::new(), ..window(0, (0, 0, 0), sampling(0)) };
        found([quiet].into_iter().chain((1..6).map(|at| window(at, (500, 0, 0), sampling(at)))))
    };
    assert_eq!(missing(&|at| if at == 0 { 0 } else { 8 }), [] as [u64; 0]);
    assert_eq!(missing(&|_| 1000), [3, 4, 5]);
    // The losses of a window are known at the end of the next one.
    let late = |at: u64| Sampling { one_in: 1, seen: 10_000, lost: if at == 2 { 50 } else { 0 }, missing: 0 };
    assert_eq!(found((0..3).map(|at| window(at, (500, 0, 0), late(at)))), [] as [u64; 0]);
}

#[test]
fn what_was_acknowledged_before_excuses_nothing() {
    let packets = |at: u64| if at < 20 { (500, 250, 500 * 1448) } else { (500, 0, 0) };
    assert_eq!(found((0..24).map(|at| window(at, packets(at), Sampling::ALL))), [22, 23]);
}

#[test]
fn one_direction_shows_no_answers() {
    let windows = (0..8).map(|at| Window { is_two_way: false, ..window(at, (500, 0, 0), Sampling::ALL) });
    assert_eq!(found(windows), [] as [u64; 0]);
}
