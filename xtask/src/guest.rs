//! `cargo xtask guest`: runs the tests of cards that need a driver with TC flower in a guest kernel.
//!
//! The kernel, its headers and busybox are Debian's, fetched with apt and unpacked below `target/guest`. The driver is
//! tests/guest/flowcard.c. The file system of the guest is in memory: busybox, the test binary with the program and their
//! libraries, at the paths that they have here. The guest has no disk and no network, and powers off at its end. It is
//! not part of `cargo xtask ci`, because it downloads and needs qemu.

use crate::image::Image;
use crate::shell::{self, cargo, run, target_dir};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Packages that depend on the kernel of the day, and on its headers.
const KERNEL: &str = "linux-image-cloud-amd64";
const HEADERS: &str = "linux-headers-cloud-amd64";
/// Others that are unpacked.
const MORE: [&str; 2] = ["linux-kbuild-6.1", "busybox-static"];
/// Modules of the kernel, below its folder.
const MODULES: [&str; 5] = [
    "net/sched/sch_ingress.ko",
    "net/sched/cls_flower.ko",
    "net/sched/act_gact.ko",
    "drivers/net/veth.ko",
    "drivers/net/tun.ko",
];
/// Programs of this machine that the guest has too.
const PROGRAMS: [&str; 3] = ["/usr/sbin/ip", "/usr/sbin/tc", "/usr/sbin/ethtool"];
/// Programs that are busybox.
const APPLETS: [&str; 8] = ["sh", "mount", "dmesg", "insmod", "rmmod", "poweroff", "cat", "ls"];
/// The tests, unless others are asked for.
const TESTS: &str = "card::guest";
/// Longest run of the guest.
const TIME_MAX: Duration = Duration::from_secs(600);
/// Memory of the guest, MB.
const MEMORY_MB: &str = "2048";

/// What the guest runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// One that qemu emulates.
    Emulated,
    /// That of this machine, by KVM.
    Kvm,
}

/// Boots the guest and runs the tests whose names contain `filter`.
///
/// # Errors
/// A tool or a package is missing, something cannot be built, or a test fails.
pub fn boot(filter: Option<&str>, processor: Processor) -> Result<(), String> {
    let folder = target_dir().join("guest");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let kernel = Kernel::unpack(&folder)?;
    let driver = kernel.build_driver()?;
    let test = test_binary()?;
    let program = test.ancestors().nth(2).expect("it is in target/debug/deps").join("weir");
    let policy = folder.join("p.weirb");
    // The guest has no clang, and its processor is not this one.
    let compile = ["compile", "--cpu", "x86-64-v3", "tests/guest/p.weir", "-o"];
    run(Command::new(&program).args(compile).arg(&policy))?;

    let mut image = Image::new(&folder.join("stripped"))?;
    image.file("/init", &shell::read(Path::new("tests/guest/init"))?, 0o755);
    image.file("/bin/busybox", &shell::read(&kernel.root.join("bin/busybox"))?, 0o755);
    APPLETS.iter().for_each(|applet| image.link(&format!("/bin/{applet}"), "busybox"));
    for module in MODULES.map(|module| kernel.modules.join(module)).iter().chain([&driver]) {
        let name = module.file_name().expect("it has a name").to_string_lossy();
        image.file(&format!("/guest/modules/{name}"), &shell::read(module)?, 0o644);
    }
    for program in PROGRAMS.iter().map(Path::new).chain([program.as_path(), test.as_path()]) {
        image.program(program)?;
    }
    let filter = filter.unwrap_or(TESTS);
    let command = format!("{} --ignored --test-threads=1 {filter}\n", test.display());
    image.file("/guest/command", command.as_bytes(), 0o644);
    image.file("/guest/p.weirb", &shell::read(&policy)?, 0o644);
    ["/proc", "/sys", "/dev", "/tmp", "/run"].iter().for_each(|folder| image.folder(folder));
    let file = folder.join("image.cpio");
    fs::write(&file, image.finish()).map_err(|error| format!("{}: {error}", file.display()))?;
    watch(&kernel.image, &file, processor)
}

/// Starts qemu, prints what the guest says, and decides by its last words.
fn watch(kernel: &Path, image: &Path, processor: Processor) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("qemu-system-x86_64: {error}: apt-get install qemu-system-x86");
    let mut qemu = Command::new("qemu-system-x86_64");
    match processor {
        Processor::Emulated => qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
        Processor::Kvm => qemu.args(["-accel", "kvm", "-cpu", "host"]),
    };
    qemu.args(["-smp", "2", "-m", MEMORY_MB, "-nographic", "-no-reboot", "-nic", "none", "-kernel"]).arg(kernel);
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
        match said.recv_timeout(TIME_MAX.saturating_sub(begun.elapsed())) {
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
                outcome = Err(format!("the guest has not ended within {TIME_MAX:?}"));
            }
        }
    }
    child.wait().map_err(failed)?;
    reader.join().map_err(|_| "the reader of the console has failed".to_owned())?;
    outcome
}

/// The test binary `live`, built with the program.
fn test_binary() -> Result<PathBuf, String> {
    let mut command = cargo(["test", "--package", "weir", "--features", "dpdk", "--test", "live", "--no-run"]);
    command.arg("--message-format=json").stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text.lines().rev().filter(|line| line.contains("\"name\":\"live\"")).find_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split_once('"')?.0))
    });
    path.filter(|_| output.status.success()).ok_or_else(|| "the tests cannot be built".to_owned())
}

/// A kernel with its headers, unpacked.
struct Kernel {
    root: PathBuf,
    image: PathBuf,
    modules: PathBuf,
    headers: PathBuf,
}

impl Kernel {
    /// Fetches and unpacks the packages, unless they are there.
    fn unpack(folder: &Path) -> Result<Self, String> {
        let (root, list) = (folder.join("root"), folder.join("packages"));
        if !list.exists() {
            let packages = packages()?;
            let debs = folder.join("debs");
            for stale in [&root, &debs] {
                // They are of an earlier attempt.
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
        let version = packages.lines().find_map(|package| package.strip_prefix("linux-image-"));
        let version = version.ok_or_else(|| format!("{}: no kernel", list.display()))?;
        let kernel = Kernel {
            image: root.join(format!("boot/vmlinuz-{version}")),
            modules: root.join(format!("lib/modules/{version}/kernel")),
            headers: root.join(format!("usr/src/linux-headers-{version}")),
            root,
        };
        Ok(kernel)
    }

    /// Builds the driver of the test card. Returns the module.
    fn build_driver(&self) -> Result<PathBuf, String> {
        // The headers expect to be installed.
        let makefile = self.headers.join("Makefile");
        let text = String::from_utf8_lossy(&shell::read(&makefile)?).into_owned();
        let here = format!("include {}", self.root.join("usr/src").display());
        fs::write(&makefile, text.replace("include /usr/src", &here))
            .map_err(|error| format!("{}: {error}", makefile.display()))?;
        let folder = self.root.with_file_name("driver");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for name in ["flowcard.c", "Kbuild"] {
            fs::copy(Path::new("tests/guest").join(name), folder.join(name))
                .map_err(|error| format!("tests/guest/{name}: {error}"))?;
        }
        let (headers, module) = (self.headers.display(), folder.display());
        run(Command::new("make")
            .args(["--quiet", "-C", &headers.to_string()])
            .args([&format!("M={module}"), "modules"]))?;
        Ok(folder.join("flowcard.ko"))
    }
}

/// The packages of the kernel of the day.
fn packages() -> Result<Vec<String>, String> {
    let depended = |package: &str| {
        let output = Command::new("apt-cache").args(["depends", package]).output();
        let output = output.map_err(|error| format!("apt-cache: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned);
        Ok::<Vec<String>, String>(names.collect())
    };
    let first = |package: &str| {
        depended(package)?.into_iter().next().ok_or_else(|| format!("apt knows no {package}: apt-get update"))
    };
    let (kernel, headers) = (first(KERNEL)?, first(HEADERS)?);
    let shared = depended(&headers)?.into_iter().filter(|name| name.ends_with("-common"));
    let shared: Vec<String> = shared.collect();
    Ok([kernel, headers].into_iter().chain(shared).chain(MORE.map(str::to_owned)).collect())
}
