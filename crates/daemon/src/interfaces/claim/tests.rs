//! Claims in folders of their own.

use super::*;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use tempfile::TempDir;

fn target(file: &str, interface: &str) -> ClaimTarget {
    ClaimTarget { file: file.to_owned(), interface: interface.to_owned() }
}

fn take(folder: &Path, targets: &[ClaimTarget]) -> Result<Claims, Failure> {
    Claims::take_in(folder, targets, Claimant::Weir, Duration::ZERO)
}

fn refusal(folder: &Path, targets: &[ClaimTarget]) -> String {
    take(folder, targets).err().expect("it is refused").message().to_owned()
}

/// A directory for claims, and its parent.
fn folder() -> (TempDir, PathBuf) {
    let above = tempfile::tempdir().expect("a folder");
    let folder = above.path().join("weir");
    (above, folder)
}

#[test]
fn a_claim_is_held_until_it_is_released() {
    let (_above, folder) = folder();
    let (one, both) = ([target("net-1-if-3", "b")], [target("net-1-if-3", "b"), target("net-1-if-2", "a")]);
    let held = take(&folder, &one).expect("nobody has it");
    assert_eq!(fs::metadata(&folder).expect("it was made").mode() & 0o7777, 0o700);
    assert_eq!(refusal(&folder, &both), format!("interface b: another weir has it (pid {})", std::process::id()));
    assert!(!folder.join("net-1-if-2").exists(), "nothing of the other is left");
    let _guard = Claims::take_in(&folder, &one, Claimant::Guard, Duration::ZERO).expect("guards have their own");
    let (own, long) = (folder.clone(), Duration::from_secs(30));
    let waiting = thread::spawn(move || Claims::take_in(&own, &both, Claimant::Weir, long).is_ok());
    drop(held);
    assert!(waiting.join().expect("it ends"));
    let left: Vec<_> = fs::read_dir(&folder).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["net-1-if-3.guard"]);
    let guard = Claims::take_in(&folder, &one, Claimant::Guard, Duration::ZERO).err().expect("there is one");
    assert!(guard.message().starts_with("interface b: the guard of another weir still has it (pid "), "{guard}");
}

#[test]
fn the_claim_of_a_killed_process_can_be_taken() {
    let (_above, folder) = folder();
    DirBuilder::new().mode(0o755).create(&folder).expect("it can be made");
    fs::write(folder.join("net-1-if-3"), "4194304\n").expect("a file");
    let held = take(&folder, &[target("net-1-if-3", "b")]).expect("nobody has a lock");
    let text = fs::read_to_string(folder.join("net-1-if-3")).expect("it is there");
    assert_eq!(text, format!("{}\n", std::process::id()));
    drop(held);
}

#[test]
fn files_of_killed_processes_are_removed_and_no_others() {
    let (above, folder) = folder();
    DirBuilder::new().mode(0o700).create(&folder).expect("it can be made");
    for stale in ["net-7-if-3", "net-7-if-3.guard", "port-0000:01:00.0", "net-8-if-2"] {
        fs::write(folder.join(stale), "4194304\n").expect("a file");
    }
    let held = File::open(folder.join("net-8-if-2")).expect("it is there");
    held.lock().expect("nobody has it");
    fs::write(folder.join("notes"), "").expect("a file");
    let victim = above.path().join("victim");
    fs::write(&victim, "untouched").expect("a file");
    symlink(&victim, folder.join("net-9-if-2")).expect("it is ours");
    let guard = Claims::take_in(&folder, &[target("net-1-if-2", "a")], Claimant::Guard, Duration::ZERO);
    assert!(folder.join("net-7-if-3").exists(), "only a Weir that starts removes them");
    let weir = take(&folder, &[target("net-1-if-3", "b")]).expect("nobody has it");
    let mut left: Vec<_> =
        fs::read_dir(&folder).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["net-1-if-2.guard", "net-1-if-3", "net-8-if-2", "net-9-if-2", "notes"]);
    assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched");
    drop((weir, guard));
}

/// One process may remove a stale file while another one claims it. The claimant then reads the process ID of a dead
/// holder.
#[test]
fn a_holder_that_does_not_run_is_not_believed_at_once() {
    assert_eq!(settling(Some(std::process::id())), Duration::ZERO);
    assert_eq!([settling(Some(4_194_304)), settling(Some(0)), settling(None)], [UNNAMED_MAX; 3]);
}

#[test]
fn only_one_of_many_holds_a_claim() {
    let (_above, folder) = folder();
    let held = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let Ok(claims) = take(&folder, &[target("net-1-if-3", "b")]) else { continue };
                    assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(claims);
                }
            });
        }
    });
}

#[test]
fn a_folder_that_others_could_write_to_is_refused() {
    let (above, folder) = folder();
    let set = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    let one = [target("net-1-if-3", "b")];
    let says = |words: &str| {
        let said = refusal(&folder, &one);
        let remedy = format!("install -d -m 700 -o {} ", rustix::process::geteuid());
        assert!(said.contains(words) && said.contains(&remedy), "{said}");
    };
    drop(take(&folder, &one).expect("it can be made"));
    for mode in [0o777, 0o720, 0o1777, 0o702] {
        set(&folder, mode);
        says(&format!("other users may write to it (mode {mode:04o})"));
    }
    set(&folder, 0o755);
    drop(take(&folder, &one).expect("others may only look"));
    for mode in [0o777, 0o775] {
        set(above.path(), mode);
        says("other users may replace it");
    }
    set(above.path(), 0o1777);
    drop(take(&folder, &one).expect("as in /tmp, nobody may rename what is ours"));
    if rustix::process::geteuid().is_root() {
        chown(&folder, Some(65534), None).expect("root may");
        says("it belongs to uid 65534");
        chown(&folder, Some(0), None).expect("root may");
    }
    let elsewhere = above.path().join("elsewhere");
    fs::rename(&folder, &elsewhere).expect("it is ours");
    symlink(&elsewhere, &folder).expect("it is ours");
    says("it is not a directory");
    fs::remove_file(&folder).expect("it is ours");
    fs::write(&folder, "").expect("it is ours");
    says("it is not a directory");
}

#[test]
fn no_link_is_followed_to_a_lock() {
    let (above, folder) = folder();
    DirBuilder::new().mode(0o700).create(&folder).expect("it can be made");
    let victim = above.path().join("victim");
    fs::write(&victim, "untouched").expect("a file");
    symlink(&victim, folder.join("net-1-if-3")).expect("it is ours");
    assert!(refusal(&folder, &[target("net-1-if-3", "b")]).contains("net-1-if-3: "));
    assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched");
}

#[test]
fn an_interface_is_known_by_namespace_and_index() {
    let of = |ports: &[&str], whose: PortKind| {
        let ports: Vec<String> = ports.iter().map(|&port| port.to_owned()).collect();
        ClaimTarget::of(ports.iter(), whose)
    };
    let lo = of(&["lo"], PortKind::Kernel).expect("every machine has it");
    let namespace = network_namespace().expect("there is one");
    assert_eq!(lo, [target(&format!("net-{namespace}-if-1"), "lo")]);
    assert_eq!(lo[0].to_string().parse(), Ok(lo[0].clone()));
    let twice = of(&["lo", "lo"], PortKind::Kernel).expect_err("it is one").to_string();
    assert_eq!(twice, "weir: lo and lo are one interface");
    let lo = of(&["lo"], PortKind::Kernel).expect("it is there");
    assert!(ClaimTarget::refuse_shared(&lo, &[]).is_ok());
    let shared = ClaimTarget::refuse_shared(&lo, &lo).expect_err("it is the same").to_string();
    assert_eq!(shared, "weir: interface lo is given for two purposes");
    let missing = of(&["weir-none"], PortKind::Kernel).expect_err("there is none").to_string();
    assert!(missing.starts_with("weir: interface weir-none: "), "{missing}");
    for text in ["", "=lo", "lo", "../x=lo"] {
        assert!(text.parse::<ClaimTarget>().is_err(), "{text}");
    }
}

#[test]
fn virtual_ports_of_dpdk_are_private_and_cards_are_not() {
    let ports = ["net_memif0", "0000:fe:1f.7", "a/b", "lo"].map(str::to_owned);
    let targets = ClaimTarget::of(ports.iter(), PortKind::Dpdk).expect("each is another");
    assert_eq!(targets[..2], [target("port-0000:fe:1f.7", "0000:fe:1f.7"), target("port-a_b", "a/b")]);
    assert!(targets[2].file.starts_with("net-"), "{targets:?}");
}
