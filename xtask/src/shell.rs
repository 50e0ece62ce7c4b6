//! Starts other programs in the repository's root.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// How long output may be open after its command has ended.
const GRACE: Duration = Duration::from_secs(10);

/// Makes the repository's root the working directory. All paths below are relative to it.
pub fn enter_root() {
    // The variable at run time takes precedence, because several clones may share a target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&package).parent().expect("xtask lies in the repository");
    std::env::set_current_dir(root).expect("the repository exists");
}

/// The cargo that started this program, with `args`.
pub fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Rust's incremental data costs a tenth of a build. Toggling it rebuilds nothing.
    command.args(args).env("CARGO_INCREMENTAL", "0");
    command
}

/// A copy of the command, started by `program`, which changes how it runs: `nice -n 10`, `timeout 60`. Without
/// `program`, a plain copy.
pub fn started_by<const N: usize>(program: [&str; N], command: &Command) -> Command {
    let mut words = program.iter().map(OsStr::new).chain([command.get_program()]).chain(command.get_args());
    let mut started = Command::new(words.next().expect("a command has a program"));
    started.args(words);
    started.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.get_current_dir().map(|folder| started.current_dir(folder));
    started
}

/// Cargo's output folder.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Runs a command. The error names the program and its exit status.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = name(command);
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// Runs a command. Prints each line of its standard output and standard error after `name`, because several commands
/// print at the same time. Returns all lines, and the exit status unless it is success. A process that the command
/// leaves behind, and that still holds its output, is an error.
pub fn run_and_read(name: &str, command: &mut Command) -> (String, Result<(), String>) {
    run_and_read_with(GRACE, name, command)
}

fn run_and_read_with(grace: Duration, name: &str, command: &mut Command) -> (String, Result<(), String>) {
    let (sender, lines) = mpsc::channel();
    let start = || -> std::io::Result<Child> {
        let (output, stdout) = std::io::pipe()?;
        let stderr = stdout.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn()?;
        // `command` keeps two write ends of the pipe. Reading ends only when all write ends are closed.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let name = name.to_owned();
        std::thread::spawn(move || {
            // Tests may print bytes that are not UTF-8, so bytes are split instead of characters. A pipe has no errors.
            for bytes in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&bytes).into_owned();
                println!("{name}: {line}");
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(child)
    };
    let status = match start().and_then(|mut child| child.wait()) {
        Ok(status) => status,
        Err(error) => return (String::new(), Err(error.to_string())),
    };
    let (mut text, end) = (String::new(), Instant::now() + grace);
    let closed = loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => text += &(line + "\n"),
            Err(error) => break error == mpsc::RecvTimeoutError::Disconnected,
        }
        if Instant::now() > end {
            break false;
        }
    };
    let outcome = match (status.success(), closed) {
        (true, true) => Ok(()),
        (true, false) => Err("it left a process that holds its output".to_owned()),
        (false, _) => Err(status.to_string()),
    };
    (text, outcome)
}

/// Does all jobs, `workers` at a time, in their order. Returns the results in the order in which jobs end.
pub fn in_parallel<J: Send, R: Send>(jobs: Vec<J>, workers: usize, work: impl Fn(J) -> R + Sync) -> Vec<R> {
    let queue = Mutex::new(jobs.into_iter());
    let next = || queue.lock().expect("no worker panics while it holds the lock").next();
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let result = work(job);
                    results.lock().expect("no worker panics while it holds the lock").push(result);
                }
            });
        }
    });
    results.into_inner().expect("no worker panics while it holds the lock")
}

/// The number of processors.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The content of a file. The error names it.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// All files below `dir` with one of the extensions, sorted, without build outputs and hidden folders.
pub fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.') || entry.file_name() == "target";
            if path.is_dir() && !hidden {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| extensions.iter().any(|want| e == *want)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut name = program.to_string_lossy().into_owned();
    for arg in command.get_args().take(3) {
        name.push(' ');
        name.push_str(&arg.to_string_lossy());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{in_parallel, run_and_read, run_and_read_with, started_by};
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_command_started_by_another_is_the_same_command() {
        let mut command = Command::new("sh");
        command.args(["-c", "nice; pwd; echo $NAME >&2; exit 3"]).current_dir("/").env("NAME", "weir");
        let (output, outcome) = run_and_read("test", &mut started_by(["nice", "-n", "19"], &command));
        assert_eq!((output.as_str(), outcome), ("19\n/\nweir\n", Err("exit status: 3".to_owned())));
    }

    #[test]
    fn a_process_that_is_left_behind_is_not_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "(for i in $(seq 200); do echo more; sleep 0.1; done) & echo weir"]);
        let start = Instant::now();
        let (output, outcome) = run_and_read_with(Duration::from_millis(300), "test", &mut command);
        assert!(start.elapsed() < Duration::from_secs(20), "it waited for the process");
        assert!(output.contains("weir\n"), "{output}");
        assert_eq!(outcome, Err("it left a process that holds its output".to_owned()));
    }

    #[test]
    fn all_jobs_are_done() {
        let mut doubled = in_parallel((0..100).collect(), 3, |number| 2 * number);
        doubled.sort_unstable();
        assert_eq!(doubled, (0..100).map(|number| 2 * number).collect::<Vec<i32>>());
    }
}
