//! The folder of saved state and its files: who may have written them, and what else may lie there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/process.rs"]
mod process;
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use process::Process;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use support::{image, set};
use weir_abi::Layout;
use weir_state::saved::{Clocks, Folder, Restored, restore};
use weir_state::tables::{DynamicBounds, TableBinding, TableChange};
use weir_state::{SharedState, UsedBy};

/// All names of files with state.
const NAMES: [&str; 4] = ["tables-7.snapshot", "tables-7.journal", "debts", "flows"];
/// A user who is neither root nor the one that runs the tests.
const OTHER_USER: u32 = 65534;

fn restored(path: &Path) -> Restored {
    restore(&Folder::open(path).unwrap(), Clocks::now()).unwrap()
}

fn refusal(path: &Path) -> String {
    Folder::open(path).err().unwrap_or_else(|| panic!("{} is used", path.display())).to_string()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Only root can give files to other users.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder with the table `suspects`, which has 10.0.0.1 in a snapshot and 10.0.0.2 in a journal.
fn saved() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path());
    let active = bind(&process);
    add(&process, &active, "10.0.0.1");
    process.save(&active);
    add(&process, &active, "10.0.0.2");
    process.save(&active);
    folder
}

fn bind(process: &Process) -> Arc<TableBinding> {
    let bounds = DynamicBounds { size: 1000, timeout_ms: None };
    process.bind(vec![image(&[("suspects", &set::<&str>(&[]))], Layout::RankLeaf, Some(bounds))])
}

fn add(process: &Process, active: &TableBinding, address: &str) {
    process.change(active, "suspects", TableChange::Add { entries: &set(&[address]), timeout_ms: None });
}

/// Another policy becomes active, so a snapshot is due.
fn demand_snapshot(process: &Process, table: &str) -> Arc<TableBinding> {
    let bounds = DynamicBounds { size: 1000, timeout_ms: None };
    process.bind(vec![image(&[(table, &set::<&str>(&[]))], Layout::RankLeaf, Some(bounds))])
}

/// What a process finds in the folder, and what it says.
fn found(path: &Path) -> (Vec<String>, Vec<String>) {
    let process = Process::start(path);
    let active = bind(&process);
    (process.names(&active, "suspects"), process.notices)
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    for name in NAMES {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join(name);
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let path = folder.path().to_owned();
        let start = thread::spawn(move || restored(&path));
        while !start.is_finished() {
            // A pipe without a reader cannot be opened like this. A reader that waits is released.
            let nonblock = OFlags::NONBLOCK.bits().cast_signed();
            let has_reader = OpenOptions::new().write(true).custom_flags(nonblock).open(&pipe).is_ok();
            assert!(!has_reader, "{name}: the start waits for somebody who writes to the pipe");
            thread::sleep(Duration::from_millis(1));
        }
        let Restored { notices, unread, .. } = start.join().unwrap();
        assert!(notices.len() == 1 && notices[0].contains(name) && notices[0].contains("a pipe"), "{notices:?}");
        assert_eq!(unread, [format!("{name}.unread")]);
    }
}

#[test]
fn numbers_of_files_do_not_overflow() {
    for number in [u64::MAX, u64::MAX - 1] {
        let folder = saved();
        let [journal, snapshot] = ["journal", "snapshot"].map(|kind| format!("tables-{number}.{kind}"));
        fs::write(folder.path().join(&journal), "").unwrap();
        fs::write(folder.path().join(&snapshot), "").unwrap();
        let (entries, notices) = found(folder.path());
        assert_eq!(entries, ["10.0.0.1", "10.0.0.2"], "{notices:?}");
        for name in [journal, snapshot] {
            assert!(notices.iter().any(|notice| notice.contains(&name)), "{name}: {notices:?}");
            assert!(folder.path().join(format!("{name}.unread")).exists(), "{name}");
        }
        assert_eq!(found(folder.path()), (vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()], vec![]));
    }
}

#[test]
fn names_that_only_look_like_numbers_are_set_aside() {
    for name in ["tables-+9.journal", "tables-09.snapshot", "tables-0.journal", "tables-18446744073709551616.journal"] {
        let folder = saved();
        fs::write(folder.path().join(name), "").unwrap();
        let (entries, notices) = found(folder.path());
        assert_eq!(entries, ["10.0.0.1", "10.0.0.2"], "{name}: {notices:?}");
        assert!(notices.len() == 1 && notices[0].contains(name), "{name}: {notices:?}");
        assert!(folder.path().join(format!("{name}.unread")).exists(), "{name}");
    }
}

#[test]
fn a_folder_that_others_can_write_is_refused() {
    let folder = saved();
    for mode in [0o770, 0o702, 0o1777] {
        set_mode(folder.path(), mode);
        let why = refusal(folder.path());
        assert!(why.contains(folder.path().to_str().unwrap()) && why.contains("chmod go-w"), "{mode:o}: {why}");
    }
    set_mode(folder.path(), 0o755);
    assert_eq!(found(folder.path()).0.len(), 2, "others may read it");
    if is_root() {
        chown(folder.path(), Some(OTHER_USER), None).unwrap();
        let why = refusal(folder.path());
        assert!(why.contains(&format!("belongs to user {OTHER_USER}, not to root")), "{why}");
    }
}

#[test]
fn a_folder_in_a_folder_that_others_can_write_is_refused() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("state");
    drop(Folder::open(&path).unwrap());
    set_mode(outer.path(), 0o777);
    assert!(refusal(&path).contains(&format!("{} can be written by others", outer.path().display())));
    // Nothing is made there either.
    assert!(refusal(&outer.path().join("a/b")).contains("can be written by others"));
    assert!(!outer.path().join("a").exists());
    // In /tmp no user can replace files of other users.
    set_mode(outer.path(), 0o1777);
    drop(Folder::open(&path).unwrap());
    if is_root() {
        let link = outer.path().join("link");
        symlink(&path, &link).unwrap();
        drop(Folder::open(&link).unwrap());
        std::os::unix::fs::lchown(&link, Some(OTHER_USER), None).unwrap();
        assert!(refusal(&link).contains(&format!("{} belongs to user {OTHER_USER}", link.display())));
    }
}

#[test]
fn names_of_others_are_left_alone() {
    let folder = saved();
    let name = OsStr::from_bytes(b"\xff.new");
    fs::write(folder.path().join(name), "").unwrap();
    fs::create_dir(folder.path().join("tables.new")).unwrap();
    assert_eq!(found(folder.path()), (vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()], vec![]));
    assert!(folder.path().join(name).exists());
    assert!(folder.path().join("tables.new.unread").is_dir(), "a folder in place of a file is kept");
}

#[test]
fn folders_are_made_for_their_owner_only() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("a/b");
    drop(Folder::open(&path).unwrap());
    for made in ["a", "a/b"] {
        assert_eq!(fs::metadata(outer.path().join(made)).unwrap().mode() & 0o777, 0o700);
    }
    fs::write(outer.path().join("file"), "").unwrap();
    let why = refusal(&outer.path().join("file"));
    assert!(why.contains("Not a directory"), "{why}");
}

/// Whatever is at the place of a file, it is not read, it is kept, and a message names it and the reason.
fn is_set_aside(name: &str, put: impl Fn(&Path), reason: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    drop(Folder::open(folder.path()).unwrap());
    put(&file);
    let before = fs::symlink_metadata(&file).unwrap().ino();
    let Restored { notices, unread, tables, debts, flows, .. } = restored(folder.path());
    assert!(notices.len() == 1 && notices[0].contains(name) && notices[0].contains(reason), "{reason}: {notices:?}");
    assert_eq!(unread, [format!("{name}.unread")]);
    assert!(tables.is_empty() && debts.is_empty() && flows.is_none());
    assert_eq!(fs::symlink_metadata(folder.path().join(&unread[0])).unwrap().ino(), before);
}

#[test]
fn what_others_may_have_written_is_set_aside() {
    for name in NAMES {
        let put = |path: &Path| {
            fs::write(path, "").unwrap();
            set_mode(path, 0o600);
        };
        let writable = |mode: u32| {
            move |path: &Path| {
                put(path);
                set_mode(path, mode);
            }
        };
        is_set_aside(name, writable(0o660), "can be written by others");
        is_set_aside(name, writable(0o602), "can be written by others");
        is_set_aside(name, |path| symlink("/dev/zero", path).unwrap(), "a link");
        is_set_aside(name, |path| fs::create_dir(path).unwrap(), "a directory");
        if is_root() {
            let given = |path: &Path| {
                put(path);
                chown(path, Some(OTHER_USER), None).unwrap();
            };
            is_set_aside(name, given, "belongs to user 65534");
        }
    }
}

#[test]
fn a_sparse_file_of_any_size_takes_no_memory() {
    for name in NAMES {
        let sparse = |path: &Path| {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
            file.set_len(1 << 42).unwrap();
        };
        is_set_aside(name, sparse, "bytes");
    }
}

#[test]
fn nothing_is_written_through_other_names() {
    let outer = tempfile::tempdir().unwrap();
    let victim = outer.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let path = outer.path().join("state");
    let mut process = Process::start(&path);
    let active = bind(&process);
    for (name, is_link) in [("tables.new", true), ("journal.new", false), ("debts.new", true), ("debts.new", false)] {
        let new = path.join(name);
        match is_link {
            true => symlink(&victim, &new).unwrap(),
            false => fs::hard_link(&victim, &new).unwrap(),
        }
        add(&process, &active, "10.0.0.9");
        process.save(&active);
        let shared = SharedState::new(UsedBy::Workers);
        let needs = weir_state::limits::LimitNeeds { buckets: 1, largest_address_table: 0 };
        process.saver.debts().step(shared.limits(needs).unwrap()).unwrap();
        if name == "tables.new" || name == "journal.new" {
            let _other = demand_snapshot(&process, name);
            process.save(&active);
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{name}");
        assert!(fs::symlink_metadata(&new).is_err(), "{name} has become a file with state");
    }
}

#[test]
fn another_folder_under_the_same_name_is_used_if_nobody_else_does() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("state");
    let mut process = Process::start(&path);
    let active = bind(&process);
    process.save(&active);
    fs::rename(&path, outer.path().join("moved")).unwrap();
    let before = fs::read_dir(outer.path().join("moved")).unwrap().count();
    // What is there now belongs to another Weir, or others can write it.
    let other = Folder::open(&path).unwrap();
    let _other = demand_snapshot(&process, "other");
    assert_eq!(process.saver.step(&process.store, Some(&active)).unwrap_err().to_string(), "another weir uses it");
    drop(other);
    set_mode(&path, 0o777);
    let needs = weir_state::limits::LimitNeeds { buckets: 1, largest_address_table: 0 };
    let shared = SharedState::new(UsedBy::Workers);
    let limits = shared.limits(needs).unwrap();
    let problem = process.saver.debts().step(limits).unwrap_err().to_string();
    assert!(problem.contains("can be written by others"), "{problem}");
    // The folder is sound, but its files were not read.
    set_mode(&path, 0o700);
    fs::write(path.join("debts"), "planted").unwrap();
    process.saver.debts().step(limits).unwrap();
    assert_eq!(fs::read_to_string(path.join("debts.unread")).unwrap(), "planted");
    assert_eq!(fs::read_dir(outer.path().join("moved")).unwrap().count(), before, "nothing was written there");
}

#[test]
fn who_loses_the_lock_writes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut process = Process::start(path);
    let active = bind(&process);
    process.save(&active);
    assert_eq!(refusal(path), "another weir uses it");
    fs::remove_file(path.join("lock")).unwrap();
    let other = Folder::open(path).unwrap();
    let _other = demand_snapshot(&process, "other");
    let problem = process.saver.step(&process.store, Some(&active)).unwrap_err().to_string();
    assert_eq!(problem, "another weir uses it");
    drop(other);
}

#[test]
fn a_lock_that_is_no_file_of_the_user_is_refused() {
    for (put, reason) in [
        ((|path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap()) as fn(&Path), "a pipe"),
        (|path| symlink("/dev/null", path).unwrap(), "a link"),
        (|path| fs::create_dir(path).unwrap(), "a directory"),
        (
            |path| {
                File::create(path).unwrap().write_all(b"").unwrap();
                set_mode(path, 0o666);
            },
            "can be written by others",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        put(&folder.path().join("lock"));
        let why = refusal(folder.path());
        assert!(why.contains("lock") && why.contains(reason), "{reason}: {why}");
    }
}

#[test]
fn a_file_that_grows_is_read_up_to_its_former_end() {
    let folder = saved();
    let journal = folder.path().join("tables-2.journal");
    let mut bytes = Vec::new();
    File::open(&journal).unwrap().read_to_end(&mut bytes).unwrap();
    // Half of a record is what a process that was killed leaves. The reader does not wait for the rest.
    fs::write(&journal, &bytes[..bytes.len() - 1]).unwrap();
    set_mode(&journal, 0o600);
    let (entries, notices) = found(folder.path());
    assert!(
        entries == ["10.0.0.1"] && notices.len() == 1 && notices[0].contains("incomplete"),
        "{entries:?} {notices:?}"
    );
}
