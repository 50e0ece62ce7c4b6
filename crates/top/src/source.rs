//! Where snapshots come from: a thread that asks a running Weir once a second, and carries out commands. The screen
//! never waits for Weir.

use crate::{Command, Event, Snapshot};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_control::{AttackOperation, AttacksChanged, Client, Error, Request, Status};

/// How often Weir is asked.
pub const PERIOD: Duration = Duration::from_secs(1);

/// A command that could not be sent for this time is not carried out: the operator no longer expects it.
const COMMAND_AGE_MAX: Duration = Duration::from_secs(5);

/// A thread that asks.
pub struct Source {
    /// What it has seen.
    pub events: Receiver<Event>,
    commands: Sender<(Command, Instant)>,
}

impl Source {
    /// Begins to ask the Weir with this socket.
    pub fn start(path: &Path) -> Self {
        let (commands, wanted) = channel();
        let (found, events) = channel();
        let path = path.to_owned();
        // The thread ends with the process: it may wait for a Weir that hangs.
        thread::spawn(move || Asker { path, client: None }.run(&wanted, &found));
        Source { events, commands }
    }

    /// Has a command carried out. The answer is an event.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send((command, Instant::now()));
    }
}

struct Asker {
    path: PathBuf,
    client: Option<Client>,
}

impl Asker {
    fn run(&mut self, wanted: &Receiver<(Command, Instant)>, found: &Sender<Event>) {
        let mut due = Instant::now();
        loop {
            if found.send(Event::Snapshot(Box::new(self.snapshot()))).is_err() {
                return;
            }
            due = (due + PERIOD).max(Instant::now());
            match wanted.recv_timeout(due.saturating_duration_since(Instant::now())) {
                // The operator sees the effect at once, in the next snapshot.
                Ok((command, since)) => {
                    let answered = self.answer(command, since.elapsed());
                    if found.send(Event::Answered(answered)).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Asks once, over the connection that is open or a new one.
    fn snapshot(&mut self) -> Snapshot {
        let taken = self.with_client(|client| Snapshot::take(client, unix_s()));
        taken.unwrap_or_else(|error| Snapshot::gone(unix_s(), &error))
    }

    /// Carries a command out that has waited for `age`.
    fn answer(&mut self, command: Command, age: Duration) -> Result<String, String> {
        if age > COMMAND_AGE_MAX {
            return Err(format!("nothing was changed: Weir did not answer for {} s", age.as_secs()));
        }
        self.carry_out(command).map_err(|error| error.to_string())
    }

    fn carry_out(&mut self, command: Command) -> Result<String, Error> {
        let attacks = |operation| Request::Attacks { operation };
        let request = match command {
            Command::Accept(attack) => attacks(AttackOperation::Accept { attack }),
            Command::Dismiss(attack) => attacks(AttackOperation::Dismiss { attack }),
            Command::Confirm => Request::Confirm,
            Command::Rollback => Request::Rollback,
        };
        let value = self.with_client(|client| client.ask(&request))?;
        Ok(match command {
            Command::Accept(_) | Command::Dismiss(_) => {
                let what = if matches!(command, Command::Accept(_)) { "accepted" } else { "dismissed" };
                let AttacksChanged { attack, changed, undone, problems } = weir_control::read(value)?;
                let undone = if undone > 0 { format!(", {undone} of them undone") } else { String::new() };
                let problem = problems.first().map(|problem| format!("; not carried out: {problem}"));
                format!("attack {attack}: {changed} actions {what}{undone}{}", problem.unwrap_or_default())
            }
            Command::Confirm | Command::Rollback => {
                let status: Status = weir_control::read(value)?;
                let what = if command == Command::Confirm { "kept" } else { "rolled back to" };
                format!("{what} generation {}", status.generation)
            }
        })
    }

    /// Uses the connection. It is closed after an error that leaves it unusable.
    fn with_client<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, Error>) -> Result<T, Error> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(&self.path)?),
        };
        let answer = ask(client);
        if matches!(&answer, Err(error) if !error.is_answer()) {
            self.client = None;
        }
        answer
    }
}

/// Takes two snapshots, a period apart, for one screen with rates.
///
/// # Errors
/// No Weir answers.
pub fn take_two(path: &Path) -> Result<[Snapshot; 2], Error> {
    let mut client = Client::connect(path)?;
    let first = Snapshot::take(&mut client, unix_s())?;
    thread::sleep(PERIOD);
    Ok([first, Snapshot::take(&mut client, unix_s())?])
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::Asker;
    use crate::Command;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::thread::{self, JoinHandle};

    /// A server that answers each of `count` requests of one client by `answer`. Returns the requests.
    fn serve(path: &Path, count: usize, answer: fn(&str) -> &'static str) -> JoinHandle<Vec<String>> {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("it can be bound");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let lines = BufReader::new(stream.try_clone().expect("a second end")).lines().take(count);
            let mut requests = Vec::new();
            for line in lines {
                let line = line.expect("a line");
                stream.write_all(answer(&line).as_bytes()).expect("it listens");
                requests.push(line);
            }
            requests
        })
    }

    #[test]
    fn a_weir_that_is_gone_is_asked_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let mut asker = Asker { path: path.clone(), client: None };
        assert!(asker.snapshot().problem.expect("nobody listens").contains("no `weir run` has its socket there"));
        for _ in 0..2 {
            let server = serve(&path, 7, |_| "{\"error\":\"weir: not here\"}\n");
            let seen = asker.snapshot();
            assert_eq!((seen.problem, seen.absent.len()), (None, 7));
            assert_eq!(seen.absent["attacks"], "weir: not here");
            assert_eq!(server.join().expect("no panic").len(), 7);
            // The server has closed the connection.
            assert!(asker.snapshot().problem.is_some());
        }
    }

    #[test]
    fn commands_are_requests_and_their_answers_are_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let answer = |line: &str| match line.contains("accept") {
            true => "{\"ok\":{\"attack\":3,\"changed\":2,\"problems\":[\"the slot is full\"]}}\n",
            false => "{\"error\":\"weir: no trial\"}\n",
        };
        let server = serve(&path, 2, answer);
        let mut asker = Asker { path, client: None };
        let accepted = asker.carry_out(Command::Accept(3)).expect("it is accepted");
        assert_eq!(accepted, "attack 3: 2 actions accepted; not carried out: the slot is full");
        assert_eq!(asker.carry_out(Command::Confirm).expect_err("refused").to_string(), "weir: no trial");
        // Weir has hung for a while: what was wanted then is not done now.
        let late = asker.answer(Command::Rollback, std::time::Duration::from_secs(6));
        assert_eq!(late, Err("nothing was changed: Weir did not answer for 6 s".to_owned()));
        let requests = server.join().expect("no panic");
        assert_eq!(requests, [r#"{"attacks":{"operation":{"accept":{"attack":3}}}}"#, r#""confirm""#]);
    }
}
