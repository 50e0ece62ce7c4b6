//! Flows that outlive the process: what is written, what is restored, and damaged files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "saved_flows/proxied.rs"]
mod proxied;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weir_abi::flow::{
    Arrival, Flow, FlowKey, FlowNeeds, FlowSecrets, FlowState, Side, TICK_SHIFT, TICKS, Timeout, Timeouts, Window, age,
    ticks,
};
use weir_state::flows::{FlowTable, KnownFlow, Slot};
use weir_state::saved::{ChangeLog, Clocks, FlowSaver, Folder, Saver, restore};
use weir_state::{Memory, SharedState, UsedBy};

const TCP: u8 = 6;
const UDP: u8 = 17;
const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// Longer than the pause of a saver after an error.
const PAUSE: Duration = Duration::from_millis(2100);

/// Established connections last five days, closing ones and UDP two minutes.
fn timeouts() -> Timeouts {
    let mut milliseconds = [120_000; Timeout::COUNT];
    milliseconds[Timeout::Established as usize] = 5 * 24 * 3_600_000;
    Timeouts::of_milliseconds(milliseconds)
}

fn now() -> u32 {
    ticks(weir_state::now_ns())
}

fn key(nth: u32, protocol: u8) -> FlowKey {
    match nth.is_multiple_of(2) {
        true => FlowKey::of(Arrival::Outside, (nth.into(), 1024), (1 << 30, 80), protocol, [7, 0], false),
        false => FlowKey::of(Arrival::Outside, (u128::from(nth) << 64, 1024), (1 << 100, 80), protocol, [0; 2], true),
    }
}

fn flow(state: FlowState, una: u32) -> Flow {
    let is_tcp = state.is_of_tcp();
    let side = Side { una, next: una.wrapping_add(500), window: Window::of(65535), scale: 7, sack: true };
    let sides = if is_tcp { [side; 2] } else { [Side::default(); 2] };
    let replied = !matches!(state, FlowState::SynSent | FlowState::Unreplied);
    Flow { time: now(), state, opener: 1, liberal: false, replied, syn: true, proxied: false, sides }
}

/// A flow as it continues after its last packet at the time `time`. Of a connection that was open, nothing is known but
/// what was acknowledged.
fn continued(before: &Flow, time: u32) -> Flow {
    let sides = before.sides.map(|side| Side { next: side.una, ..side });
    let flow = Flow { time, liberal: before.state.is_of_tcp(), syn: false, sides, ..*before };
    match before.state {
        FlowState::Established | FlowState::Resetting => {
            let sides = sides.map(|side| Side { window: Window::NONE, ..side });
            Flow { state: FlowState::Restored, sides, ..flow }
        }
        FlowState::Replied => {
            let sides = [Side { una: time, ..Side::default() }, Side::default()];
            Flow { sides, ..flow }
        }
        _ => flow,
    }
}

fn enter(table: &FlowTable, key: &FlowKey, flow: &Flow) -> bool {
    table.enter(&[KnownFlow { key: *key, flow: *flow, proxied: None }]) == 1
}

/// A policy with a table of `size` flows.
fn needs(size: u32, proxied: bool) -> FlowNeeds {
    FlowNeeds { size, timeouts: timeouts(), proxied }
}

fn table(size: u32, seed: u64) -> Arc<FlowTable> {
    FlowTable::new(Memory::Process, size, FlowSecrets { seed, cookies: [seed; 2] }).unwrap()
}

fn flows(table: &FlowTable) -> Vec<(FlowKey, Flow)> {
    let mut found = Vec::new();
    table.each(&mut |key, flow| found.push((*key, *flow)));
    found.sort_by_key(|(key, _)| key.words);
    found
}

/// A saver, as a process has one.
fn saver(path: &Path) -> FlowSaver {
    Saver::new(path.to_owned(), Some(Folder::open(path).unwrap()), Arc::<ChangeLog>::default()).flows()
}

fn save(path: &Path, table: &Arc<FlowTable>) {
    saver(path).complete(Some((table, &timeouts()))).unwrap();
}

/// What a process restores that starts at `clocks` with a table of `size` flows, and what it tells.
fn restored_at(path: &Path, size: u32, clocks: Clocks) -> (Arc<FlowTable>, Vec<String>) {
    let folder = Folder::open(path).unwrap();
    let mut restored = restore(&folder, clocks).unwrap();
    let table = table(size, 99);
    if let Some(saved) = restored.flows {
        saved.restore(&table, &needs(size, false), clocks);
        restored.notices.extend(saved.take_notices());
    }
    table.verify().unwrap();
    (table, restored.notices)
}

fn restored(path: &Path, size: u32) -> (Arc<FlowTable>, Vec<String>) {
    restored_at(path, size, Clocks::now())
}

#[test]
fn answered_flows_continue_in_another_table_without_checks_of_windows() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(1000, 1);
    let kept = [FlowState::Established, FlowState::Resetting, FlowState::FinWait, FlowState::CloseWait];
    let lost = [FlowState::SynSent, FlowState::SynReceived, FlowState::TimeWait, FlowState::Closed];
    for (nth, state) in (0..).zip(kept.into_iter().chain(lost)) {
        assert!(enter(&first, &key(nth, TCP), &flow(state, nth)));
        assert!(enter(&first, &key(100 + nth, TCP), &flow(state, nth)));
    }
    assert!(enter(&first, &key(50, UDP), &flow(FlowState::Replied, 0)));
    assert!(enter(&first, &key(51, UDP), &flow(FlowState::Unreplied, 0)));
    save(folder.path(), &first);

    let (second, notices) = restored(folder.path(), 64);
    assert_eq!(notices, [""; 0]);
    let (saved, found) = (flows(&first), flows(&second));
    assert_eq!(found.len(), 2 * kept.len() + 1);
    for (key, flow) in found {
        let (_, before) = saved.iter().find(|(known, _)| *known == key).unwrap();
        assert!(kept.contains(&before.state) || before.state == FlowState::Replied, "{before:?}");
        assert_eq!(flow, continued(before, flow.time));
        assert!(age(now(), flow.time) < 60, "a second");
    }
}

#[test]
fn timeouts_continue_while_no_process_runs() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(1000, 1);
    let idle = |hours: u64| Flow {
        time: now().wrapping_sub(((hours * HOUR_NS + HOUR_NS / 60) >> TICK_SHIFT) as u32) & (TICKS - 1),
        ..flow(FlowState::Established, 0)
    };
    let idle = |hours| Flow { sides: [Side { next: 0, ..idle(hours).sides[0] }; 2], ..idle(hours) };
    assert!(enter(&first, &key(1, TCP), &idle(1)));
    assert!(enter(&first, &key(2, TCP), &idle(100)));
    assert!(enter(&first, &key(3, TCP), &idle(125)), "it has expired");
    assert!(enter(&first, &key(4, UDP), &flow(FlowState::Replied, 0)));
    save(folder.path(), &first);

    let present = Clocks::now();
    let after = |hours: u64, clock_ns: u64| {
        let day_ns = present.day_ns + hours * HOUR_NS;
        let (table, notices) = restored_at(folder.path(), 1000, Clocks { now_ns: clock_ns, day_ns });
        assert_eq!(notices, [""; 0]);
        flows(&table)
            .into_iter()
            .map(|(_, flow)| (u64::from(age(ticks(clock_ns), flow.time)) << TICK_SHIFT) / HOUR_NS)
            .collect::<Vec<u64>>()
    };
    // The other clock may have begun anew with the machine.
    for clock_ns in [0, 5_000_000, present.now_ns, 1 << 62] {
        let mut ages = after(0, clock_ns);
        ages.sort_unstable();
        assert_eq!(ages, [0, 1, 100]);
        let mut ages = after(10, clock_ns);
        ages.sort_unstable();
        assert_eq!(ages, [11, 110]);
        assert_eq!(after(21, clock_ns), [22]);
        assert_eq!(after(24 * 365, clock_ns), [0; 0]);
    }
    let (earlier, _) = restored_at(folder.path(), 1000, Clocks { day_ns: 1, ..present });
    assert_eq!(flows(&earlier).len(), 3, "a clock that was set back makes no flow younger");
}

#[test]
fn only_what_has_changed_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    let bytes = || fs::metadata(&file).unwrap().len();
    let (first, timeouts) = (table(100_000, 1), timeouts());
    let mut saver = saver(folder.path());
    (0..50_000).for_each(|nth| assert!(enter(&first, &key(nth, TCP), &flow(FlowState::Established, nth))));
    let minute_ago = now().wrapping_sub(61 * 60) & (TICKS - 1);
    assert!(enter(&first, &key(10, TCP), &Flow { time: minute_ago, ..flow(FlowState::Established, 9) }));
    let mut pass = || saver.complete(Some((&first, &timeouts))).unwrap();
    pass();
    let whole = bytes();
    assert!(whole < 50_000 * 49, "36 bytes for IPv4, 60 for IPv6: {whole}");
    // Flows that are used are not written each time.
    let used = (0..50_000).filter(|&nth| nth != 10);
    used.for_each(|nth| assert!(enter(&first, &key(nth, TCP), &flow(FlowState::Established, nth + 1))));
    pass();
    assert_eq!(bytes(), whole);
    // A new state, a new flow, and one that has ended.
    assert!(enter(&first, &key(6, TCP), &flow(FlowState::FinWait, 7)));
    assert!(enter(&first, &key(60_000, TCP), &flow(FlowState::Established, 7)));
    assert_eq!(first.end(now(), &|known, _| *known == key(8, TCP)), 1);
    pass();
    let written = bytes() - whole;
    assert!((36 + 36 + 4..=36 + 36 + 4 + 3 * 24).contains(&written), "{written}");
    // A flow that was used later than a minute after its record.
    assert!(enter(&first, &key(10, TCP), &flow(FlowState::Established, 9)));
    pass();
    assert_eq!(bytes() - whole, written + 36 + 24);

    drop(saver);
    let (second, notices) = restored(folder.path(), 100_000);
    assert_eq!(notices, [""; 0]);
    let found = flows(&second);
    assert_eq!(found.len(), 50_000);
    let state = |nth| found.iter().find(|(known, _)| *known == key(nth, TCP)).map(|(_, flow)| flow.state);
    assert_eq!(state(6), Some(FlowState::FinWait));
    assert_eq!((state(60_000), state(8)), (Some(FlowState::Restored), None));
}

#[test]
fn the_file_stays_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(50_000, 1);
    let (mut saver, timeouts) = (saver(folder.path()), timeouts());
    (0..30_000).for_each(|nth| assert!(enter(&first, &key(nth, TCP), &flow(FlowState::Established, nth))));
    let mut largest = 0;
    for round in 0..12 {
        let state = if round % 2 == 0 { FlowState::FinWait } else { FlowState::CloseWait };
        (0..30_000).for_each(|nth| assert!(enter(&first, &key(nth, TCP), &flow(state, nth))));
        saver.complete(Some((&first, &timeouts))).unwrap();
        largest = largest.max(fs::metadata(folder.path().join("flows")).unwrap().len());
        assert!(!folder.path().join("flows.new").exists());
    }
    assert!(largest < (4 << 20) + 30_000 * 61, "{largest}");
    drop(saver);
    let (second, _) = restored(folder.path(), 50_000);
    assert!(flows(&second).iter().all(|(_, flow)| flow.state == FlowState::CloseWait));
    assert_eq!(flows(&second).len(), 30_000);
}

#[test]
fn a_key_that_has_moved_is_restored_once() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(64, 1);
    let (mut saver, timeouts) = (saver(folder.path()), timeouts());
    let enter_all = |state: FlowState, keys: &mut dyn Iterator<Item = u32>| {
        keys.filter(|&nth| enter(&first, &key(nth, TCP), &flow(state, nth))).count()
    };
    assert_eq!(enter_all(FlowState::Established, &mut (0..40)), 40);
    saver.complete(Some((&first, &timeouts))).unwrap();
    first.clear();
    assert_eq!(enter_all(FlowState::FinWait, &mut (0..40).rev()), 40);
    saver.complete(Some((&first, &timeouts))).unwrap();
    drop(saver);
    let (second, notices) = restored(folder.path(), 640);
    assert_eq!((flows(&second).len(), notices), (40, vec![]));
    assert!(flows(&second).iter().all(|(_, flow)| flow.state == FlowState::FinWait));
}

#[test]
fn a_smaller_table_takes_what_it_has_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(1000, 1);
    (0..500).for_each(|nth| assert!(enter(&first, &key(nth, TCP), &flow(FlowState::Established, nth))));
    save(folder.path(), &first);
    let (second, notices) = restored(folder.path(), 64);
    assert_eq!(flows(&second).len(), 64);
    let path = folder.path().join("flows").display().to_string();
    let told = "436 of 500 flows have no room in a table of 64, and are left out";
    assert_eq!(notices, [format!("{path}: {told}")]);
}

#[test]
fn flows_wait_for_each_new_table_until_one_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(1000, 1);
    (0..100).for_each(|nth| assert!(enter(&first, &key(nth, TCP), &flow(FlowState::Established, nth))));
    save(folder.path(), &first);
    let shared = SharedState::new(UsedBy::Workers);
    shared.keep_flows(restore(&Folder::open(folder.path()).unwrap(), Clocks::now()).unwrap().flows);
    let bind = |size: u32| shared.bind_flows(Some(needs(size, false))).unwrap();
    let count = |size: u32| flows(bind(size).table().unwrap()).len();
    assert_eq!((count(1000), count(2000)), (100, 100), "a policy may never become active");
    let active = bind(64);
    assert_eq!(flows(active.table().unwrap()).len(), 64);
    let told = shared.end_saved_flows();
    assert!(
        matches!(&told[..], [one] if one.ends_with("36 of 100 flows have no room in a table of 64, and are left out"))
    );
    assert_eq!((count(1000), count(64)), (0, 64));
}

#[test]
fn a_damaged_file_is_told_and_what_is_before_the_damage_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    let first = table(640, 1);
    let (mut saver, timeouts) = (saver(folder.path()), timeouts());
    for nth in 0..8 {
        assert!(enter(&first, &key(nth, TCP), &flow(FlowState::Established, nth)));
        saver.complete(Some((&first, &timeouts))).unwrap();
    }
    drop(saver);
    let whole = fs::read(&file).unwrap();
    let path = file.display();
    for cut in 0..whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        let (second, notices) = restored(folder.path(), 640);
        let kept = folder.path().join("flows.unread");
        if cut < 28 {
            let told = "the header is incomplete; it is kept as flows.unread; flows begin anew";
            assert_eq!((flows(&second).len(), notices), (0, vec![format!("{path}: {told}")]));
            fs::remove_file(kept).unwrap();
            continue;
        }
        let found = flows(&second).len();
        assert!(found < 8 && !kept.exists());
        let is_clean = notices.is_empty();
        assert!(
            is_clean || notices.len() == 1 && notices[0].contains(": incomplete; the flows from there on are lost")
        );
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&file, &damaged).unwrap();
        let (second, notices) = restored(folder.path(), 640);
        assert!(flows(&second).len() < 8 && notices.len() == 1, "byte {at}: {notices:?}");
        let _kept = fs::remove_file(folder.path().join("flows.unread"));
    }
}

#[test]
fn files_of_others_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    save(folder.path(), &table(64, 1));
    let whole = fs::read(&file).unwrap();
    let mut later = whole.clone();
    later[8] = 9;
    let cases: [(&[u8], &str); 3] = [
        (b"192.0.2.1 is not what the file should have", "this is not a file of Weir's state"),
        (&later, "another version of Weir wrote it: format 9, not 3"),
        (&fs::read(folder.path().join("lock")).unwrap(), "the header is incomplete"),
    ];
    for (number, (bytes, problem)) in cases.into_iter().enumerate() {
        fs::write(&file, bytes).unwrap();
        let (second, notices) = restored(folder.path(), 64);
        let kept = if number == 0 { "flows.unread".to_owned() } else { format!("flows.unread-{}", number + 1) };
        assert_eq!(notices, [format!("{}: {problem}; it is kept as {kept}; flows begin anew", file.display())]);
        assert_eq!(fs::read(folder.path().join(&kept)).unwrap(), bytes);
        assert!((0..second.slot_count()).all(|slot| second.slot(slot) == Slot::Free));
    }
}

#[test]
fn a_disk_that_refuses_loses_nothing_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(640, 1);
    assert!(enter(&first, &key(1, TCP), &flow(FlowState::Established, 1)));
    let (mut saver, timeouts) = (saver(folder.path()), timeouts());
    fs::create_dir(folder.path().join("flows.new")).unwrap();
    assert!(saver.step(Some((&first, &timeouts))).is_err() && saver.has_failed());
    assert!(saver.step(Some((&first, &timeouts))).is_ok() && saver.has_failed(), "it waits");
    fs::remove_dir(folder.path().join("flows.new")).unwrap();
    thread::sleep(PAUSE);
    saver.step(Some((&first, &timeouts))).unwrap();
    assert!(!saver.has_failed());
    drop(saver);
    let (second, _) = restored(folder.path(), 640);
    assert_eq!(flows(&second).len(), 1);
}

/// `WEIR_FLOWS=9000000` sets the number of flows.
#[test]
fn many_flows_take_little_time() {
    let count = std::env::var("WEIR_FLOWS").map_or(200_000, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let first = table(count + count / 9, 1);
    let known = |nth| KnownFlow { key: key(2 * nth, TCP), flow: flow(FlowState::Established, nth), proxied: None };
    let all: Vec<KnownFlow> = (0..count).map(known).collect();
    let entered = first.enter(&all);
    drop(all);
    let (mut saver, timeouts) = (saver(folder.path()), timeouts());
    let mut pass = |what: &str| {
        let (mut steps, mut longest, begun) = (0, Duration::ZERO, Instant::now());
        // A step waits after the one before.
        while begun.elapsed() < PAUSE
            || !folder.path().join("flows").exists()
            || folder.path().join("flows.new").exists()
        {
            let step = Instant::now();
            saver.step(Some((&first, &timeouts))).unwrap();
            if step.elapsed() > Duration::from_micros(100) {
                steps += 1;
                longest = longest.max(step.elapsed());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let bytes = fs::metadata(folder.path().join("flows")).unwrap().len();
        eprintln!("{what}: {steps} steps, the longest {longest:?}, {bytes} bytes, {:?}", begun.elapsed());
    };
    pass("first pass");
    pass("later pass");
    drop(saver);
    let begun = Instant::now();
    let open = Folder::open(folder.path()).unwrap();
    let saved = restore(&open, Clocks::now()).unwrap().flows.unwrap();
    let (read, second) = (begun.elapsed(), table(count + count / 9, 2));
    saved.restore(&second, &needs(count + count / 9, false), Clocks::now());
    eprintln!("read in {read:?}, restored after {:?}", begun.elapsed());
    let mut found = 0;
    second.each(&mut |_, _| found += 1);
    assert_eq!(found, entered);
}
