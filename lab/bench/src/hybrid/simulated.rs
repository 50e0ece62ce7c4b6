//! The card as RTL, simulated: frames with the answers that hardware would give (the paper's section 4.1).
//!
//! Verilator builds the simulation of a profile (`weir_simulation`), which nothing else here needs. A session
//! configures it with control frames, as it would configure a card on a wire: it writes all tables, and reads them
//! back.
//!
//! A word takes a cycle to write and six to read, and the simulation takes 4 us a cycle: 10 s for a table of 20,000
//! blocks. So tables are written as seldom as possible. A plain configuration stands between two programs; then
//! programs are always in the same bank, and the session writes only what that bank does not have yet.

use std::io;
use std::path::Path;
use std::time::Duration;
use weir_card::Profile;
use weir_card::image::Memory;
use weir_card::program::CardProgram;
use weir_card::receive::Configured;
use weir_card::session::{Done, Session, SessionError, Step};
use weir_command::failure::Failure;
use weir_simulation::{NO_STALLS, Port, Sent, Simulation};

/// Frames that are sent at once.
const BATCH: usize = 1 << 12;

/// A simulated card and the session with it.
pub struct Simulated {
    card: Simulation,
    session: Session,
}

impl Simulated {
    /// Builds the card of a profile in a folder, and starts it.
    ///
    /// # Errors
    /// There is no Verilator, or this is not the project's folder.
    pub fn new(folder: &Path, profile: &Profile, token: u64) -> Result<Self, Failure> {
        let folder = folder.join(profile.name.replace(' ', "-"));
        let program = weir_simulation::build(Path::new("."), &folder, profile.parameters()).map_err(|error| {
            let needs = "frames of the RTL need the project's folder and verilator";
            Failure::Rejected(format!("weir: {error}; {needs}"))
        })?;
        Ok(Simulated { card: Simulation::start(&program).map_err(ended)?, session: Session::new(profile, token) })
    }

    /// Configures the card.
    ///
    /// # Errors
    /// The program does not fit the card, or the card does not answer.
    pub fn configure(&mut self, program: &CardProgram, tables: Vec<Memory>) -> Result<Configured, Failure> {
        self.session.write_plain().map_err(refused)?;
        self.commit()?;
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
            let batch: Vec<Sent> = batch.iter().map(|frame| Sent::new(Port::Wire, frame.as_ref().to_vec())).collect();
            left.extend(self.run(&batch)?);
        }
        Ok(left)
    }

    fn run(&mut self, frames: &[Sent]) -> Result<Vec<Vec<u8>>, Failure> {
        let left = self.card.run(frames, NO_STALLS).map_err(ended)?;
        Ok(left.into_iter().map(|left| left.bytes).collect())
    }

    /// Writes the configuration, reads it back and makes it the active one.
    fn commit(&mut self) -> Result<(), Failure> {
        self.finish()?;
        self.session.commit();
        self.finish()
    }

    /// Does what the session asks for. Time stands still, so nothing is sent twice.
    fn finish(&mut self) -> Result<(), Failure> {
        let mut asked: Vec<Sent> = Vec::new();
        loop {
            match self.session.poll(Duration::ZERO) {
                Step::Send(frame) => asked.push(Sent::new(Port::Host, frame.to_vec())),
                Step::Wait(_) if !asked.is_empty() => {
                    for answer in self.run(&std::mem::take(&mut asked))? {
                        self.session.receive(&answer, Duration::ZERO);
                    }
                }
                Step::Done(Done::Written | Done::Committed { .. }) => return Ok(()),
                Step::Failed(error) => return Err(refused(error)),
                other => return Err(Failure::Runtime(format!("the simulated card: {other:?}"))),
            }
        }
    }
}

fn refused(error: SessionError) -> Failure {
    Failure::Runtime(format!("the simulated card: {error}"))
}

fn ended(error: io::Error) -> Failure {
    Failure::Runtime(format!("the simulated card: {error}"))
}
