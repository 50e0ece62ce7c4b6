//! The simulated card as a process: `hw/bench/driver.cpp` says what goes through its pipes.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use weir_card::Profile;

/// The card of most tests: every part of the RTL, of small size where size changes nothing.
pub const PROFILE: &str = "
name bench
vlan 2
options yes
ip6 yes
match protocol sport dport tcp-flags saddr daddr ttl length icmp-type icmp-code vlan-id tcp-window
carry protocol sport dport saddr daddr
patterns 64
ranges 8
rules 128
counters 64
lookups 6
blocks 256
metadata 448
reconfigure 2ms
";

/// A side of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The network.
    Wire,
    /// The software.
    Host,
}

/// A frame for the card.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Where it arrives.
    pub port: Port,
    /// Frames of the other port that arrive before.
    pub after: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Sent {
    /// A frame that waits for no other.
    pub fn new(port: Port, bytes: Vec<u8>) -> Self {
        Sent { port, after: 0, bytes }
    }
}

/// A frame from the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Where it leaves.
    pub port: Port,
    /// The cycles of its first and last beat.
    pub cycles: (u32, u32),
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// How often each stream stalls, of 256 cycles: from the network, from the software, to the software, to the network.
pub type Stalls = [u32; 4];
/// No stream ever stalls.
pub const NO_STALLS: Stalls = [0; 4];

/// A simulated card without configuration.
pub struct Bench {
    child: Child,
    stdin: BufWriter<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    seed: u32,
}

/// The program of a profile, built once.
fn program(profile: &Profile) -> PathBuf {
    static LOCK: Mutex<()> = Mutex::new(());
    let _only_one = LOCK.lock().expect("no build panics");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("card-{}", profile.name.replace(' ', "-")));
    let parameters = profile.parameters().map(|(name, value)| format!("-G{name}={value}"));
    // Two processes would write the same files.
    std::fs::create_dir_all(&folder).expect("cargo's folder is writable");
    let lock = File::create(folder.join("lock")).expect("the folder is writable");
    lock.lock().expect("files can be locked");
    let output = Command::new(root.join("hw/bench/build.sh")).arg(&folder).args(parameters).output();
    let output = output.expect("hw/bench/build.sh runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the RTL does not build (is verilator installed?):\n{messages}");
    folder.join("Vcard")
}

impl Bench {
    /// A card of [`PROFILE`].
    pub fn new() -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        Self::start(PROGRAM.get_or_init(|| program(&profile())))
    }

    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the simulation starts");
        let stdin = BufWriter::new(child.stdin.take().expect("it is a pipe"));
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Bench { child, stdin, stdout, seed: 1 }
    }

    /// Sends frames and returns what leaves until the card is idle: first to the network, then to the software.
    pub fn run(&mut self, frames: &[Sent], stalls: Stalls) -> Vec<Left> {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut batch: Vec<u8> = Vec::new();
        let mut put = |number: u32| batch.extend(number.to_le_bytes());
        stalls.into_iter().chain([self.seed, frames.len() as u32]).for_each(&mut put);
        for Sent { port, after, bytes } in frames {
            [(*port == Port::Host).into(), *after as u32, bytes.len() as u32].into_iter().for_each(|n| {
                batch.extend(u32::to_le_bytes(n));
            });
            batch.extend(bytes);
        }
        self.stdin.write_all(&batch).and_then(|()| self.stdin.flush()).expect("the simulation reads");
        let count = self.number();
        (0..count).map(|_| self.left()).collect()
    }

    fn left(&mut self) -> Left {
        let port = if self.number() == 0 { Port::Wire } else { Port::Host };
        let cycles = (self.number(), self.number());
        let mut bytes = vec![0; self.number() as usize];
        self.stdout.read_exact(&mut bytes).expect("the simulation writes whole frames");
        Left { port, cycles, bytes }
    }

    fn number(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.stdout.read_exact(&mut bytes).expect("the simulation answers; its message is above");
        u32::from_le_bytes(bytes)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The child ends by itself if it can; its exit code is of no interest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// [`PROFILE`].
pub fn profile() -> Profile {
    Profile::parse(PROFILE).expect("the profile reads")
}
