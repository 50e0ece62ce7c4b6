//! The card's RTL (`hw/rtl`) in simulation: a process that Verilator builds, with frames in its pipes.
//!
//! `hw/bench/driver.cpp` says what goes through the pipes. Numbers in them have 32 bits, little-endian. The crate knows
//! nothing of what frames mean: tests compare the simulation with the card's interpreter, and `weir bench hybrid --rtl`
//! lets software decide by its answers.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The script that builds the simulation, in the project's folder.
const BUILD: &str = "hw/bench/build.sh";

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
    /// Its bytes, at least one.
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

/// A simulated card. It has no configuration at first.
pub struct Simulation {
    child: Child,
    stdin: BufWriter<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    seed: u32,
}

/// Builds the simulation in a folder, and returns its program. Nothing is built anew that has not changed. `project` is
/// the project's folder, and `parameters` are the parameters of `hw/rtl/card.sv`.
///
/// # Errors
/// There is no Verilator, no such script, or the RTL does not build.
pub fn build<N: Display>(
    project: &Path,
    folder: &Path,
    parameters: impl IntoIterator<Item = (N, usize)>,
) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    // Two processes would write the same files.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let parameters = parameters.into_iter().map(|(name, value)| format!("-G{name}={value}"));
    let script = project.join(BUILD);
    let output = Command::new(&script).arg(folder).args(parameters).output();
    let output = output.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", script.display())))?;
    if output.status.success() {
        return Ok(folder.join("Vcard"));
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{BUILD} (is verilator installed?): {}", messages.trim_end())))
}

impl Simulation {
    /// Starts a program that [`build`] has built.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: &Path) -> io::Result<Self> {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = BufWriter::new(child.stdin.take().expect("it is a pipe"));
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Ok(Simulation { child, stdin, stdout, seed: 1 })
    }

    /// Sends frames and returns what leaves until the card is idle: first to the network, then to the software.
    ///
    /// # Errors
    /// The simulation has ended. If it has found a fault, its message is on standard error.
    pub fn run(&mut self, frames: &[Sent], stalls: Stalls) -> io::Result<Vec<Left>> {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let numbers = stalls.into_iter().chain([self.seed, frames.len() as u32]);
        let mut batch: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        for Sent { port, after, bytes } in frames {
            batch.extend(
                [u32::from(*port == Port::Host), *after as u32, bytes.len() as u32].map(u32::to_le_bytes).concat(),
            );
            batch.extend(bytes);
        }
        self.stdin.write_all(&batch).and_then(|()| self.stdin.flush())?;
        let count = self.number()?;
        (0..count).map(|_| self.left()).collect()
    }

    fn left(&mut self) -> io::Result<Left> {
        let port = match self.number()? {
            0 => Port::Wire,
            1 => Port::Host,
            _ => return Err(ErrorKind::InvalidData.into()),
        };
        let cycles = (self.number()?, self.number()?);
        let mut bytes = vec![0; self.number()? as usize];
        self.stdout.read_exact(&mut bytes)?;
        Ok(Left { port, cycles, bytes })
    }

    fn number(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.stdout.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // It ends by itself if it can; its exit code is of no interest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
