//! A bare Debian 12: made by debootstrap from the sources of this machine's apt, and booted by systemd-nspawn.

use crate::shell::{run, target_dir};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The release, and the key that its archive is signed with.
const RELEASE: &str = "bookworm";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Packages beside the essential ones: what every machine has, and tools of the trial.
const PACKAGES: &str = "systemd-sysv,dbus,iproute2,ca-certificates,procps";
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

/// The file system of the machine. It is removed when it is dropped.
pub struct Root(PathBuf);

impl Root {
    /// A copy of a bare Debian, which is made if there is none. `mirror` replaces the first one that apt has.
    ///
    /// # Errors
    /// There is no debootstrap, or the mirror does not answer.
    pub fn new(mirror: Option<&str>) -> Result<Self, String> {
        let (base, copy) = (folder()?.join("base"), folder()?.join("root"));
        if !base.join("etc/apt/sources.list").exists() {
            remove(&base)?;
            let sources = sources(mirror)?;
            let words = sources[0].split(' ').collect::<Vec<_>>();
            let mut make = Command::new("debootstrap");
            make.args([
                "--variant=minbase",
                &format!("--include={PACKAGES}"),
                &format!("--keyring={KEYRING}"),
                RELEASE,
            ]);
            run(make.arg(&base).arg(words[0]).stdout(Stdio::null()))?;
            let lines: String = sources.iter().map(|line| format!("deb [signed-by={KEYRING}] {line}\n")).collect();
            write(&base.join("etc/apt/sources.list"), &lines)?;
            // The root is thrown away, so dpkg need not wait for the disk.
            write(&base.join("etc/dpkg/dpkg.cfg.d/trial"), "force-unsafe-io\n")?;
            let settings = said(Command::new("apt-config").args(["dump", "--no-empty", "Acquire"]))?;
            let proxies: String =
                settings.lines().filter(|line| line.contains("::Proxy ")).map(|l| format!("{l}\n")).collect();
            write(&base.join("etc/apt/apt.conf.d/90trial"), &proxies)?;
        }
        remove(&copy)?;
        run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(&base).arg(&copy))?;
        let root = Root(copy);
        root.run("apt-get -qq update")?;
        Ok(root)
    }

    /// The path of a file here.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside.trim_start_matches('/'))
    }

    /// Writes a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put(&self, inside: &str, text: &str) -> Result<(), String> {
        write(&self.path(inside), text)
    }

    /// Runs a line in the file system with the network of this machine, while it is not booted.
    ///
    /// # Errors
    /// It fails.
    pub fn run(&self, line: &str) -> Result<String, String> {
        let mut command = nspawn(&self.0);
        command.args(["--pipe", "--quiet", "--setenv=DEBIAN_FRONTEND=noninteractive", "sh", "-c", line]);
        told(line, &mut command)
            .and_then(|(succeeds, text)| if succeeds { Ok(text) } else { Err(format!("{line}: {text}")) })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // What remains is removed by the next trial.
        let _gone = remove(&self.0);
    }
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
        let mut command = nspawn(&root.0);
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

fn nspawn(root: &Path) -> Command {
    let mut command = Command::new("systemd-nspawn");
    // This machine may have no service manager that counts containers.
    command.args(["--register=no", "--keep-unit", "--directory"]).arg(root);
    command
}

/// The sources of Debian's release in this machine's apt, as `ADDRESS SUITE COMPONENT`, the release itself first.
fn sources(mirror: Option<&str>) -> Result<Vec<String>, String> {
    let policy = said(Command::new("apt-cache").arg("policy").env("LC_ALL", "C"))?;
    let mut found: Vec<String> = Vec::new();
    for line in policy.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, address, suite, _, "Packages"] = words[..]
            && let Some((suite, "main")) = suite.split_once('/')
            && suite.starts_with(RELEASE)
        {
            found.push(format!("{address} {suite} main"));
        }
    }
    found.sort_by_key(|line| !line.contains(&format!(" {RELEASE} ")));
    if let Some(mirror) = mirror {
        found.retain(|line| !line.contains(&format!(" {RELEASE} ")));
        found.insert(0, format!("{mirror} {RELEASE} main"));
    }
    let first = found.first().is_some_and(|line| line.contains(&format!(" {RELEASE} ")));
    if first { Ok(found) } else { Err(format!("apt has no source of {RELEASE}: use --mirror")) }
}

/// Prints a line and what it says. Returns whether it succeeds, and the text.
fn told(line: &str, command: &mut Command) -> Result<(bool, String), String> {
    println!("  # {line}");
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{line}: {error}"))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    // nspawn complains if /run is on a disk.
    let lines = text.lines().filter(|line| !line.starts_with("Attempted to remove disk file system"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.lines().for_each(|line| println!("    {line}"));
    Ok((output.status.success(), text))
}

/// What a command prints.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", folder.display())),
        Ok(()) | Err(_) => Ok(()),
    }
}
