//! Kernels of Debian, and guests that run them in qemu.
//!
//! The packages are fetched with apt and unpacked below `target`. The file system of a guest is in memory: busybox, the
//! programs that it runs and their libraries, at the paths that they have here. A guest has no disk and no network,
//! runs the commands in `/guest/command` (tests/guest/init), and powers off at its end.

use crate::image::Image;
use crate::shell::{self, run};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Programs that are busybox.
const APPLETS: [&str; 8] = ["sh", "mount", "dmesg", "insmod", "rmmod", "poweroff", "cat", "ls"];
/// The package with busybox.
pub const BUSYBOX: &str = "busybox-static";
/// The prefix of packages with kernels.
const KERNEL: &str = "linux-image-";

/// What a guest runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// One that qemu emulates.
    Emulated,
    /// The processor of this machine, by KVM.
    Kvm,
}

impl Processor {
    /// The processor of this machine if `kvm` is set.
    pub fn new(kvm: bool) -> Self {
        if kvm { Processor::Kvm } else { Processor::Emulated }
    }
}

/// A kernel, unpacked.
pub struct Kernel {
    /// The folder that has all packages.
    pub root: PathBuf,
    /// The release of the kernel, as in the names of its folders.
    pub release: String,
}

impl Kernel {
    /// Fetches and unpacks packages below `folder`, unless they are there. `packages` names them; the first is the
    /// kernel.
    ///
    /// # Errors
    /// apt does not find or fetch a package, or the folder is not writable.
    pub fn unpack(folder: &Path, packages: impl FnOnce() -> Result<Vec<String>, String>) -> Result<Self, String> {
        let (root, list) = (folder.join("root"), folder.join("packages"));
        if !list.exists() {
            let packages = packages()?;
            let debs = folder.join("debs");
            for stale in [&root, &debs] {
                // These files are left from an earlier attempt.
                let _absent = fs::remove_dir_all(stale);
                fs::create_dir_all(stale).map_err(|error| format!("{}: {error}", stale.display()))?;
            }
            run(Command::new("apt-get").arg("download").args(&packages).current_dir(&debs))?;
            for deb in shell::files(&debs, &["deb"]) {
                run(Command::new("dpkg").arg("-x").arg(deb).arg(&root))?;
            }
            fs::write(&list, packages.join("\n")).map_err(|error| format!("{}: {error}", list.display()))?;
        }
        let packages = String::from_utf8_lossy(&shell::read(&list)?).into_owned();
        let release = packages.lines().find_map(|package| package.strip_prefix(KERNEL));
        let release = release.ok_or_else(|| format!("{}: no kernel", list.display()))?.to_owned();
        Ok(Kernel { root, release })
    }

    /// A module by its path below the folder of the kernel's modules. Some kernels have compressed ones.
    fn module(&self, path: &str) -> Result<Vec<u8>, String> {
        let plain = self.root.join(format!("lib/modules/{}/kernel/{path}", self.release));
        let compressed = plain.with_extension("ko.xz");
        if !compressed.exists() {
            return shell::read(&plain);
        }
        let output = Command::new("xz").args(["-dc"]).arg(&compressed).output();
        let output = output.map_err(|error| format!("xz: {error}: apt-get install xz-utils"))?;
        if output.status.success() { Ok(output.stdout) } else { Err(format!("xz: {}", compressed.display())) }
    }

    /// The file system of a guest without programs. It loads `modules`, given as paths below the kernel's folder.
    /// `folder` is for temporary files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn image(&self, modules: &[&str], folder: &Path) -> Result<Image, String> {
        let mut image = Image::new(&folder.join("stripped"))?;
        image.file("/init", &shell::read(Path::new("tests/guest/init"))?, 0o755);
        image.file("/bin/busybox", &shell::read(&self.root.join("bin/busybox"))?, 0o755);
        APPLETS.iter().for_each(|applet| image.link(&format!("/bin/{applet}"), "busybox"));
        let mut names = String::new();
        for module in modules {
            let name = Path::new(module).file_name().expect("it has a name").to_string_lossy().into_owned();
            image.file(&format!("/guest/modules/{name}"), &self.module(module)?, 0o644);
            names += &format!("{name}\n");
        }
        image.file("/guest/load", names.as_bytes(), 0o644);
        ["/proc", "/sys", "/dev", "/tmp", "/run"].iter().for_each(|folder| image.folder(folder));
        Ok(image)
    }

    /// Boots the kernel with an image of `memory_mb` and runs `command`, a line for its shell. The image is written to
    /// `folder`.
    ///
    /// # Errors
    /// There is no qemu, or the command fails or takes longer than `time_max`.
    pub fn boot(&self, mut image: Image, folder: &Path, command: &str, run: Run) -> Result<(), String> {
        image.file("/guest/command", format!("{command}\n").as_bytes(), 0o644);
        let file = folder.join("image.cpio");
        fs::write(&file, image.finish()).map_err(|error| format!("{}: {error}", file.display()))?;
        watch(&self.root.join(format!("boot/vmlinuz-{}", self.release)), &file, run)
    }
}

/// How a guest runs.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its processor.
    pub processor: Processor,
    /// Its memory in MB.
    pub memory_mb: u32,
    /// The longest run.
    pub time_max: Duration,
}

/// Starts qemu, prints what the guest says, and decides by its last words.
fn watch(kernel: &Path, image: &Path, run: Run) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("qemu-system-x86_64: {error}: apt-get install qemu-system-x86");
    let mut qemu = Command::new("qemu-system-x86_64");
    match run.processor {
        Processor::Emulated => qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
        Processor::Kvm => qemu.args(["-accel", "kvm", "-cpu", "host"]),
    };
    // As many processors as here, because sizes of tables, and so what was compiled, depend on it.
    qemu.args(["-smp", &shell::cores().to_string(), "-m", &run.memory_mb.to_string()]);
    qemu.args(["-nographic", "-no-reboot", "-nic", "none", "-kernel"]).arg(kernel);
    qemu.arg("-initrd").arg(image).args(["-append", "console=ttyS0 quiet panic=-1"]);
    let mut child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let console = child.stdout.take().expect("it is piped");
    let (lines, said) = channel();
    let reader = thread::spawn(move || {
        let bytes = BufReader::new(console).split(b'\n').map_while(Result::ok);
        bytes.map(|line| String::from_utf8_lossy(&line).trim_end().to_owned()).all(|line| lines.send(line).is_ok())
    });
    let (begun, mut ran_none) = (Instant::now(), false);
    let mut outcome = Err("the guest ended without a word".to_owned());
    loop {
        match said.recv_timeout(run.time_max.saturating_sub(begun.elapsed())) {
            Ok(line) => {
                println!("guest: {line}");
                match line.as_str() {
                    // A filter that no test has is a mistake.
                    none if none.starts_with("test result: ok. 0 passed") => ran_none = true,
                    "guest: passed" if ran_none => outcome = Err("no test ran in the guest".to_owned()),
                    "guest: passed" => outcome = Ok(()),
                    "guest: failed" => outcome = Err("tests failed in the guest".to_owned()),
                    _ => {}
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().map_err(failed)?;
                outcome = Err(format!("the guest has not ended within {:?}", run.time_max));
            }
        }
    }
    child.wait().map_err(failed)?;
    reader.join().map_err(|_| "the reader of the console has failed".to_owned())?;
    outcome
}

/// The packages on which a package depends.
///
/// # Errors
/// There is no apt.
pub fn dependencies(package: &str) -> Result<Vec<String>, String> {
    let output = Command::new("apt-cache").args(["depends", package]).output();
    let output = output.map_err(|error| format!("apt-cache: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned).collect())
}

/// The package of the day to which a package without content leads.
///
/// # Errors
/// apt does not know it.
pub fn of_the_day(package: &str) -> Result<String, String> {
    dependencies(package)?.into_iter().next().ok_or_else(|| format!("apt knows no {package}: apt-get update"))
}
