//! What happens to the link when Weir ends, however it ends.
//!
//! ```text
//!   weir run ---- a pipe: what is to be done in the end ----> weir guard
//!      |                                                          |
//!   told to end: does it itself, says goodbye                     waits: a word, or the pipe's end without a goodbye
//!   killed: the pipe ends                                         does it
//! ```
//! The guard is a small process of the same program, started before any interface is touched. It holds nothing of what moves packets. While it
//! is there, so is its claim on the interfaces (`claim.rs`): a Weir that is started again waits for the guard of the one before. If the guard itself is
//! killed, another is started; what cannot be mended is both killed at once, after which nothing passes.

mod aftermath;
pub mod process;
mod word;

use crate::failure::Failure;
use crate::run::claim::Place;
use aftermath::Aftermath;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_engine::live::Interfaces;
use weir_policy::ir::OnExit;
use word::{READY, Word};

/// How long a guard may take to leave after a goodbye.
const LEAVE: Duration = Duration::from_secs(1);
/// Between two attempts to start another guard.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// The guard, as the process sees it that it guards. Dropped without [`Guard::end`], the guard does what is to be done.
pub struct Guard {
    interfaces: Interfaces,
    places: Vec<Place>,
    post: Mutex<Post>,
}

/// Who guards, and what the guard knows.
struct Post {
    child: Child,
    aftermath: Aftermath,
    /// When another guard was last asked for in vain.
    tried: Option<Instant>,
}

impl Guard {
    /// Starts a guard, which claims the places. Until [`Guard::take_over`] it leaves the link as it is now.
    ///
    /// # Errors
    /// The guard of a Weir that has ended does not leave, or somebody else's program stands where the policy wants everything to pass in the end.
    pub fn start(interfaces: Interfaces, places: Vec<Place>, on_exit: OnExit) -> Result<Self, Failure> {
        let child = spawn(&interfaces, &places)?;
        // What was left by a Weir whose guard was not done until now.
        let aftermath = Aftermath::found(&interfaces, on_exit)?;
        let mut post = Post { child, aftermath, tried: None };
        post.tell_all();
        Ok(Guard { interfaces, places, post: Mutex::new(post) })
    }

    /// The policy decides from now on: nothing passes it by any more.
    ///
    /// # Errors
    /// A bypass cannot be taken away.
    pub fn take_over(&self, on_exit: OnExit) -> Result<(), Failure> {
        self.heed(on_exit);
        self.post().aftermath.lift_bypass()
    }

    /// Another policy decides, which may have another end in mind.
    pub fn heed(&self, on_exit: OnExit) {
        if self.post().tell(&on_exit.into())
            && let Some(problem) = self.post().aftermath.cannot_forward()
        {
            eprintln!("weir: on-exit forward cannot be kept, the link will block: {problem}");
        }
    }

    /// Before an interface is taken down that is to be up again in the end.
    pub fn taken_down(&self, interface: &str) {
        self.post().tell(&Word::TakenDown(interface.to_owned()));
    }

    /// After it was put up again.
    pub fn put_up(&self, interface: &str) {
        self.post().tell(&Word::PutUp(interface.to_owned()));
    }

    /// Interfaces that Weir has taken down.
    pub fn down(&self) -> Vec<String> {
        self.post().aftermath.down()
    }

    /// Starts another guard if the one before has ended.
    pub fn renew(&self) {
        let mut post = self.post();
        let Ok(Some(status)) = post.child.try_wait() else { return };
        if post.tried.is_some_and(|tried| tried.elapsed() < RENEW_PAUSE) {
            return;
        }
        match spawn(&self.interfaces, &self.places) {
            Ok(child) => {
                eprintln!("weir: the guard has ended ({status}): another stands in");
                post.child = child;
                post.tried = None;
                post.tell_all();
            }
            Err(failure) => {
                eprintln!("weir: the guard has ended ({status}), and no other can be started: {}", failure.message());
                post.tried = Some(Instant::now());
            }
        }
    }

    /// Lets everything pass, if that is how it ends, as soon as the engine leaves room for it: letting go of the rest takes an engine longer than
    /// letting go of the interfaces. What it has not seen by then passes it by.
    pub fn open_early(&self) {
        self.post().aftermath.open_early();
    }

    /// Does what is to be done in the end, and says goodbye. The engine has let go of the interfaces.
    ///
    /// # Errors
    /// The link is not as it should be.
    pub fn end(&self) -> Result<(), Failure> {
        let mut post = self.post();
        let done = post.aftermath.carry_out();
        if done.is_ok() {
            post.tell(&Word::Goodbye);
        }
        // Without a goodbye it tries what failed here.
        drop(post.child.stdin.take());
        let start = Instant::now();
        while done.is_ok() && start.elapsed() < LEAVE && matches!(post.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(1));
        }
        done
    }

    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Post {
    /// Tells the guard, if that is new. Returns whether it was. A guard that has gone is told when there is another.
    fn tell(&mut self, word: &Word) -> bool {
        let new = self.aftermath.heed(word);
        if new {
            self.write(word);
        }
        new
    }

    /// Tells a new guard everything.
    fn tell_all(&mut self) {
        self.aftermath.words().iter().for_each(|word| self.write(word));
    }

    fn write(&mut self, word: &Word) {
        let mut line = serde_json::to_vec(word).expect("a word is JSON");
        line.push(b'\n');
        if let Some(pipe) = &mut self.child.stdin {
            let _gone = pipe.write_all(&line);
        }
    }
}

/// Starts a guard and waits until it has its claim.
fn spawn(interfaces: &Interfaces, places: &[Place]) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::system("guard", error);
    // This very program, though a newer one may lie in its place by now. Signals for the terminal's group are not for the guard.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weir").args(["guard", "--lower", &interfaces.lower.join(",")]);
    command.args(["--upper", &interfaces.upper.join(",")]).current_dir("/").process_group(0);
    command.args(places.iter().map(|place| format!("--claim={place}")));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut answer = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut answer).map_err(failed)?;
    if answer.trim_end() == READY {
        return Ok(child);
    }
    let status = child.wait().map_err(failed)?;
    Err(Failure::Runtime(match answer.trim_end() {
        "" => format!("guard: it ended at once: {status}"),
        reason => reason.to_owned(),
    }))
}
