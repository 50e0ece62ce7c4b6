//! The link to a card: a session, and the ways of its frames.

use rustix::rand::{GetRandomFlags, getrandom};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use weir_abi::Counter;
use weir_abi::card::{Seal, TRAILER_BYTES_MAX, control};
use weir_card::Profile;
use weir_card::image::Memory;
use weir_card::program::CardProgram;
use weir_card::receive::Configured;
use weir_card::session::{Done, Session, SessionError, Step};
use weir_command::failure::Failure;
use weir_engine::live::os::control_socket::ControlSocket;

/// Longest wait before both ways of answers are looked at again.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of the longest answer.
const ANSWER_BYTES_MAX: usize = control::HEADER_BYTES + 4 * control::WORDS_MAX + TRAILER_BYTES_MAX;

/// A session with a card behind an interface.
pub struct CardLink {
    session: Session,
    socket: ControlSocket,
    /// What workers receive in place of the kernel.
    answers: Option<Receiver<Vec<u8>>>,
    begun: Instant,
    /// Whether the last task failed because the card has lost its configuration.
    is_unconfigured: bool,
}

impl CardLink {
    /// Opens a card: it passes frames as they are from now on.
    ///
    /// # Errors
    /// There is no such interface, or no card that answers.
    pub fn open(interface: &str, profile: &Profile) -> Result<Self, Failure> {
        let socket = ControlSocket::open(interface)?;
        let session = Session::new(profile, token()?);
        let mut link = CardLink { session, socket, answers: None, begun: Instant::now(), is_unconfigured: false };
        link.pass_everything()?;
        let mtu = link.socket.mtu()?;
        let room = mtu.saturating_sub(TRAILER_BYTES_MAX as u32);
        eprintln!(
            "weir: card behind {interface}: packets of up to {room} bytes have room for a trailer of {TRAILER_BYTES_MAX} \
             (MTU {mtu})"
        );
        Ok(link)
    }

    /// Takes answers from workers too, from now on.
    pub fn listen_to(&mut self, answers: Receiver<Vec<u8>>) {
        self.answers = Some(answers);
    }

    /// The card's secret.
    pub fn token(&self) -> u64 {
        self.session.token()
    }

    /// The active configuration.
    pub fn active(&self) -> Configured {
        self.session.active().expect("an open card has one")
    }

    /// Makes the card pass frames as they are. The result is what the configuration before has dropped.
    ///
    /// # Errors
    /// The card does not answer.
    pub fn pass_everything(&mut self) -> Result<Vec<Counter>, Failure> {
        self.write_plain()?;
        self.commit()
    }

    /// Writes a configuration with which the card passes frames as they are. It is not active yet.
    ///
    /// # Errors
    /// The card does not answer.
    pub fn write_plain(&mut self) -> Result<Configured, Failure> {
        let configured = self.session.write_plain().map_err(failed)?;
        self.finish()?;
        Ok(configured)
    }

    /// Writes a configuration. It is not active yet.
    ///
    /// # Errors
    /// The card does not answer, or is smaller than its profile.
    pub fn write(&mut self, program: &CardProgram, tables: Vec<Memory>) -> Result<Configured, Failure> {
        let configured = self.session.write_program(program, tables).map_err(failed)?;
        self.finish()?;
        Ok(configured)
    }

    /// Makes the written configuration active. The result is what the configuration before has dropped.
    ///
    /// # Errors
    /// The card does not answer. Then it is not known whether the configuration is active.
    pub fn commit(&mut self) -> Result<Vec<Counter>, Failure> {
        self.session.commit();
        match self.finish()? {
            Done::Committed { before } => Ok(before),
            other => panic!("compiler bug: a commit ends with {other:?}"),
        }
    }

    /// Whether the last task failed because the card has lost its configuration.
    pub fn is_unconfigured(&self) -> bool {
        self.is_unconfigured
    }

    /// Begins a session with a card that has lost its configuration. Returns the session before, for
    /// [`CardLink::resume`] if this one does not succeed.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin_anew(&mut self, profile: &Profile) -> Result<Session, Failure> {
        Ok(std::mem::replace(&mut self.session, Session::again(profile, token()?)))
    }

    /// Continues an earlier session.
    pub fn resume(&mut self, session: Session) {
        self.session = session;
    }

    /// What the active configuration has dropped so far.
    ///
    /// # Errors
    /// The card does not answer, or has lost its configuration.
    pub fn count(&mut self) -> Result<Vec<Counter>, Failure> {
        self.session.count();
        match self.finish()? {
            Done::Counted(counters) => Ok(counters),
            other => panic!("compiler bug: counting ends with {other:?}"),
        }
    }

    /// Does what the session asks for, until its task ends.
    fn finish(&mut self) -> Result<Done, Failure> {
        let mut buffer = [0; ANSWER_BYTES_MAX];
        self.is_unconfigured = false;
        loop {
            let now = self.begun.elapsed();
            match self.session.poll(now) {
                Step::Send(frame) => self.socket.send(frame)?,
                Step::Wait(until) => {
                    self.socket.wait(until.saturating_sub(now).min(LOOK))?;
                    while let Some(answer) = self.socket.receive(&mut buffer)? {
                        self.session.receive(answer, self.begun.elapsed());
                    }
                    for answer in self.answers.iter().flat_map(Receiver::try_iter) {
                        self.session.receive(&answer, self.begun.elapsed());
                    }
                }
                Step::Done(done) => return Ok(done),
                Step::Failed(error) => {
                    self.is_unconfigured = error == SessionError::Unconfigured;
                    return Err(failed(error));
                }
                Step::Idle => panic!("compiler bug: a task was begun"),
            }
        }
    }
}

/// A secret of 40 bits from the system.
fn token() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    let (secret, _) = bytes.split_at_mut(Seal::TOKEN_BITS as usize / 8);
    let mut drawn = 0;
    while drawn < secret.len() {
        let now = getrandom(&mut secret[drawn..], GetRandomFlags::empty());
        drawn += now.map_err(|errno| Failure::system("random numbers", errno.into()))?;
    }
    Ok(u64::from_le_bytes(bytes))
}

fn failed(error: SessionError) -> Failure {
    Failure::Runtime(format!("card: {error}"))
}
