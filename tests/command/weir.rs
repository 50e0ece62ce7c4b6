//! Runs the program like a user, in a temporary folder.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_test_support::{Link, packets};

/// The engines of captures. P4 needs DPDK.
pub const ENGINES: &[&str] =
    if cfg!(feature = "dpdk") { &["eval", "native", "xdp", "p4"] } else { &["eval", "native", "xdp"] };

/// The text and the bundle of a policy with the engines that run them. A bundle has no P4 code.
pub fn texts_and_bundles(name: &str) -> Vec<(String, &'static str)> {
    let forms =
        ENGINES.iter().flat_map(|&engine| [(format!("{name}.weir"), engine), (format!("{name}.weirb"), engine)]);
    forms.filter(|(policy, engine)| *engine != "p4" || policy.ends_with(".weir")).collect()
}

/// A temporary folder with files for the program.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the exit code, and that standard error contains all the given words.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        let missing: Vec<_> = words.iter().filter(|word| !self.err.contains(*word)).collect();
        assert!(missing.is_empty(), "{missing:?} not stderr: {self:?}");
    }
}

impl Sandbox {
    pub fn new() -> Self {
        Sandbox { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.folder.path().join(Path::new(name.as_ref()))
    }

    /// Writes a file.
    pub fn put(&self, name: impl AsRef<OsStr>, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("folders can be made");
        fs::write(path, bytes).expect("files can be written");
        self
    }

    /// Writes packets as a capture.
    pub fn put_capture(&self, name: &str, notation: &str) -> &Self {
        self.put(name, capture(notation))
    }

    /// Runs the program with arguments that are separated by spaces.
    pub fn run(&self, line: &str) -> Ran {
        self.run_with(line.split_whitespace(), |_| {})
    }

    /// Runs the program in a new network namespace that contains the veth pair `lower` and `upper`. Needs root.
    pub fn run_between(&self, line: &str) -> Ran {
        let mut command = between(line);
        command.stdin(Stdio::null());
        self.finish(command)
    }

    /// Runs the program with further settings of its command.
    pub fn run_with<A: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = A>,
        set_up: impl FnOnce(&mut Command),
    ) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(words).stdin(Stdio::null());
        set_up(&mut command);
        self.finish(command)
    }

    fn finish(&self, mut command: Command) -> Ran {
        command.current_dir(self.folder.path()).env("NO_COLOR", "1");
        let output = command.output().expect("the program was built");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let ran = Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) };
        assert!((0..=2).contains(&ran.code) && !ran.err.contains("panicked"), "{command:?}: {ran:?}");
        ran
    }
}

/// The program with arguments that are separated by spaces, in a new network namespace with the veth pair.
pub fn between(line: &str) -> Command {
    let mut command = Command::new("unshare");
    // A shell ignores SIGINT and SIGQUIT for what it runs in the background, and nohup ignores SIGHUP. The program
    // would inherit that from the tests.
    let script = "ip link add lower type veth peer name upper && exec env --default-signal=INT,QUIT,HUP \"$0\" \"$@\"";
    command.args(["-n", "sh", "-c", script, env!("CARGO_BIN_EXE_weir")]).args(line.split_whitespace());
    command
}

/// A classic capture (little-endian, microseconds) of packets with the same link layer. They are one second apart
/// unless the text gives times.
pub fn capture(notation: &str) -> Vec<u8> {
    let packets = packets(notation).expect("the test's packets read");
    let link = packets.first().map_or(Link::Ethernet, |packet| packet.link);
    let timed = packets.iter().any(|packet| packet.time_ns > 0);
    let mut bytes = Vec::new();
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, u32::from(link.linktype())];
    bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
    for (at, packet) in packets.iter().enumerate() {
        assert_eq!(packet.link, link, "a capture has one link layer");
        let time_ns = if timed { packet.time_ns } else { at as u64 * 1_000_000_000 };
        let (seconds, micros) = ((time_ns / 1_000_000_000) as u32, (time_ns / 1000 % 1_000_000) as u32);
        let head = [seconds, micros, packet.bytes.len() as u32, packet.wire];
        bytes.extend(head.into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(&packet.bytes);
    }
    bytes
}
