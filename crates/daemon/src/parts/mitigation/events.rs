//! Tells others about attacks: a file with a JSON line for each event, and a program that is called with the arguments
//! of FastNetMon's notify script.
//!
//! ```text
//! {"time":"2026-03-01T12:00:10.000Z","event":"action-taken","attack":1,"victim":"192.0.2.1","kind":"udp-flood","pps":1600,
//!  "action":{"number":1,"kind":"udp-flood","action":"drop","rule":"ip daddr 192.0.2.1 ... drop","ending":null,
//!  "problem":null},"vector":null}
//! PROGRAM 192.0.2.1 incoming 1600 ban          (the details of the attack are its standard input)
//! ```
//! Each has a thread of its own with a bounded queue (`outlet.rs`).

use super::exporting::Exports;
use super::outlet::Outlet;
use crate::parts::log_file;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use weir_command::failure::Failure;
use weir_control::EventsStatus;

/// The time that a call of the program may take.
const CALL_TIME: Duration = Duration::from_secs(10);
const CALL_STEP: Duration = Duration::from_millis(10);
/// The longest wait for both at the end.
const END_TIME: Duration = Duration::from_secs(2);
/// The longest details: less than a pipe holds, so that a program that does not read them causes no delay.
const DETAILS_BYTES: usize = 32 << 10;

/// A line of the file.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When it happened, RFC 3339.
    pub time: String,
    /// `attack-began`, `vector-began`, `vector-ended`, `action-watched`, `action-proposed`, `action-taken`,
    /// `action-failed`, `action-undone`, `action-released`, `attack-ended`.
    pub event: &'static str,
    /// The number of the attack.
    pub attack: u32,
    /// The attacked address or prefix.
    pub victim: String,
    /// The kind of the attack.
    pub kind: &'static str,
    /// The highest rate of packets without proof so far.
    pub pps: u64,
    /// The action, if the event is about one.
    pub action: Option<EventAction>,
    /// The vector, if the event is about one.
    pub vector: Option<EventVector>,
}

/// The vector of an event.
#[derive(Clone, Debug, Serialize)]
pub struct EventVector {
    /// Its kind.
    pub kind: &'static str,
    /// The highest rate so far, with what actions hold back.
    pub pps: u64,
}

/// The action of an event.
#[derive(Clone, Debug, Serialize)]
pub struct EventAction {
    /// Its number.
    pub number: u32,
    /// The kind of the vector that it is for.
    pub kind: &'static str,
    /// `drop`, `limit`, `block` or `posture`.
    pub action: &'static str,
    /// The rule, entry or posture.
    pub rule: String,
    /// How it ended.
    pub ending: Option<&'static str>,
    /// Why it was not carried out.
    pub problem: Option<String>,
}

impl Event {
    /// An event that happens now, without an action.
    pub fn now(event: &'static str, attack: u32, victim: String, kind: &'static str, pps: u64) -> Self {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        Event { time, event, attack, victim, kind, pps, action: None, vector: None }
    }
}

/// A call of the program.
#[derive(Clone, Debug)]
pub struct Call {
    /// The attacked address or prefix.
    pub victim: String,
    /// Packets a second.
    pub pps: u64,
    /// `ban`, `unban` or `attack_details`.
    pub action: &'static str,
    /// Its standard input.
    pub details: String,
}

/// Where events go.
#[derive(Default)]
pub struct Events {
    log: Option<Outlet<Event>>,
    notify: Option<Outlet<Call>>,
    /// Attacks as files.
    pub exports: Option<Exports>,
}

impl Events {
    /// Waits a little until all events are written, and the program was called for all of them.
    pub fn settle(&self) {
        self.log.iter().for_each(|log| log.settle(END_TIME));
        self.notify.iter().for_each(|notify| notify.settle(END_TIME));
    }

    /// Opens the file and starts the threads.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or a thread cannot be started.
    pub fn start(log: Option<&Path>, program: Option<&Path>) -> Result<Self, Failure> {
        let log = log.map(|path| {
            log_file::open(path).map_err(|error| Failure::file(path, error))?;
            let path = path.to_owned();
            Outlet::start("weir-events", move |event: Event| append(&path, &event))
        });
        let notify = program.map(|program| {
            let program = program.to_owned();
            Outlet::start("weir-notify", move |call: Call| run(&program, &call, CALL_TIME))
        });
        Ok(Events { log: log.transpose()?, notify: notify.transpose()?, exports: None })
    }

    /// Writes an event to the file.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(log) = &self.log {
            log.put(event);
        }
    }

    /// Calls the program.
    pub fn call(&self, call: impl FnOnce() -> Call) {
        if let Some(notify) = &self.notify {
            notify.put(call);
        }
    }

    /// What was told, and what was not.
    pub fn status(&self) -> EventsStatus {
        let [written, write_failed, write_lost] = self.log.as_ref().map(Outlet::counts).unwrap_or_default();
        let [called, call_failed, call_lost] = self.notify.as_ref().map(Outlet::counts).unwrap_or_default();
        let [exported, export_failed, export_lost] = self.exports.as_ref().map(Exports::counts).unwrap_or_default();
        let problems = [
            self.log.as_ref().and_then(Outlet::problem),
            self.notify.as_ref().and_then(Outlet::problem),
            self.exports.as_ref().and_then(Exports::problem),
        ];
        EventsStatus {
            written,
            write_failed,
            write_lost,
            called,
            call_failed,
            call_lost,
            exported,
            export_failed,
            export_lost,
            problems: problems.into_iter().flatten().collect(),
        }
    }

    /// Waits a while until all is told.
    pub fn end(&mut self) {
        let deadline = Instant::now() + END_TIME;
        self.log.iter_mut().for_each(|log| log.end(deadline));
        self.notify.iter_mut().for_each(|notify| notify.end(deadline));
        self.exports.iter_mut().for_each(|exports| exports.end(deadline));
    }
}

/// Appends an event. The file is opened each time, so it can be renamed as logrotate does.
fn append(path: &Path, event: &Event) -> Result<(), String> {
    let mut line = serde_json::to_vec(event).expect("events have string keys");
    line.push(b'\n');
    let written = log_file::open(path).and_then(|mut file| file.write_all(&line));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Calls the program, and ends it with all that it has started if it takes too long.
fn run(program: &Path, call: &Call, time: Duration) -> Result<(), String> {
    let failed = |what: String| format!("{}: {what}", program.display());
    let mut command = Command::new(program);
    command.args([&call.victim, "incoming", &call.pps.to_string(), call.action]);
    let has_details = call.action != "unban";
    command.stdin(if has_details { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    if let Some(mut input) = child.stdin.take() {
        let end = call.details.floor_char_boundary(DETAILS_BYTES);
        // A program need not read them.
        let _unread = input.write_all(&call.details.as_bytes()[..end]);
    }
    match wait(&mut child, time) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(failed(status.to_string())),
        Ok(None) => Err(failed(format!("ended after {} s", time.as_secs_f64()))),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Waits until a program ends. After `time` it is killed with its process group.
fn wait(child: &mut Child, time: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(CALL_STEP);
    }
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // It may have ended meanwhile.
        let _gone = kill_process_group(group, Signal::KILL);
    }
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::{Call, Event, Events, run};
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("notify.sh");
        // Another process writes it: a test that forks meanwhile would keep our descriptor, and the file busy.
        let mut write = Command::new("sh");
        write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$0\" > \"$1\" && chmod +x \"$1\"", text]).arg(&path);
        assert!(write.status().expect("there is a shell").success());
        path
    }

    fn call(action: &'static str) -> Call {
        Call { victim: "192.0.2.1".to_owned(), pps: 1600, action, details: "IP: 192.0.2.1\n".to_owned() }
    }

    #[test]
    fn the_program_gets_the_arguments_and_details_of_fastnetmon() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = script(folder.path(), "echo \"$@\" >> $(dirname $0)/told; cat >> $(dirname $0)/told");
        for action in ["ban", "unban", "attack_details"] {
            run(&program, &call(action), Duration::from_secs(10)).expect("it succeeds");
        }
        let told = fs::read_to_string(folder.path().join("told")).expect("it was called");
        let details = "IP: 192.0.2.1\n";
        let [ban, unban, more] =
            ["ban", "unban", "attack_details"].map(|action| format!("192.0.2.1 incoming 1600 {action}\n"));
        assert_eq!(told, [&ban, details, &unban, &more, details].concat());
    }

    #[test]
    fn a_program_that_fails_or_hangs_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |text: &str| {
            let program = script(folder.path(), text);
            run(&program, &call("ban"), Duration::from_millis(300)).expect_err("it fails")
        };
        assert!(said("exit 3").ends_with("notify.sh: exit status: 3"));
        let begun = Instant::now();
        assert!(said("sleep 60 & sleep 60").ends_with("notify.sh: ended after 0.3 s"));
        assert!(begun.elapsed() < Duration::from_secs(30));
        let none = run(&folder.path().join("none"), &call("ban"), Duration::from_secs(1)).expect_err("there is none");
        assert!(none.contains("none: No such file"), "{none}");
        // More than a pipe holds, and the program does not read it.
        let long = Call { details: "é".repeat(1 << 20), ..call("ban") };
        run(&script(folder.path(), "exit 0"), &long, Duration::from_secs(10)).expect("it need not read");
    }

    #[test]
    fn events_are_lines_and_what_cannot_be_written_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events");
        let mut events = Events::start(Some(&path), None).expect("it can be written to");
        let event = |attack| Event::now("attack-began", attack, "192.0.2.1".to_owned(), "udp-flood", 7);
        events.tell(|| event(1));
        events.tell(|| event(2));
        events.end();
        let lines: Vec<serde_json::Value> = fs::read_to_string(&path)
            .expect("it is there")
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is an object"))
            .collect();
        assert_eq!((lines.len(), &lines[1]["attack"], &lines[0]["event"]), (2, &2.into(), &"attack-began".into()));
        events.tell(|| event(3));
        assert_eq!((events.status().written, events.status().write_lost), (2, 1));

        let mut events = Events::start(Some(Path::new("/dev/full")), None).expect("it can be opened");
        events.tell(|| event(1));
        events.end();
        let status = events.status();
        assert_eq!((status.written, status.write_failed, status.problems.len()), (0, 1, 1), "{status:?}");
    }
}
