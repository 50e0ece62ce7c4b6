//! Trials on a running Weir, and situations that must not delay its operator: hanging workers, meaningless requests,
//! endless files, exhausted file descriptors.

use crate::device_under_test::{Running, Setup, TIMEOUT, wait_until};
use crate::hosts::Hosts;
use crate::put;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{Active, Request};

const ALL: &str =
    "upstream { accept }\ndownstream { accept }\nposture shut { upstream { drop } downstream { drop } }\n";

fn activate(generation: u64, confirm_s: impl Into<Option<f64>>) -> Request {
    Request::Activate { generation, confirm_s: confirm_s.into() }
}

fn shut() -> Request {
    Request::Posture { name: Some("shut".to_owned()) }
}

/// The active generation, and the target of a rollback.
fn state(running: &Running) -> (Active, Option<Active>) {
    let status = running.status();
    let posture = status.rollback_posture;
    let back = status.rollback_to.map(|generation| Active { generation, posture });
    (Active { generation: status.generation, posture: status.posture }, back)
}

each_kind_and_host!(a_trial_ends_only_where_something_was_confirmed);
fn a_trial_ends_only_where_something_was_confirmed(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let [two, three] = [(), ()].map(|()| running.load(&folder.join("all.weir")));
    let ask = |request: &Request| running.ask(request).unwrap_or_else(|failure| panic!("{engine}: {failure}"));
    let base = |generation| Active { generation, posture: None };
    let closed = |generation| Active { generation, posture: Some("shut".to_owned()) };
    // Neither a posture nor another activation confirms a trial.
    for second in [shut(), activate(three, None), activate(two, None), activate(three, 300.0)] {
        ask(&activate(two, 600.0));
        ask(&second);
        let (status, (_, back)) = (running.status(), state(&running));
        assert!(status.confirm_left_s.is_some() && back == Some(base(1)), "{engine}: {second:?}");
        ask(&activate(two, 0.05));
        running.wait_until("it goes back", |running| running.status().confirm_left_s.is_none());
        assert_eq!(state(&running), (base(1), None), "{engine}: {second:?}");
    }
    // Activating what is active already does not change the target of a rollback.
    ask(&activate(two, None));
    ask(&activate(two, None));
    assert_eq!(state(&running), (base(2), Some(base(1))), "{engine}");
    // A rollback leads to a confirmed generation, never to one on trial.
    ask(&shut());
    assert_eq!(state(&running), (closed(2), Some(base(2))), "{engine}");
    ask(&activate(three, 600.0));
    ask(&Request::Rollback);
    assert_eq!(state(&running), (closed(2), Some(base(2))), "{engine}");
    ask(&Request::Rollback);
    assert_eq!(state(&running), (base(2), Some(closed(2))), "{engine}");
    // After a confirmation, a rollback leads to the previously confirmed generation.
    ask(&activate(three, 600.0));
    ask(&Request::Confirm);
    assert_eq!(state(&running), (base(3), Some(base(2))), "{engine}");
    ask(&Request::Rollback);
    assert_eq!(state(&running), (base(2), Some(base(3))), "{engine}");
    assert_eq!(running.stop(), 0);
}

/// Sends bytes and returns the first line of the answer.
fn raw(running: &Running, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(running.control()).expect("it listens");
    let _hung_up = stream.write_all(bytes);
    let _hung_up = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    let _hung_up = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn requests_that_mean_nothing_take_nothing() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", "afpacket", 1);
    let activations = running.status().activations;
    for seconds in ["1e19", "1e300", "0", "-1", "-0.0", "1e-300", "2592001"].iter().cycle().take(70) {
        let request = format!("{{\"activate\":{{\"generation\":1,\"confirm_s\":{seconds}}}}}\n");
        let answer = raw(&running, request.as_bytes());
        assert!(answer.contains("--confirm: a time above 0 and up to 30 days"), "{seconds}: {answer}");
    }
    assert_eq!(running.status().activations, activations, "nothing was activated");
    check_files_that_never_end(&running, folder);
    // SIGHUP does not terminate it.
    kill(running.pid(), Signal::SIGHUP).expect("it runs");
    running.wait_until("it says so", |running| running.log().contains("SIGHUP: no list has changed"));
    assert_eq!(running.status().generation, 1);
    check_no_descriptors(&running);
    assert_eq!(running.stop(), 0);
}

/// Checks that policies, includes and lists that are not regular files are refused immediately.
fn check_files_that_never_end(running: &Running, folder: &Path) {
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    std::os::unix::fs::symlink("loop", folder.join("loop")).expect("the folder can be written to");
    fs::File::create(folder.join("sparse")).and_then(|file| file.set_len(1 << 40)).expect("files may have holes");
    let refused = |path: &Path, words: &str| {
        let failure = running.ask(&Request::Load { policy: path.to_owned() }).expect_err("it is refused");
        assert!(matches!(&failure, Failure::Rejected(message) if message.contains(words)), "{words}: {failure}");
    };
    refused(&pipe, "is a pipe, not a regular file");
    refused(Path::new("/dev/zero"), "is a device, not a regular file");
    refused(folder, "is a directory, not a regular file");
    refused(&folder.join("loop"), "symbolic links");
    refused(&folder.join("sparse"), "longer than 8 MiB");
    refused(running.control(), "is a socket, not a regular file");
    for (name, what) in [("pipe", "a pipe"), ("/dev/zero", "a device"), ("sparse", "longer than")] {
        put(
            folder,
            "list.weir",
            &format!("table t {{ type ipv4; file \"{name}\" }}\nupstream {{ ip saddr @t drop; accept }}\n"),
        );
        refused(&folder.join("list.weir"), what);
        if name != "sparse" {
            put(folder, "include.weir", &format!("include \"{name}\"\nupstream {{ accept }}\n"));
            refused(&folder.join("include.weir"), what);
        }
    }
}

/// Checks that clients get an error while no descriptors are left, and answers afterwards.
fn check_no_descriptors(running: &Running) {
    let pid = rustix::process::Pid::from_raw(running.pid().as_raw());
    let folder = format!("/proc/{}/fd", running.pid());
    let open = fs::read_dir(folder).expect("it runs").filter_map(|entry| Some(entry.ok()?.path()));
    // The last opened descriptor is the spare one, which is closed in order to answer a client.
    let null = open.filter(|path| fs::read_link(path).is_ok_and(|to| to == Path::new("/dev/null")));
    let numbers = null.filter_map(|path| path.file_name()?.to_str()?.parse::<u64>().ok());
    let spare = numbers.max().expect("there is one");
    let limits = fs::read_to_string(format!("/proc/{}/limits", running.pid())).expect("it runs");
    let of_files =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a process has all limits");
    let [usual, maximum]: [u64; 2] = {
        let numbers: Vec<u64> = of_files.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        numbers.try_into().expect("both limits are numbers")
    };
    let limit = |current| prlimit(pid, Resource::Nofile, Rlimit { current: Some(current), maximum: Some(maximum) });
    limit(spare + 1).expect("it is ours");
    // Released numbers are used first.
    let mut holding = Vec::new();
    running.wait_until("there are none left", |running| {
        holding.push(UnixStream::connect(running.control()).expect("it listens"));
        let failure = running.ask(&Request::Status).err();
        failure.is_some_and(|failure| failure.message().contains("cannot accept another client: Too many open files"))
    });
    limit(usual).expect("it is ours");
    drop(holding);
    running.wait_until("it answers again", |running| running.ask(&Request::Status).is_ok());
}

/// The thread with the given name. A new thread sets its name itself.
fn thread_of(running: &Running, name: &str) -> Pid {
    let is_it = |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let mut found = None;
    running.wait_until("a thread has the name", |running| {
        let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).expect("it runs");
        found = tasks.filter_map(Result::ok).map(|task| task.path()).find(|path| is_it(path));
        found.is_some()
    });
    let number = found.as_deref().and_then(|path| path.file_name()?.to_str()?.parse().ok());
    Pid::from_raw(number.expect("a number"))
}

/// A thread that this one traces. The test could not wait for its process if it stayed traced after a failure.
pub struct Traced(Pid);

impl Traced {
    /// Stops the thread with the given name, until this is dropped.
    pub fn stop(running: &Running, name: &str) -> Self {
        let thread = thread_of(running, name);
        ptrace::seize(thread, ptrace::Options::empty()).expect("it is our child's");
        let traced = Traced(thread);
        ptrace::interrupt(thread).expect("it is seized");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
        traced
    }

    /// Whether it has ended. Then there is no need to wait for it any more.
    fn has_ended(&self) -> bool {
        let status = waitpid(self.0, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
        matches!(status, Ok(WaitStatus::Signaled(..) | WaitStatus::Exited(..)) | Err(_))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Only a stopped thread can be detached. One that has ended cannot be stopped.
        let start = Instant::now();
        while ptrace::detach(self.0, None).is_err() && !self.has_ended() && start.elapsed() < TIMEOUT {
            let _gone = ptrace::interrupt(self.0);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_worker_that_hangs_keeps_neither_status_nor_the_end_waiting() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "all.weir", ALL);
    let mut running = Running::start(&hosts.weir, folder, "all.weir", "afpacket", 2);
    let traced = Traced::stop(&running, "weir-1");
    let control = running.control().to_owned();
    let change = std::thread::spawn(move || weir_control::ask(&control, &shut()));
    // All requests are answered during the activation, and report it.
    running.wait_until("it is activating", |running| running.status().activating.is_some());
    assert!(running.status().activating.is_some_and(|to| to.posture.as_deref() == Some("shut")));
    running.wait_until("the other worker has changed", |running| {
        running.status().mixed == ["worker 0 decides by generation 1, posture shut"]
    });
    let _answered = running.stats();
    let failure = running.ask(&Request::Confirm).expect_err("something is being activated");
    assert!(failure.message().contains("generation 1, posture shut is being activated"), "{failure}");
    running.load(&folder.join("all.weir"));
    assert!(!change.is_finished(), "{}", running.log());

    kill(running.pid(), Signal::SIGTERM).expect("it runs");
    wait_until("the worker goes with its process", || traced.has_ended());
    assert_eq!(running.ends(), Some(1), "{}", running.log());
    assert!(running.log().contains("worker 1 does not answer"), "{}", running.log());
    let failure = change.join().expect("no panic").expect_err("it did not take place");
    let message = failure.to_string();
    assert!(message.contains("is stopping") || message.contains("closed without an answer"), "{message}");
}

#[test]
fn a_client_outside_of_its_pid_namespace_is_answered() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "all.weir", ALL);
    let given = Setup::new("afpacket").command(folder, "all.weir");
    // As in a container.
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(given.get_program()).args(given.get_args());
    command.current_dir(folder).env("NO_COLOR", "1");
    let weir = hosts.weir.clone();
    let running = Running::spawn(folder, command, move |mut command| weir.run(move || command.spawn()));
    assert_eq!(running.status().generation, 1);
}
