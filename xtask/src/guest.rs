//! `cargo xtask guest`: runs the tests of cards that need a driver with TC flower in a guest kernel.
//!
//! The driver is tests/guest/flowcard.c, built for Debian's kernel. It is not part of `cargo xtask ci`, because it
//! downloads and needs qemu.

use crate::shell::{self, cargo, run, target_dir};
use crate::vm::{self, Kernel, Processor, Run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Packages that depend on the kernel of the day, and on its headers.
const KERNEL: &str = "linux-image-cloud-amd64";
const HEADERS: &str = "linux-headers-cloud-amd64";
/// The package with the tools of the headers.
const BUILD: &str = "linux-kbuild-6.1";
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
/// The tests, unless others are asked for.
const TESTS: &str = "card::guest";
/// Longest run of the guest.
const TIME_MAX: Duration = Duration::from_secs(600);
/// Memory of the guest, MB.
const MEMORY_MB: u32 = 2048;

/// Boots the guest and runs the tests whose names contain `filter`.
///
/// # Errors
/// A tool or a package is missing, something cannot be built, or a test fails.
pub fn boot(filter: Option<&str>, processor: Processor) -> Result<(), String> {
    let folder = target_dir().join("guest");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let kernel = Kernel::unpack(&folder, packages)?;
    let driver = build_driver(&kernel)?;
    let test = test_binary()?;
    let program = test.ancestors().nth(2).expect("it is in target/debug/deps").join("weir");
    let policy = folder.join("p.weirb");
    // The guest has no clang, and its processor is not this one.
    let compile = ["compile", "--cpu", "x86-64-v3", "tests/guest/p.weir", "-o"];
    run(Command::new(&program).args(compile).arg(&policy))?;

    let mut image = kernel.image(&MODULES, &folder)?;
    image.file("/guest/modules/flowcard.ko", &shell::read(&driver)?, 0o644);
    for program in PROGRAMS.iter().map(Path::new).chain([program.as_path(), test.as_path()]) {
        image.program(program)?;
    }
    image.file("/guest/p.weirb", &shell::read(&policy)?, 0o644);
    let command = format!("{} --ignored --test-threads=1 {}", test.display(), filter.unwrap_or(TESTS));
    kernel.boot(image, &folder, &command, Run { processor, memory_mb: MEMORY_MB, time_max: TIME_MAX })
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

/// Builds the driver of the test card. Returns the module.
fn build_driver(kernel: &Kernel) -> Result<PathBuf, String> {
    // The headers expect to be installed.
    let sources = kernel.root.join("usr/src");
    let headers = sources.join(format!("linux-headers-{}", kernel.release));
    let makefile = headers.join("Makefile");
    let text = String::from_utf8_lossy(&shell::read(&makefile)?).into_owned();
    let here = format!("include {}", sources.display());
    fs::write(&makefile, text.replace("include /usr/src", &here))
        .map_err(|error| format!("{}: {error}", makefile.display()))?;
    let folder = kernel.root.with_file_name("driver");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for name in ["flowcard.c", "Kbuild"] {
        fs::copy(Path::new("tests/guest").join(name), folder.join(name))
            .map_err(|error| format!("tests/guest/{name}: {error}"))?;
    }
    let (headers, module) = (headers.display(), folder.display());
    run(Command::new("make").args(["--quiet", "-C", &headers.to_string()]).args([&format!("M={module}"), "modules"]))?;
    Ok(folder.join("flowcard.ko"))
}

/// The packages of the kernel of the day.
fn packages() -> Result<Vec<String>, String> {
    let (kernel, headers) = (vm::of_the_day(KERNEL)?, vm::of_the_day(HEADERS)?);
    let shared = vm::dependencies(&headers)?.into_iter().filter(|name| name.ends_with("-common"));
    let shared: Vec<String> = shared.collect();
    Ok([kernel, headers].into_iter().chain(shared).chain([BUILD, vm::BUSYBOX].map(str::to_owned)).collect())
}
