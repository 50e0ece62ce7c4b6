//! A local user without privileges who tries to prevent Weir from starting and to disturb a running one; and a machine
//! with few descriptors.
//!
//! `WEIR_TEST_DESCRIPTORS=64 cargo test -p weir --test live` runs the other live tests with few descriptors.

use crate::device_under_test::{Running, Setup};
use crate::exits::guard_of;
use crate::hosts::{Host, Hosts};
use crate::traffic::{Listener, flows, send};
use crate::{check_account, put};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_control::Request;

const NOBODY: u32 = 65534;
const POLICY: &str = "upstream { udp dport 9 accept; drop }\ndownstream { accept }\n";
/// The folder of claims.
const CLAIMS: &str = "/run/weir";

/// Makes this thread, and no other of the process, run as an unprivileged user.
fn become_nobody() {
    let (uid, gid) = (rustix::process::Uid::from_raw(NOBODY), rustix::process::Gid::from_raw(NOBODY));
    let done = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid));
    done.expect("root may become anybody");
    assert!(fs::create_dir("/run/weir-hostile").is_err(), "this thread still has rights");
}

/// The targets of the hostile user.
#[derive(Clone, Default)]
struct Targets {
    processes: Vec<Pid>,
    /// Files of other users.
    files: Vec<PathBuf>,
    /// A world-writable folder, in which Weir keeps temporary files.
    shared: PathBuf,
}

/// A hostile user on the machine.
struct Hostile {
    enough: Arc<AtomicBool>,
    targets: Arc<Mutex<Targets>>,
    thread: JoinHandle<Vec<String>>,
}

impl Hostile {
    /// Starts the attacks. Returns once the socket names of older versions of Weir are taken.
    fn start(host: &Host, shared: &Path) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let targets = Arc::new(Mutex::new(Targets { shared: shared.to_owned(), ..Targets::default() }));
        let (own_enough, own_targets) = (enough.clone(), targets.clone());
        let (ready, is_ready) = channel();
        let thread = host.start(move || {
            become_nobody();
            let _taken = ["weir/lower", "weir/upper"].map(take_abstract_name);
            ready.send(()).expect("somebody waits");
            let mut breaches = Vec::new();
            while !own_enough.load(Ordering::Relaxed) {
                let targets = own_targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
                attempt(&targets, &mut breaches);
                thread::sleep(Duration::from_millis(5));
            }
            breaches.sort();
            breaches.dedup();
            breaches
        });
        is_ready.recv().expect("the names are free");
        Hostile { enough, targets, thread }
    }

    /// Also attacks a running Weir: its processes, claims and control socket.
    fn go_for(&self, running: &Running) {
        let claims = fs::read_dir(CLAIMS).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let files = claims.chain([CLAIMS.into(), running.control().to_owned()]).collect();
        let processes = vec![running.pid(), guard_of(running)];
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        *targets = Targets { processes, files, ..targets.clone() };
    }

    /// Stops. Returns the attacks that succeeded.
    fn stop(self) -> Vec<String> {
        self.enough.store(true, Ordering::Relaxed);
        self.thread.join().expect("it goes on until it is told to end")
    }
}

/// Binds an abstract socket name.
fn take_abstract_name(name: &str) -> Vec<OwnedFd> {
    take(&SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name"))
}

/// Binds an address, and fills its queue so that others cannot connect.
fn take(address: &SocketAddrUnix) -> Vec<OwnedFd> {
    let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None);
    let listener = socket().expect("anybody has sockets");
    bind(&listener, address).expect("anybody may bind it");
    listen(&listener, 0).expect("it is bound");
    let mut taken = vec![listener];
    loop {
        let client = socket().expect("anybody has sockets");
        if connect(&client, address).is_err() {
            return taken;
        }
        taken.push(client);
    }
}

/// Tries every attack once. Adds those that succeed to `breaches`.
fn attempt(targets: &Targets, breaches: &mut Vec<String>) {
    let mut check = |what: &str, at: &dyn std::fmt::Debug, worked: bool| {
        if worked {
            breaches.push(format!("{what} {at:?}"));
        }
    };
    for &process in &targets.processes {
        for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGSTOP, Signal::SIGHUP, Signal::SIGUSR1] {
            check("signalled", &process, kill(process, signal).is_ok());
        }
        for name in ["mem", "environ", "maps"] {
            check(
                "opened",
                &name,
                File::open(format!("/proc/{process}/{name}")).is_ok_and(|mut file| reads(&mut file)),
            );
        }
    }
    let beside = targets.shared.join("taken");
    let others = fs::read_dir(&targets.shared).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let others = others.filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.uid() != NOBODY));
    for path in targets.files.iter().cloned().chain(others) {
        check("listed", &path, fs::read_dir(&path).is_ok());
        check("locked", &path, File::open(&path).is_ok_and(|file| file.try_lock().is_ok()));
        check("wrote to", &path, OpenOptions::new().write(true).open(&path).is_ok());
        check("renamed", &path, fs::rename(&path, &beside).is_ok());
        check("removed", &path, fs::remove_file(&path).is_ok() || fs::remove_dir(&path).is_ok());
        check("linked", &path, fs::hard_link(&path, &beside).is_ok());
        check("put a file into", &path, File::create_new(path.join("object")).is_ok());
        check("connected to", &path, UnixStream::connect(&path).is_ok());
    }
}

fn reads(file: &mut File) -> bool {
    std::io::Read::read(file, &mut [0; 16]).is_ok_and(|bytes| bytes > 0)
}

/// A world-writable folder, like `/tmp`, in a folder that every user may enter.
fn shared_folder(folder: &Path) -> PathBuf {
    let shared = folder.join("shared");
    fs::create_dir(&shared).expect("the folder can be written to");
    set_mode(folder, 0o755);
    set_mode(&shared, 0o1777);
    shared
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// Runs a job as an unprivileged user.
fn as_nobody<R: Send + 'static>(job: impl FnOnce() -> R + Send + 'static) -> R {
    let started = thread::spawn(move || {
        become_nobody();
        job()
    });
    started.join().expect("it ends")
}

/// Checks that packets are filtered according to the policy.
fn check_filters(hosts: &Hosts, running: &Running) {
    let before = running.stats().upstream.total;
    let (at_server, passed) = (Listener::at(&hosts.server, "s"), flows(10, 1, 9));
    send(&hosts.client, "c", &passed);
    send(&hosts.client, "c", &flows(10, 1, 10));
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= before.packets + 20);
    let stats = running.settled();
    check_account(&stats);
    assert_eq!((stats.upstream.total.passed, stats.upstream.total.dropped), (before.passed + 10, before.dropped + 10));
    // Several workers do not preserve the order.
    let (mut received, mut passed) = (at_server.received(passed.len()), passed);
    received.sort();
    passed.sort();
    assert_eq!(received, passed);
}

each_engine!(a_hostile_user_on_the_box_changes_nothing);
fn a_hostile_user_on_the_box_changes_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", POLICY);
    let shared = shared_folder(folder);
    let hostile = Hostile::start(&hosts.weir, &shared);
    let environment = vec![("TMPDIR".to_owned(), shared.display().to_string())];
    let setup = Setup { environment, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "all.weir", &setup);
    hostile.go_for(&running);
    check_filters(hosts, &running);
    for _ in 0..2 {
        let generation = running.load(&folder.join("all.weir"));
        running.ask(&Request::Activate { generation, confirm_s: None }).expect("it is ready");
    }
    check_filters(hosts, &running);
    assert_eq!(running.status().activations, 3);
    assert_eq!(running.stop(), 0, "{engine}");
    assert_eq!(hostile.stop(), [""; 0], "{engine}");
}

each_kernel_engine!(a_second_weir_is_refused_before_it_reads_its_policy);
fn a_second_weir_is_refused_before_it_reads_its_policy(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", POLICY);
    let (first, second) = (folder.join("first"), folder.join("second"));
    for folder in [&first, &second] {
        fs::create_dir(folder).expect("the folder can be written to");
    }
    let policy = folder.join("all.weir").display().to_string();
    let running = Running::start(&hosts.weir, &first, &policy, engine, 1);
    let holder = format!("another weir has it (pid {})", running.pid());
    let refused = |setup: &Setup, interface: &str| {
        let (code, stderr) = Running::refused_as(&hosts.weir, &second, "there-is-none.weir", setup);
        assert_eq!((code, stderr), (1, format!("weir: interface {interface}: {holder}\n")), "{engine}");
    };
    refused(&Setup::new(engine), "lower");
    // An alternative name means the same interface.
    hosts.weir.ip("link property add dev lower altname weir-alias");
    refused(&Setup { lower: vec!["weir-alias".to_owned()], ..Setup::new(engine) }, "weir-alias");
    // A conflict on one of several interfaces suffices. Claims on the others are released.
    refused(&Setup { upper: vec!["lo".to_owned()], ..Setup::new(engine) }, "lower");
    // In another network namespace, this name is another interface.
    let other = Hosts::new();
    let elsewhere = Running::start(&other.weir, &second, &policy, engine, 1);
    assert_eq!(elsewhere.stop(), 0);
    // The claims survive the end of a guard.
    kill(guard_of(&running), Signal::SIGKILL).expect("it is there");
    running.wait_until("another guard is started", |running| running.log().contains("another one is started"));
    refused(&Setup::new(engine), "lower");
    check_filters(hosts, &running);
    running.kill();
    let next = Running::start(&hosts.weir, &second, &policy, engine, 1);
    check_filters(hosts, &next);
    assert_eq!(next.stop(), 0);
}

#[test]
fn one_interface_by_two_names_is_refused() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    put(folder.path(), "all.weir", POLICY);
    hosts.weir.ip("link property add dev lower altname other");
    let setup = Setup { upper: vec!["other".to_owned()], ..Setup::new("afpacket") };
    let (code, stderr) = Running::refused_as(&hosts.weir, folder.path(), "all.weir", &setup);
    assert_eq!((code, stderr.as_str()), (2, "weir: lower and other are one interface\n"));
}

#[test]
fn a_log_follows_no_link_of_another_user_and_waits_for_no_reader() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "all.weir", POLICY);
    put(folder, "victim", "untouched\n");
    let (shared, victim) = (shared_folder(folder), folder.join("victim"));
    let (link, pipe) = (shared.join("link"), shared.join("pipe"));
    let (own_link, own_pipe, own_victim) = (link.clone(), pipe.clone(), victim.clone());
    as_nobody(move || {
        symlink(&own_victim, &own_link).expect("anybody may write there");
        mknodat(CWD, &own_pipe, FileType::Fifo, Mode::RWXU, 0).expect("anybody may write there");
    });
    let log_to = |path: &Path| Setup {
        more: vec!["--limits-log".to_owned(), path.display().to_string(), "--limits-interval=100ms".to_owned()],
        ..Setup::new("afpacket")
    };
    for (path, word) in [(&link, "link"), (&pipe, "pipe")] {
        let (code, stderr) = Running::refused_as(&hosts.weir, folder, "all.weir", &log_to(path));
        assert!(code == 1 && stderr.contains(&path.display().to_string()) && stderr.contains(word), "{code}: {stderr}");
    }

    // In their own folder, users can replace the log with a link.
    let theirs = shared.join("theirs");
    let (log, own_log, own_victim) = (theirs.join("log"), theirs.join("log"), victim.clone());
    as_nobody(move || fs::create_dir(&theirs).expect("anybody may write there"));
    let running = Running::start_as(&hosts.weir, folder, "all.weir", &log_to(&log));
    running.wait_until("there is a line", |_| fs::metadata(&log).is_ok_and(|log| log.len() > 0));
    as_nobody(move || {
        fs::remove_file(&own_log).expect("it is their folder");
        symlink(&own_victim, &own_log).expect("it is their folder");
    });
    running.wait_until("it complains", |running| running.log().contains("link"));
    check_filters(&hosts, &running);
    assert_eq!(running.stop(), 0);
    assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched\n");
}

#[test]
fn a_socket_of_another_user_in_place_of_the_control_socket_is_named() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    put(folder.path(), "all.weir", POLICY);
    let shared = shared_folder(folder.path());
    let own_path = shared.join("control.sock");
    // The queue is full and no process accepts, so a connecting process would wait forever.
    let _taken = as_nobody(move || take(&SocketAddrUnix::new(&own_path).expect("a short path")));
    let policy = folder.path().join("all.weir").display().to_string();
    let (code, stderr) = Running::refused(&hosts.weir, &shared, &policy, "afpacket");
    assert!(code == 1 && stderr.contains("this is a socket of another user (uid 65534)"), "{code}: {stderr}");
}

each_engine!(with_72_descriptors_everything_works);
fn with_72_descriptors_everything_works(engine: &str, hosts: &Hosts, folder: &Path) {
    let clients = 12;
    let bundle = compile(folder);
    let setup = Setup { descriptors: Some(72), workers: 2, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "rich.weir", &setup);
    // More generations than are kept. In the kernel, a generation needs a descriptor for each map and program while it
    // is loaded. Fewer are therefore kept, and older ones are unloaded.
    let load = |_| running.ask(&Request::Load { policy: bundle.clone() });
    let loaded: Result<Vec<_>, _> = (0..10).map(load).collect();
    assert_eq!(loaded.map(|loaded| loaded.len()).map_err(|failure| failure.message().to_owned()), Ok(10), "{engine}");
    let ready: Vec<u64> = running.status().generations.iter().map(|generation| generation.id).collect();
    let [1, .., last] = ready[..] else { panic!("{engine}: {ready:?}") };
    assert_eq!(last, 11);
    for generation in [last, 1].iter().cycle().take(20) {
        running.ask(&Request::Activate { generation: *generation, confirm_s: None }).expect("it is ready");
    }
    assert_eq!(running.status().activations, 21);
    check_filters(hosts, &running);
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| (0..10).for_each(|_| _ = (running.status(), running.stats())));
        }
    });
    assert_eq!(running.stop(), 0, "{engine}");
}

/// Writes a policy with tables and postures and compiles it into a bundle, which loads faster.
fn compile(folder: &Path) -> PathBuf {
    let text = "table one { type ipv4; elements = { 10.9.0.7 } }
table two { type ipv4 : label; elements = { 10.8.0.0/16 : A, 10.7.0.0/16 : B } }
posture high { upstream { ip saddr @one drop; udp dport 9 accept; drop } downstream { accept } }
upstream { ip saddr @one drop; ip saddr @two { A } drop; udp dport 9 accept; drop }
downstream { accept }
";
    put(folder, "rich.weir", text);
    let bundle = folder.join("rich.weirb");
    let mut compile = Command::new(env!("CARGO_BIN_EXE_weir"));
    let compiled = compile.args(["compile", "rich.weir", "-o"]).arg(&bundle).current_dir(folder).output();
    let compiled = compiled.expect("the program was built");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    bundle
}

#[test]
fn a_limit_of_descriptors_that_is_too_low_is_named_at_once() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let refused = |descriptors: u64| {
        let setup = Setup { descriptors: Some(descriptors), workers: 256, ..Setup::new("afpacket") };
        put(folder.path(), "all.weir", POLICY);
        let (code, stderr) = Running::refused_as(&hosts.weir, folder.path(), "all.weir", &setup);
        assert_eq!(code, 1, "{stderr}");
        stderr
    };
    let stderr = refused(63);
    assert!(
        stderr.starts_with("weir: this process may have 63 files open and needs at least 64 (`ulimit -n`"),
        "{stderr}"
    );
    // One socket for each worker and interface.
    let stderr = refused(64);
    assert!(stderr.contains("this process may have 64 files open, which is too few (`ulimit -n`"), "{stderr}");
}
