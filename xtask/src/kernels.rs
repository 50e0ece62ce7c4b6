//! `cargo xtask kernels`: do kernels that people run take Weir's programs, and decide as the tests expect?
//!
//! The verifiers of older kernels refuse code that newer ones accept. So the tests of programs in the kernel run on
//! this machine first, which compiles everything, and then in guests with Debian's kernels. A guest has no compiler:
//! under its name it has the cache of what was compiled here (compile_once.rs), so all kernels load the same objects.
//! It is not part of `cargo xtask ci`, because it downloads and needs qemu.

use crate::binaries::{self, Binary};
use crate::ci::FEATURES;
use crate::compile_once;
use crate::shell::{self, cargo, run, target_dir};
use crate::vm::{self, Kernel, Processor, Run};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Debian's kernels: how they are called here, and the package that depends on the one of the day.
const KERNELS: [(&str, &str); 2] = [("6.1", "linux-image-cloud-amd64"), ("6.12", "linux-image-6.12-cloud-amd64")];
/// Modules that the tests need, below the folder of the kernel.
const MODULES: [&str; 2] = ["drivers/net/veth.ko", "drivers/net/tun.ko"];
/// The test binaries with their arguments.
const TESTS: [(&str, &str); 3] =
    [("features", "decide"), ("kernel", "--include-ignored"), ("buffers", "--include-ignored")];
/// Programs that tests start.
const PROGRAMS: [&str; 2] = ["/usr/sbin/ip", "/usr/sbin/ethtool"];
/// Files of the tree that tests read.
const FOLDERS: [&str; 4] = ["tests/cases", "tests/policies", "tests/kernel", "examples"];
/// The processor that the compiler targets: qemu emulates no later one.
const CPU: &str = "x86-64-v3";
/// The compiler of the guest.
const COMPILER: &str = "/guest/compiler";
/// With this variable, tests compile what only a guest's kernel may need.
const FOR_OLDER_KERNELS: &str = "WEIR_FOR_OLDER_KERNELS";
/// Longest run of a guest.
const TIME_MAX: Duration = Duration::from_secs(1800);
/// Memory of a guest, MB. One test has nine tables of 128 MB.
const MEMORY_MB: u32 = 6144;

/// Runs the tests here and on one kernel, or on all. `test` is the test binary; all if not given.
///
/// # Errors
/// There is no such kernel, a tool or a package is missing, or a test fails.
pub fn test(kernel: Option<&str>, test: Option<&str>, processor: Processor) -> Result<(), String> {
    let wanted: Vec<_> = KERNELS.into_iter().filter(|(name, _)| kernel.is_none_or(|kernel| kernel == *name)).collect();
    if wanted.is_empty() {
        return Err(format!("no such kernel: {}", KERNELS.map(|(name, _)| name).join(", ")));
    }
    let asked: Vec<_> = TESTS.into_iter().filter(|(name, _)| test.is_none_or(|test| test == *name)).collect();
    if asked.is_empty() {
        return Err(format!("no such test: {}", TESTS.map(|(name, _)| name).join(", ")));
    }
    let folder = target_dir().join("kernels");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let cache = folder.join("compile-once");
    let path = compile_once::install(&cache, Some(CPU))?;
    // As `make test` builds them.
    let mut cargo = cargo(["test", "--workspace", FEATURES, "--quiet"]);
    cargo.args(asked.iter().flat_map(|(name, _)| ["--test", name])).env("INSTA_UPDATE", "no").env("PATH", &path);
    cargo.env(FOR_OLDER_KERNELS, "1");
    let mut tests = Vec::new();
    for mut binary in binaries::list(&mut cargo, &folder.join("binaries"))? {
        let of = |(name, _): &&(&str, &str)| binary.name == format!("weir {name}");
        binary.command.arg(asked.iter().find(of).expect("it was asked for").1);
        run(&mut binary.command)?;
        tests.push(binary);
    }
    for (name, package) in wanted {
        println!("Linux {name}");
        let below = folder.join(name);
        fs::create_dir_all(&below).map_err(|error| format!("{}: {error}", below.display()))?;
        let kernel = Kernel::unpack(&below, || Ok(vec![vm::of_the_day(package)?, vm::BUSYBOX.to_owned()]))?;
        let guest = Guest { kernel: &kernel, folder: &below, cache: &cache, tests: &tests };
        guest.run(processor).map_err(|error| format!("Linux {}: {error}", kernel.release))?;
    }
    Ok(())
}

/// What a guest runs.
struct Guest<'a> {
    kernel: &'a Kernel,
    folder: &'a Path,
    cache: &'a Path,
    tests: &'a [Binary],
}

impl Guest<'_> {
    /// Boots the guest and runs the tests, one after the other.
    fn run(&self, processor: Processor) -> Result<(), String> {
        let mut image = self.kernel.image(&MODULES, self.folder)?;
        for program in PROGRAMS.iter().map(Path::new).chain(self.tests.iter().map(program)) {
            image.program(program)?;
        }
        let root = std::env::current_dir().map_err(|error| format!("this folder: {error}"))?;
        for path in FOLDERS.iter().flat_map(|folder| files(&root.join(folder))) {
            image.file(&path.to_string_lossy(), &shell::read(&path)?, 0o644);
        }
        self.add_compiler(&mut image)?;
        let commands = self.tests.iter().map(|test| command(test, self.cache));
        for test in self.tests {
            image.folder(&test.command.get_current_dir().unwrap_or(&root).to_string_lossy());
        }
        let environment = format!("export INSTA_UPDATE=no INSTA_WORKSPACE_ROOT={}", root.display());
        let line = [environment].into_iter().chain(commands).collect::<Vec<_>>().join(" && ");
        let run = Run { processor, memory_mb: MEMORY_MB, time_max: TIME_MAX };
        self.kernel.boot(image, self.folder, &line, run)
    }

    /// Adds the cache of objects under the compiler's name, and in place of the compiler what says that one is missing.
    fn add_compiler(&self, image: &mut crate::image::Image) -> Result<(), String> {
        for path in files(self.cache) {
            if path.file_name() == Some(OsStr::new(compile_once::REAL)) {
                image.file(&path.to_string_lossy(), COMPILER.as_bytes(), 0o644);
            } else if path.extension().is_some() {
                image.file(&path.to_string_lossy(), &shell::read(&path)?, 0o644);
            }
        }
        image.program(&self.cache.join(compile_once::COMPILER))?;
        let version = Command::new(compile_once::COMPILER).arg("--version").output();
        let version = version.map_err(|error| format!("{}: {error}", compile_once::COMPILER))?;
        let version = String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or_default().to_owned();
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' && exit\necho \"was not compiled before: $*\" >&2\nexit 1\n"
        );
        image.file(COMPILER, script.as_bytes(), 0o755);
        Ok(())
    }
}

/// The test binary.
fn program(test: &Binary) -> &Path {
    Path::new(test.command.get_program())
}

/// The line for the guest's shell that runs a test as cargo would, with the cache in front of its PATH.
fn command(test: &Binary, cache: &Path) -> String {
    let folder = test.command.get_current_dir().map(|folder| format!("cd {} && ", folder.display()));
    let args: Vec<_> = test.command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let (folder, cache, program) = (folder.unwrap_or_default(), cache.display(), program(test).display());
    format!("{folder}PATH={cache}:$PATH {program} --test-threads=1 {}", args.join(" "))
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            below if below.is_dir() => found.extend(files(&below)),
            file => found.push(file),
        }
    }
    found.sort();
    found
}
