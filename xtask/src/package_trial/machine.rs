//! A bare Debian 12 that systemd-nspawn boots.

use crate::debian::{Root, nspawn, said, told};
use crate::shell::target_dir;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Packages beside the essential ones: what every machine has, and tools of the trial.
pub const PACKAGES: &str = "systemd-sysv,dbus,iproute2,ca-certificates,procps";
/// The name of the machine.
const NAME: &str = "weir-trial";
/// What the unit may do (`CapabilityBoundingSet`), which a container must have too.
const CAPABILITIES: &str = "CAP_NET_ADMIN,CAP_NET_RAW,CAP_BPF,CAP_PERFMON,CAP_SYS_ADMIN";
/// The longest boot.
const BOOT_MAX: Duration = Duration::from_secs(90);

/// The folder of the trial.
///
/// # Errors
/// It cannot be made.
pub fn folder() -> Result<PathBuf, String> {
    let folder = target_dir().join("package-trial");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))
}

/// The machine while it runs. It ends when it is dropped.
pub struct Machine {
    nspawn: Child,
    /// The process number of its init.
    init: String,
}

impl Machine {
    /// Boots.
    ///
    /// # Errors
    /// It does not come up.
    pub fn boot(root: &Root, namespace: &str) -> Result<Self, String> {
        let console = folder()?.join("console");
        let file = File::create(&console).map_err(|error| format!("{}: {error}", console.display()))?;
        let mut command = nspawn(&root.path("/"));
        command.args(["--boot", "--console=pipe", &format!("--machine={NAME}"), "--system-call-filter=bpf"]);
        command.arg(format!("--network-namespace-path=/run/netns/{namespace}"));
        command.arg(format!("--capability={CAPABILITIES}")).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(|error| format!("{}: {error}", console.display()))?).stderr(file);
        let nspawn = command.spawn().map_err(|error| format!("systemd-nspawn: {error}"))?;
        let mut machine = Machine { nspawn, init: String::new() };
        let (begun, id) = (Instant::now(), machine.nspawn.id());
        let failed = || format!("the machine does not boot: {}", console.display());
        while begun.elapsed() < BOOT_MAX {
            thread::sleep(Duration::from_millis(200));
            if machine.nspawn.try_wait().map_err(|error| error.to_string())?.is_some() {
                return Err(failed());
            }
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
            machine.init = children.split(' ').next().unwrap_or_default().to_owned();
            let is_init =
                fs::read_to_string(format!("/proc/{}/comm", machine.init)).is_ok_and(|name| name == "systemd\n");
            if is_init {
                let state =
                    said(machine.command("systemctl is-system-running").stderr(Stdio::null())).unwrap_or_default();
                // A failed unit is for the trial to judge.
                if ["running", "degraded"].contains(&state.trim()) {
                    return Ok(machine);
                }
            }
        }
        Err(failed())
    }

    /// Runs a line inside. Prints it and what it says.
    ///
    /// # Errors
    /// It fails.
    pub fn run(&self, line: &str) -> Result<String, String> {
        match told(line, &mut self.command(line))? {
            (true, text) => Ok(text),
            (false, text) => Err(format!("{line}: {text}")),
        }
    }

    /// Like [`Machine::run`], but the line must fail.
    ///
    /// # Errors
    /// It succeeds.
    pub fn refuses(&self, line: &str) -> Result<String, String> {
        match told(line, &mut self.command(line))? {
            (false, text) => Ok(text),
            (true, text) => Err(format!("it should fail: {line}: {text}")),
        }
    }

    /// What a line says, without printing it. The line may fail.
    pub fn ask(&self, line: &str) -> String {
        let text = said(&mut self.command(&format!("{line} || true")));
        text.unwrap_or_default().trim_end().to_owned()
    }

    /// Asks until the answer contains a word.
    ///
    /// # Errors
    /// It does not within `time_max`.
    pub fn wait_for(&self, line: &str, word: &str, time_max: Duration) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            let answer = self.ask(line);
            if answer.contains(word) {
                return Ok(answer);
            }
            if begun.elapsed() > time_max {
                return Err(format!("{line}: no {word:?} within {time_max:?}: {answer}"));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends it as a power cut does.
    pub fn crash(self) {}

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.init,
            "--all",
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG=C.UTF-8",
        ]);
        command.args(["DEBIAN_FRONTEND=noninteractive", "NO_COLOR=1", "COLUMNS=120", "sh", "-c", line]);
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !self.init.is_empty() {
            // The kernel ends all processes of the machine with its init.
            let _ended = Command::new("kill").args(["-KILL", &self.init]).status();
        }
        let begun = Instant::now();
        while matches!(self.nspawn.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(50));
        }
        let _ended = self.nspawn.kill();
        let _status = self.nspawn.wait();
        // nspawn leaves its groups of processes where no service manager runs, and a folder.
        for group in ["payload", "supervisor"] {
            for hierarchy in ["unified", "systemd", "."] {
                let _gone = fs::remove_dir(Path::new("/sys/fs/cgroup").join(hierarchy).join(group));
            }
        }
        let _gone = fs::remove_dir(Path::new("/run/systemd/nspawn/propagate").join(NAME));
    }
}
