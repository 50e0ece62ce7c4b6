//! The card as RTL, simulated: frames with the answers that hardware would give (the paper's section 4.1).
//!
//! `hw/bench/build.sh` builds the simulation of a profile with Verilator, which nothing else here needs. It is a process
//! with pipes, as `hw/bench/driver.cpp` says. A session configures it as it would configure a card on a wire.

use std::fs;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use weir::failure::Failure;
use weir_card::Profile;
use weir_card::image::Memory;
use weir_card::program::CardProgram;
use weir_card::receive::Configured;
use weir_card::session::{Done, Session, SessionError, Step};

/// The script that builds the simulation, in the project's folder.
const BUILD: &str = "hw/bench/build.sh";
/// Frames that are sent at once.
const BATCH: usize = 1 << 12;

/// The side of the card where a frame arrives.
#[derive(Clone, Copy)]
enum Port {
    Wire = 0,
    Host = 1,
}

/// A simulated card and the session with it.
pub struct Simulated {
    card: Process,
    session: Session,
}

impl Simulated {
    /// Builds the card of a profile in a folder, and starts it with a plain configuration.
    ///
    /// # Errors
    /// There is no Verilator, this is not the project's folder, or the card does not answer.
    pub fn new(folder: &Path, profile: &Profile, token: u64) -> Result<Self, Failure> {
        let mut simulated =
            Simulated { card: Process::start(&build(folder, profile)?)?, session: Session::new(profile, token) };
        simulated.session.write_plain().map_err(refused)?;
        simulated.commit()?;
        Ok(simulated)
    }

    /// Configures the card.
    ///
    /// # Errors
    /// The program does not fit the card, or the card does not answer.
    pub fn configure(&mut self, program: &CardProgram, tables: Vec<Memory>) -> Result<Configured, Failure> {
        let configured = self.session.write_program(program, tables).map_err(refused)?;
        self.commit()?;
        Ok(configured)
    }

    /// What the card makes of frames from the network, in order.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn handle(&mut self, frames: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut left = Vec::with_capacity(frames.len());
        for batch in frames.chunks(BATCH) {
            left.extend(self.card.run(Port::Wire, batch)?);
        }
        Ok(left)
    }

    /// Writes the configuration, reads it back and makes it the active one.
    fn commit(&mut self) -> Result<(), Failure> {
        self.finish()?;
        self.session.commit();
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        loop {
            match self.session.poll(Duration::ZERO) {
                Step::Send(frame) => {
                    let answers = self.card.run(Port::Host, &[frame.to_vec()])?;
                    answers.iter().for_each(|answer| self.session.receive(answer, Duration::ZERO));
                }
                Step::Done(Done::Written | Done::Committed { .. }) => return Ok(()),
                Step::Failed(error) => return Err(refused(error)),
                other => return Err(Failure::Runtime(format!("the simulated card: {other:?}"))),
            }
        }
    }
}

/// Builds the simulation of a profile; Verilator builds nothing anew that has not changed.
fn build(folder: &Path, profile: &Profile) -> Result<PathBuf, Failure> {
    let folder = folder.join(profile.name.replace(' ', "-"));
    fs::create_dir_all(&folder).map_err(|error| Failure::file(&folder, error))?;
    let parameters = profile.parameters().map(|(name, value)| format!("-G{name}={value}"));
    let output = Command::new(BUILD).arg(&folder).args(parameters).output();
    let output = output.map_err(|error| {
        Failure::Rejected(format!("weir: {BUILD}: {error}; frames of the RTL need the project's folder and verilator"))
    })?;
    match output.status.success() {
        true => Ok(folder.join("Vcard")),
        false => Err(Failure::Runtime(format!("{BUILD}: {}", String::from_utf8_lossy(&output.stderr).trim_end()))),
    }
}

fn refused(error: SessionError) -> Failure {
    Failure::Runtime(format!("the simulated card: {error}"))
}

/// The simulation. Numbers in its pipes have 32 bits, little-endian.
struct Process {
    child: Child,
    stdin: BufWriter<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(program: &Path) -> Result<Self, Failure> {
        let child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| Failure::file(program, error))?;
        let stdin = BufWriter::new(child.stdin.take().expect("it is a pipe"));
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Ok(Process { child, stdin, stdout })
    }

    /// Sends frames to a port, and returns what leaves on either side until the card is idle.
    fn run(&mut self, port: Port, frames: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, Failure> {
        self.exchange(port, frames).map_err(|error| Failure::Runtime(format!("the simulated card: {error}")))
    }

    fn exchange(&mut self, port: Port, frames: &[impl AsRef<[u8]>]) -> io::Result<Vec<Vec<u8>>> {
        // No stream stalls, so the seed has no effect.
        let mut batch: Vec<u8> = [0, 0, 0, 0, 1, frames.len() as u32].map(u32::to_le_bytes).concat();
        for bytes in frames.iter().map(AsRef::as_ref) {
            batch.extend([port as u32, 0, bytes.len() as u32].map(u32::to_le_bytes).concat());
            batch.extend(bytes);
        }
        self.stdin.write_all(&batch)?;
        self.stdin.flush()?;
        let count = self.number()?;
        (0..count).map(|_| self.left()).collect()
    }

    fn left(&mut self) -> io::Result<Vec<u8>> {
        let [_port, _first, _last, bytes] = [self.number()?, self.number()?, self.number()?, self.number()?];
        let mut frame = vec![0; bytes as usize];
        self.stdout.read_exact(&mut frame)?;
        Ok(frame)
    }

    fn number(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.stdout.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its exit code is of no interest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
