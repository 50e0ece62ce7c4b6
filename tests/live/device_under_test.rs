//! `weir run` as the device under test, and its control socket.

use crate::form;
use crate::hosts::Host;
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{Request, Stats, Status, Tally};

/// Maximum time for any step.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time in which Weir ends. It gives its workers 20 s.
const LONGEST_END: Duration = Duration::from_secs(120);

/// The name of the engine `xdp` on the host that Weir protects, in tests.
pub const HOST: &str = "host";

/// The name of the engine `p4` with a controller, in tests.
pub const SPLIT: &str = "split";

/// The options of a `weir run`.
#[derive(Clone)]
pub struct Setup {
    pub engine: String,
    pub workers: usize,
    pub lower: Vec<String>,
    pub upper: Vec<String>,
    /// The interfaces of the host that Weir protects, instead of the others.
    pub host: Vec<String>,
    pub divert: Option<String>,
    /// Additional arguments.
    pub more: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Maximum number of file descriptors. `WEIR_TEST_DESCRIPTORS=64` sets it for all tests.
    pub descriptors: Option<u64>,
}

impl Setup {
    /// A setup with one worker between one lower and one upper interface.
    pub fn new(engine: &str) -> Self {
        let one = |name: &str| vec![name.to_owned()];
        let (lower, upper) = (one("lower"), one("upper"));
        let host = if engine == HOST { one("s") } else { Vec::new() };
        let (engine, more, environment) = (engine.to_owned(), Vec::new(), Vec::new());
        let descriptors = std::env::var("WEIR_TEST_DESCRIPTORS").ok();
        let descriptors = descriptors.map(|text| text.parse().expect("WEIR_TEST_DESCRIPTORS is a number"));
        Setup { engine, workers: 1, lower, upper, host, divert: None, more, environment, descriptors }
    }

    pub fn command(&self, folder: &Path, policy: &str) -> Command {
        let mut command = self.program();
        // The suffix selects ports with other names.
        let engine = self.engine.strip_suffix("-named").unwrap_or(&self.engine);
        let engine = match engine {
            HOST => "xdp",
            SPLIT => "p4",
            _ => engine,
        };
        command.args(["run", policy, "--engine", engine, "--workers", &self.workers.to_string()]);
        let names = |wires: &[String]| wires.iter().map(|wire| self.port(wire)).collect::<Vec<_>>().join(",");
        if self.host.is_empty() {
            command.args(["--lower", &names(&self.lower), "--upper", &names(&self.upper)]);
        } else {
            command.args(["--host", &names(&self.host)]);
        }
        if let Some(divert) = &self.divert {
            command.args(["--divert", &self.port(divert)]);
        }
        if uses_dpdk(&self.engine) {
            command.args(["--eal", &self.eal()]);
        }
        if self.engine == SPLIT {
            command.args(["--p4-controller", "0s"]);
        }
        command.args(&self.more).arg("--control").arg(folder.join("control.sock")).current_dir(folder);
        command.stdin(Stdio::null()).env("NO_COLOR", "1").envs(self.environment.clone());
        command
    }

    /// The program without arguments.
    pub fn plain(&self) -> Command {
        self.program()
    }

    /// The program with its descriptor limit.
    fn program(&self) -> Command {
        const PROGRAM: &str = env!("CARGO_BIN_EXE_weir");
        let Some(descriptors) = self.descriptors else { return Command::new(PROGRAM) };
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &descriptors.to_string(), PROGRAM]);
        shell
    }

    /// The name of an interface for the engine.
    fn port(&self, wire: &str) -> String {
        if uses_dpdk(&self.engine) { format!("net_af_packet_{wire}") } else { wire.to_owned() }
    }

    /// DPDK's arguments: a virtual port for each interface, for the longest frames of the tests.
    fn eal(&self) -> String {
        let queues = format!("qpairs={},blocksz=65536,framesz=16384,framecnt=1024", self.workers);
        let wires = self.lower.iter().chain(&self.upper).chain(&self.divert);
        let ports = wires.map(|wire| format!("--vdev={},iface={wire},{queues}", self.port(wire)));
        format!("--no-huge -m 512 --no-pci {}", ports.collect::<Vec<_>>().join(" "))
    }
}

/// Whether an engine has ports of DPDK.
pub fn uses_dpdk(engine: &str) -> bool {
    matches!(engine, "dpdk" | "p4" | SPLIT)
}

/// A running Weir, which is killed when this value is dropped.
pub struct Running {
    child: Child,
    control: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Starts Weir between one lower and one upper interface, and waits until it answers.
    pub fn start(host: &Host, folder: &Path, policy: &str, engine: &str, workers: usize) -> Self {
        Self::start_as(host, folder, policy, &Setup { workers, ..Setup::new(engine) })
    }

    /// Starts Weir with a setup, and waits until it answers.
    pub fn start_as(host: &Host, folder: &Path, policy: &str, setup: &Setup) -> Self {
        let policy = form::given(&folder.join(policy));
        let policy = policy.strip_prefix(folder).unwrap_or(&policy).display().to_string();
        Self::spawn(folder, setup.command(folder, &policy), |mut command| host.run(move || command.spawn()))
    }

    /// Starts a command, and waits until it answers.
    pub fn spawn(folder: &Path, mut command: Command, spawn: impl FnOnce(Command) -> io::Result<Child>) -> Self {
        let (control, log) = (folder.join("control.sock"), folder.join("log"));
        let file = fs::File::create(&log).expect("the folder can be written to");
        command.stdout(Stdio::null()).stderr(file);
        let child = spawn(command).expect("the program was built");
        let mut running = Running { child, control, log };
        let answers = || {
            let ended = running.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "{ended:?}: {}", read_log(&running.log));
            running.ask(&Request::Status).ok()
        };
        wait("it answers", answers, || read_log(&folder.join("log")));
        running
    }

    /// Runs Weir in a situation in which it refuses to start. Returns exit code and standard error.
    pub fn refused(host: &Host, folder: &Path, policy: &str, engine: &str) -> (i32, String) {
        Self::refused_as(host, folder, policy, &Setup::new(engine))
    }

    /// Runs Weir like [`Running::refused`], with a setup.
    pub fn refused_as(host: &Host, folder: &Path, policy: &str, setup: &Setup) -> (i32, String) {
        let (log, mut command) = (folder.join("refused"), setup.command(folder, policy));
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).expect("the folder can be written to"));
        let child = host.run(move || command.spawn()).expect("the program was built");
        let mut running = Running { child, control: folder.join("control.sock"), log };
        (running.ends_within(LONGEST_END).unwrap_or(-1), running.log())
    }

    /// Waits until it ends by itself. Returns the exit code.
    pub fn ends(&mut self) -> Option<i32> {
        self.ends_within(TIMEOUT)
    }

    fn ends_within(&mut self, longest: Duration) -> Option<i32> {
        let (pid, log) = (self.pid(), self.log.clone());
        let ended = || self.child.try_wait().expect("it is our child");
        wait_within(longest, "it ends", ended, || format!("{}\n{}", waiting_in(pid), read_log(&log))).code()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn ask(&self, request: &Request) -> Result<Value, Failure> {
        Ok(weir_control::ask(&self.control, request)?)
    }

    pub fn status(&self) -> Status {
        let value = self.ask(&Request::Status).unwrap_or_else(|failure| panic!("{failure}: {}", self.log()));
        serde_json::from_value(value).expect("a status")
    }

    /// Returns when every change that was made before the call is on disk.
    pub fn wait_until_saved(&self) {
        /// Turns of the threads that save: flows are looked through once a second, in turns of at least 200 ms.
        const TURNS: u64 = 8;
        let turns = || self.status().state.expect("it saves").turns;
        let first = turns();
        let enough = |now: u64, first: u64| now >= first + TURNS;
        self.wait_until("changes are saved", |_| {
            let now = turns();
            enough(now.tables, first.tables) && enough(now.debts, first.debts) && enough(now.flows, first.flows)
        });
    }

    pub fn stats(&self) -> Stats {
        let value = self.ask(&Request::Stats).unwrap_or_else(|failure| panic!("{failure}: {}", self.log()));
        serde_json::from_value(value).expect("stats")
    }

    /// Stats after all counters have stopped changing and no packet is between reception and sending. Otherwise the
    /// first counters would be older than the last ones. After a timeout, returns the stats as they are.
    pub fn settled(&self) -> Stats {
        let (mut last, start) = (self.stats(), Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let stats = self.stats();
            let still = serde_json::to_value(&stats).expect("JSON") == serde_json::to_value(&last).expect("JSON");
            if still && (start.elapsed() > TIMEOUT || on_their_way(&stats) == 0) {
                return stats;
            }
            assert!(start.elapsed() < 2 * TIMEOUT, "{stats:#?}\n{}", self.log());
            last = stats;
        }
    }

    /// Waits until the stats fulfil a condition.
    pub fn wait_for(&self, what: &str, mut holds: impl FnMut(&Stats) -> bool) -> Stats {
        let found = || Some(self.stats()).filter(|stats| holds(stats));
        wait(what, found, || {
            let stats = self.stats();
            let decided = [&stats.upstream, &stats.downstream].map(|direction| direction.total.packets);
            // What is missing, at a glance: reports keep the first lines.
            format!("decided {decided:?}, {:?}\n{stats:#?}\n{}", stats.interfaces, self.log())
        })
    }

    /// Waits until a condition holds.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        wait(what, || holds(self).then_some(()), || self.log());
    }

    /// Loads a policy. Returns the number of its generation.
    pub fn load(&self, policy: &Path) -> u64 {
        let loaded = self.ask(&Request::Load { policy: form::given(policy) });
        let loaded = loaded.unwrap_or_else(|failure| panic!("{failure}: {}", self.log()));
        loaded["generation"].as_u64().expect("a number")
    }

    pub fn log(&self) -> String {
        read_log(&self.log)
    }

    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Terminates it like an operator. Returns the exit code, and prints the log if it is not 0.
    pub fn stop(mut self) -> i32 {
        nix::sys::signal::kill(self.pid(), nix::sys::signal::Signal::SIGTERM).expect("it runs");
        let code = self.ends_within(LONGEST_END).unwrap_or(-1);
        if code != 0 {
            eprintln!("{}", self.log());
        }
        code
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The threads of a process, and where in the kernel they wait.
fn waiting_in(pid: Pid) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |thread: &fs::DirEntry, name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
    let shown = threads.map(|thread| format!("{}{}\n", read(&thread, "comm"), read(&thread, "stack")));
    shown.collect()
}

fn read_log(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn wait<T>(what: &str, look: impl FnMut() -> Option<T>, instead: impl Fn() -> String) -> T {
    wait_within(TIMEOUT, what, look, instead)
}

/// Repeats `look` until it returns a value, with pauses that grow from a quarter of a millisecond to 5 ms. After the
/// longest time, panics with the text of `instead`.
fn wait_within<T>(
    longest: Duration,
    what: &str,
    mut look: impl FnMut() -> Option<T>,
    instead: impl Fn() -> String,
) -> T {
    let (start, mut pause) = (Instant::now(), Duration::from_micros(250));
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < longest, "{what}: {}", instead());
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(5));
    }
}

/// Repeats `holds` until it is true.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait(what, || holds().then_some(()), String::new);
}

/// Number of packets that were accepted or answered, but neither sent nor dropped yet.
fn on_their_way(stats: &Stats) -> i64 {
    let ports = stats.interfaces.iter().filter(|port| port.side != "divert");
    let out: u64 = ports.map(|port| port.tx_packets + port.tx_dropped.unsent()).sum();
    let leave = |total: &Tally| total.passed + total.replied;
    (leave(&stats.upstream.total) + leave(&stats.downstream.total)) as i64 - out as i64
}
