//! Tables on a disk that fails: what cannot be read is kept, and later changes never count without earlier ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weir_abi::{Family, Layout};
use weir_state::saved::{ChangeLog, Clocks, Folder, Saver, restore};
use weir_state::tables::{DynamicBounds, ImageDeclared, Member, TableBinding, TableChange, TableStore};
use weir_state::{Declared, SharedState, UsedBy};
use weir_tables::{Entries, Kind, Table};

/// Longer than the pause of a saver after an error.
const PAUSE: Duration = Duration::from_millis(2100);

fn set(addresses: &[&str]) -> Table {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    addresses.iter().for_each(|text| entries.insert_text(text, None).unwrap());
    entries.settle()
}

/// A process with a state folder and the table t.
struct Process {
    store: TableStore,
    active: Arc<TableBinding>,
    saver: Saver,
    log: Arc<ChangeLog>,
    notices: Vec<String>,
    unread: Vec<String>,
}

impl Process {
    fn start(path: &Path) -> Self {
        let folder = Folder::open(path).unwrap();
        let restored = restore(&folder, Clocks::now()).unwrap();
        let (store, log) = (TableStore::default(), Arc::new(ChangeLog::default()));
        store.make_last(&log, restored.tables);
        let saver = Saver::new(path.to_owned(), Some(folder), log.clone());
        Self::with(store, saver, log, (restored.notices, restored.unread))
    }

    /// A process that could not open the folder at its start.
    fn start_without(path: &Path) -> Self {
        let (store, log) = (TableStore::default(), Arc::new(ChangeLog::default()));
        store.make_last(&log, Vec::new());
        let saver = Saver::new(path.to_owned(), None, log.clone());
        Self::with(store, saver, log, (Vec::new(), Vec::new()))
    }

    fn with(
        store: TableStore,
        saver: Saver,
        log: Arc<ChangeLog>,
        (notices, unread): (Vec<String>, Vec<String>),
    ) -> Self {
        let (elements, layout) = (set(&[]), Layout::RankLeaf);
        let image = Arc::new(elements.build(layout).unwrap());
        let dynamic = Some(DynamicBounds { size: 1000, timeout_ms: None });
        let members = vec![Member { name: "t".to_owned(), table: Arc::new(elements), dynamic }];
        let declaration = ImageDeclared { members, layout, image, counted: false };
        let active = store.bind(vec![Declared { name: "t".to_owned(), declaration }], weir_state::now_ns()).unwrap();
        active.take_effect();
        Process { store, active, saver, log, notices, unread }
    }

    fn add(&self, address: &str) {
        let change = TableChange::Add { entries: &set(&[address]), timeout_ms: None };
        self.store.change(&self.active, "t", change, weir_state::now_ns()).unwrap();
    }

    fn step(&mut self) -> std::io::Result<()> {
        self.saver.step(&self.store, Some(&self.active))
    }

    fn snapshot(&mut self) {
        self.log.demand_snapshot();
        self.step().unwrap();
    }

    fn entries(&self) -> Vec<String> {
        self.store.read(&self.active, "t", |table| table.entries().map(|one| one.to_string()).collect()).unwrap()
    }
}

/// The files by name, without the lock.
fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let all = fs::read_dir(path).unwrap().map(|file| file.unwrap());
    let all = all.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap_or_default()));
    all.filter(|(name, _)| name != "lock").collect()
}

fn names(path: &Path) -> Vec<String> {
    files(path).into_keys().collect()
}

/// A folder with two snapshots, journals and debts. The entries are 10.0.0.1 in the first journal, 10.0.0.2 in the
/// next, and so on.
fn saved() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path());
    process.add("10.0.0.1");
    process.step().unwrap();
    process.add("10.0.0.2");
    process.step().unwrap();
    process.snapshot();
    process.add("10.0.0.3");
    process.step().unwrap();
    let shared = SharedState::new(UsedBy::Workers);
    let needs = weir_state::limits::LimitNeeds { buckets: 1, largest_address_table: 0 };
    process.saver.debts().step(shared.limits(needs).unwrap()).unwrap();
    let expected = ["debts", "tables-2.journal", "tables-2.snapshot", "tables-3.journal", "tables-3.snapshot"];
    assert_eq!(names(folder.path()), expected);
    folder
}

/// A folder cannot be read as a file, not even by root.
fn make_unreadable(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}

#[test]
fn an_unreadable_snapshot_costs_nothing_and_is_kept() {
    let folder = saved();
    let path = folder.path();
    make_unreadable(&path.join("tables-3.snapshot"));
    let mut process = Process::start(path);
    assert_eq!(process.entries(), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let expected = format!(
        "{}: it is a directory, not a regular file; it is kept as tables-3.snapshot.unread; an earlier snapshot is used",
        path.join("tables-3.snapshot").display()
    );
    assert_eq!((&process.notices, &process.unread), (&vec![expected], &vec!["tables-3.snapshot.unread".to_owned()]));
    (0..4).for_each(|_| process.snapshot());
    assert!(path.join("tables-3.snapshot.unread").is_dir());
    drop(process);
    let process = Process::start(path);
    assert_eq!(process.entries().len(), 3);
    assert_eq!((process.notices, process.unread), (vec![], vec!["tables-3.snapshot.unread".to_owned()]));
}

#[test]
fn an_unreadable_journal_ends_the_changes_and_nothing_is_removed() {
    let folder = saved();
    let path = folder.path();
    let before = files(path);
    make_unreadable(&path.join("tables-2.journal"));
    fs::remove_file(path.join("tables-3.snapshot")).unwrap();
    let process = Process::start(path);
    assert_eq!(process.entries(), ["10.0.0.1"]);
    assert!(process.notices[0].ends_with("it is kept as tables-2.journal.unread; its changes are lost"));
    assert!(
        process.notices[1]
            .ends_with("changes before it are missing; it is kept as tables-3.journal.unread; its changes are lost"),
        "{:?}",
        process.notices
    );
    drop(process);
    // A process that is killed before it has made a snapshot, and another.
    let mut process = Process::start(path);
    assert_eq!((process.entries(), process.notices.len()), (vec!["10.0.0.1".to_owned()], 0));
    process.add("10.0.0.8");
    fs::create_dir(path.join("tables.new")).unwrap();
    process.step().unwrap_err();
    drop(process);
    fs::remove_dir(path.join("tables.new")).unwrap();
    let mut process = Process::start(path);
    assert_eq!(process.entries(), ["10.0.0.1", "10.0.0.8"], "{:?}", process.notices);
    (0..4).for_each(|_| process.snapshot());
    assert_eq!(files(path)["tables-3.journal.unread"], before["tables-3.journal"]);
    assert!(path.join("tables-2.journal.unread").is_dir());
}

#[test]
fn files_of_another_version_survive_a_downgrade() {
    let folder = saved();
    let path = folder.path();
    // The newer version: byte 8 is the lowest of the version.
    let set_version = |version: u8| {
        for (name, mut bytes) in files(path) {
            bytes[8] = version;
            fs::write(path.join(name), bytes).unwrap();
        }
    };
    set_version(3);
    let newer = files(path);
    let mut process = Process::start(path);
    assert_eq!(process.entries(), Vec::<String>::new());
    assert_eq!(process.notices.len(), 5, "{:?}", process.notices);
    for name in newer.keys().filter(|&name| !name.ends_with("journal")) {
        let told = format!("{name}: another version of Weir wrote it: format 3, not 2; it is kept as {name}.unread");
        assert!(process.notices.iter().any(|notice| notice.contains(&told)), "{told}: {:?}", process.notices);
    }
    process.add("10.0.0.9");
    (0..4).for_each(|_| process.snapshot());
    drop(process);
    let mut process = Process::start(path);
    assert_eq!(process.entries(), ["10.0.0.9"]);
    process.snapshot();
    drop(process);
    // Back to the newer version, as the documentation says.
    let found = files(path);
    found.keys().filter(|name| !name.ends_with(".unread")).for_each(|name| fs::remove_file(path.join(name)).unwrap());
    for name in found.keys().filter_map(|name| name.strip_suffix(".unread")) {
        fs::rename(path.join(format!("{name}.unread")), path.join(name)).unwrap();
    }
    assert_eq!(files(path), newer);
    set_version(2);
    let process = Process::start(path);
    assert_eq!(process.entries(), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    assert_eq!((process.notices, process.unread), (vec![], vec![]));
}

#[test]
fn a_second_file_of_the_same_name_is_kept_too() {
    let folder = saved();
    let path = folder.path();
    fs::write(path.join("debts.unread"), "an earlier one").unwrap();
    make_unreadable(&path.join("debts"));
    let process = Process::start(path);
    assert_eq!(process.unread, ["debts.unread", "debts.unread-2"]);
    assert!(process.notices[0].ends_with("it is kept as debts.unread-2; limits begin with full buckets"));
    assert_eq!(process.entries().len(), 3);
}

#[test]
fn a_folder_that_nobody_has_read_is_kept() {
    let folder = saved();
    let path = folder.path();
    let before = files(path);
    let mut process = Process::start_without(path);
    process.add("10.0.0.9");
    (0..4).for_each(|_| process.snapshot());
    let kept: Vec<String> = before.keys().map(|name| format!("{name}.unread")).collect();
    assert_eq!(process.saver.take_unread(), kept);
    assert_eq!(process.saver.take_unread(), Vec::<String>::new());
    let after = files(path);
    before.iter().for_each(|(name, bytes)| assert_eq!(&after[&format!("{name}.unread")], bytes));
    drop(process);
    assert_eq!(Process::start(path).entries(), ["10.0.0.9"]);
}

#[test]
fn snapshots_that_fail_lose_nothing_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut process = Process::start(path);
    process.step().unwrap();
    let before = names(path);
    // The first file of a snapshot cannot be made, and then the second.
    for (round, blocked) in ["tables.new", "journal.new"].into_iter().enumerate() {
        fs::create_dir(path.join(blocked)).unwrap();
        process.log.demand_snapshot();
        process.add(&format!("10.0.{round}.1"));
        assert!(process.step().is_err() && process.saver.has_failed());
        // Changes do not wait for the next attempt.
        process.add(&format!("10.0.{round}.2"));
        process.step().unwrap();
        assert!(process.saver.has_failed());
        fs::remove_dir(path.join(blocked)).unwrap();
        assert_eq!(names(path), before, "{blocked}");
        let copy = tempfile::tempdir().unwrap();
        files(path).into_iter().for_each(|(name, bytes)| fs::write(copy.path().join(name), bytes).unwrap());
        let killed = Process::start(copy.path());
        assert_eq!((killed.entries().len(), killed.notices), (2 * (round + 1), vec![]), "{blocked}");
        thread::sleep(PAUSE);
    }
    process.step().unwrap();
    assert!(!process.saver.has_failed());
    assert_eq!(names(path), ["tables-2.journal", "tables-2.snapshot", "tables-3.journal", "tables-3.snapshot"]);
}

#[test]
fn a_reader_stops_where_changes_were_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut process = Process::start_without(path);
    process.add("10.0.0.1");
    process.step().unwrap();
    process.add("10.0.0.2");
    process.step().unwrap();
    drop(process);
    // No journal has the first change. The number 1 says so.
    assert_eq!(names(path), ["tables-2.journal", "tables-2.snapshot"]);
    let mut snapshot = fs::read(path.join("tables-2.snapshot")).unwrap();
    *snapshot.last_mut().unwrap() ^= 1;
    fs::write(path.join("tables-2.snapshot"), snapshot).unwrap();
    let process = Process::start(path);
    assert_eq!(process.entries(), Vec::<String>::new());
    assert!(process.notices[0].ends_with("; it is kept as tables-2.snapshot.unread; no snapshot is used"));
    assert!(process.notices[1].contains("tables-2.journal: changes before it are missing; it is kept as "));
    drop(process);

    // A journal in the middle is gone.
    let folder = saved();
    let path = folder.path();
    fs::remove_file(path.join("tables-3.snapshot")).unwrap();
    fs::rename(path.join("tables-3.journal"), path.join("tables-4.journal")).unwrap();
    let process = Process::start(path);
    assert_eq!(process.entries(), ["10.0.0.1", "10.0.0.2"]);
    assert!(process.notices[0].contains("tables-4.journal: changes before it are missing; "), "{:?}", process.notices);
    assert_eq!(process.unread, ["tables-4.journal.unread"]);
}
