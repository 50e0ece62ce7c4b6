//! Sets the link between two sides as `on-exit` says when Weir ends for any reason.
//!
//! ```text
//!   weir run ----- a pipe with messages ------------> weir guard
//!      |                                                  |
//!   normal end: sets the final state, says goodbye      waits for messages, or for the end of the pipe
//!   killed: the pipe ends without a goodbye             sets the final state
//! ```
//! The guard is a separate process of the same program, started before any interface is changed. It holds no resources
//! that move packets. While it exists, it has a claim on the interfaces (`claim.rs`), so a new Weir waits for the guard
//! of the previous one. If the guard is killed, Weir starts another. If both are killed at once, nothing passes.

use super::final_state::FinalState;
use super::message::{Message, READY};
use crate::interfaces::claim::ClaimTarget;
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::live::Interfaces;
use weir_engine::live::os::inherited::{Inherited, Kept};
use weir_policy::ir::OnExit;

/// Longest wait for the guard to end after a goodbye.
const LEAVE: Duration = Duration::from_secs(1);
/// Pause between two attempts to start another guard.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// The handle of the guard process. If it is dropped without [`LinkGuard::end`], the guard process sets the final
/// state.
pub struct LinkGuard {
    interfaces: Interfaces,
    targets: Vec<ClaimTarget>,
    process: Mutex<GuardProcess>,
}

/// The guard process and its state.
struct GuardProcess {
    child: GuardChild,
    final_state: FinalState,
    /// Last failed attempt to start another guard.
    tried: Option<Instant>,
}

/// The guard as a child process.
enum GuardChild {
    /// This program has started it.
    Started(Child),
    /// The program before this one in its process has started it.
    Handed {
        pid: Pid,
        /// Closed after the end.
        pipe: Option<File>,
    },
}

impl GuardChild {
    /// How it has ended, if it has.
    fn ended(&mut self) -> Option<String> {
        match self {
            GuardChild::Started(child) => child.try_wait().ok().flatten().map(|status| status.to_string()),
            GuardChild::Handed { pid, .. } => match waitpid(Some(*pid), WaitOptions::NOHANG) {
                Ok(ended) => ended.map(|(_, status)| format!("status {}", status.as_raw())),
                Err(errno) => Some(errno.to_string()),
            },
        }
    }

    fn pipe(&mut self) -> Option<&mut dyn Write> {
        match self {
            GuardChild::Started(child) => child.stdin.as_mut().map(|pipe| pipe as &mut dyn Write),
            GuardChild::Handed { pipe, .. } => pipe.as_mut().map(|pipe| pipe as &mut dyn Write),
        }
    }

    fn close_pipe(&mut self) {
        match self {
            GuardChild::Started(child) => drop(child.stdin.take()),
            GuardChild::Handed { pipe, .. } => drop(pipe.take()),
        }
    }
}

/// A guard that is handed over: its process, the pipe to it, and what it was told.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedGuard {
    pid: i32,
    pipe: i32,
    messages: Vec<Message>,
}

impl LinkGuard {
    /// Goes on with the guard of the program before this one in its process.
    ///
    /// # Errors
    /// It is not a child of this process that runs, or there is no pipe to it.
    pub fn continued(
        interfaces: Interfaces,
        targets: Vec<ClaimTarget>,
        handed: HandedGuard,
        inherited: &mut Inherited,
    ) -> Result<Self, Failure> {
        let failed = |why: &dyn Display| Failure::Runtime(format!("guard: {why}"));
        let pipe = inherited.take(handed.pipe).map_err(|error| failed(&error))?;
        let is_pipe = fstat(&pipe).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
        let pid = Pid::from_raw(handed.pid).filter(|_| is_pipe).ok_or_else(|| failed(&"no pipe was handed over"))?;
        let mut child = GuardChild::Handed { pid, pipe: Some(pipe.into()) };
        if let Some(status) = child.ended() {
            return Err(failed(&format_args!("it has ended during the upgrade: {status}")));
        }
        let final_state = FinalState::continued(&interfaces, &handed.messages);
        let process = Mutex::new(GuardProcess { child, final_state, tried: None });
        Ok(LinkGuard { interfaces, targets, process })
    }

    /// Hands the guard over to the next program in this process.
    ///
    /// # Errors
    /// The guard has ended, or the pipe cannot be kept.
    pub fn hand_over(&self, kept: &mut Kept) -> io::Result<HandedGuard> {
        let mut process = self.process();
        let messages = process.final_state.messages();
        if let Some(status) = process.child.ended() {
            return Err(io::Error::other(format!("the guard has ended: {status}")));
        }
        let (pid, pipe) = match &process.child {
            GuardChild::Started(child) => (child.id() as i32, child.stdin.as_ref().map(AsFd::as_fd)),
            GuardChild::Handed { pid, pipe } => (pid.as_raw_pid(), pipe.as_ref().map(AsFd::as_fd)),
        };
        let pipe = pipe.ok_or_else(|| io::Error::other("there is no pipe to the guard"))?;
        Ok(HandedGuard { pid, pipe: kept.keep(pipe)?, messages })
    }

    /// Starts a guard, which takes the claims. Until [`LinkGuard::take_over`] it keeps the current state of the link.
    ///
    /// # Errors
    /// The guard of a previous Weir does not end. Or `on-exit` is `forward`, but an interface has a foreign XDP
    /// program.
    pub fn start(interfaces: Interfaces, targets: Vec<ClaimTarget>, on_exit: OnExit) -> Result<Self, Failure> {
        let child = spawn(&interfaces, &targets)?;
        // Read after the claims are held, because the guard of a previous Weir may have changed the link until now.
        let final_state = FinalState::found(&interfaces, on_exit)?;
        let mut process = GuardProcess { child: GuardChild::Started(child), final_state, tried: None };
        process.tell_all();
        Ok(LinkGuard { interfaces, targets, process: Mutex::new(process) })
    }

    /// Removes the bypass, because the policy decides from now on.
    ///
    /// # Errors
    /// The bypass cannot be removed.
    pub fn take_over(&self, on_exit: OnExit) -> Result<(), Failure> {
        self.apply(on_exit);
        self.process().final_state.lift_bypass()
    }

    /// Why a bypass is impossible, if it is.
    pub fn no_bypass(&self) -> Option<String> {
        self.process().final_state.no_bypass().map(str::to_owned)
    }

    /// Applies the `on-exit` of a newly active policy.
    pub fn apply(&self, on_exit: OnExit) {
        if self.process().tell(&on_exit.into())
            && let Some(problem) = self.process().final_state.cannot_forward()
        {
            error!("weir: on-exit forward is impossible, so the link will block: {problem}");
        }
    }

    /// Must be called before an interface is taken down. On exit it is put up.
    pub fn taken_down(&self, interface: &str) {
        self.process().tell(&Message::TakenDown(interface.to_owned()));
    }

    /// Must be called after the interface was put up again.
    pub fn put_up(&self, interface: &str) {
        self.process().tell(&Message::PutUp(interface.to_owned()));
    }

    /// Interfaces that Weir has taken down.
    pub fn down(&self) -> Vec<String> {
        self.process().final_state.down()
    }

    /// Starts another guard if the current one has ended.
    pub fn renew(&self) {
        let mut process = self.process();
        let Some(status) = process.child.ended() else { return };
        if process.tried.is_some_and(|tried| tried.elapsed() < RENEW_PAUSE) {
            return;
        }
        match spawn(&self.interfaces, &self.targets) {
            Ok(child) => {
                warning!("weir: the guard has ended ({status}): another one is started");
                process.child = GuardChild::Started(child);
                process.tried = None;
                process.tell_all();
            }
            Err(failure) => {
                error!("weir: the guard has ended ({status}), and no other one can be started: {}", failure.message());
                process.tried = Some(Instant::now());
            }
        }
    }

    /// Starts the bypass as soon as the engine has detached from the interfaces, if `on-exit` is `forward`. The engine
    /// takes longer for the rest of its shutdown; packets bypass it meanwhile.
    pub fn open_early(&self) {
        self.process().final_state.open_early();
    }

    /// Sets the final state of the link and ends the guard. The engine must have detached from the interfaces.
    ///
    /// # Errors
    /// The final state cannot be set.
    pub fn end(&self) -> Result<(), Failure> {
        let mut process = self.process();
        let done = process.final_state.carry_out();
        if done.is_ok() {
            process.tell(&Message::Goodbye);
        }
        // Without a goodbye the guard tries again what failed here.
        process.child.close_pipe();
        let start = Instant::now();
        while done.is_ok() && start.elapsed() < LEAVE && process.child.ended().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        done
    }

    fn process(&self) -> MutexGuard<'_, GuardProcess> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuardProcess {
    /// Sends a message that changes the state. Returns whether it does. A guard that has ended is replaced later by one
    /// that gets all messages.
    fn tell(&mut self, message: &Message) -> bool {
        let new = self.final_state.apply(message);
        if new {
            self.write(message);
        }
        new
    }

    /// Sends the whole state to a new guard.
    fn tell_all(&mut self) {
        self.final_state.messages().iter().for_each(|message| self.write(message));
    }

    fn write(&mut self, message: &Message) {
        let mut line = serde_json::to_vec(message).expect("a message has string keys");
        line.push(b'\n');
        if let Some(pipe) = self.child.pipe() {
            let _gone = pipe.write_all(&line);
        }
    }
}

/// Starts a guard and waits until it has its claims.
fn spawn(interfaces: &Interfaces, targets: &[ClaimTarget]) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::system("guard", error);
    // `/proc/self/exe` is this program even if its file was replaced. A separate process group keeps signals of the
    // terminal from the guard.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weir").args(["guard", "--lower", &interfaces.lower.join(",")]);
    command.args(["--upper", &interfaces.upper.join(",")]).current_dir("/").process_group(0);
    command.args(targets.iter().map(|target| format!("--claim={target}")));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut answer = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut answer).map_err(failed)?;
    if answer.trim_end() == READY {
        return Ok(child);
    }
    let status = child.wait().map_err(failed)?;
    Err(Failure::Runtime(match answer.trim_end() {
        "" => format!("guard: it ended without an answer: {status}"),
        reason => reason.to_owned(),
    }))
}
