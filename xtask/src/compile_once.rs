//! A cache of compiled C, because the tests compile the same policies repeatedly.
//!
//! `cargo xtask ci` copies this program to a folder under the name of the compiler, and puts the folder first in PATH.
//! Under that name, the program returns the cached object for the same arguments and texts, if there is one. The folder
//! is emptied when CI starts, so every run compiles everything that it tests.
//!
//! The same policy under another name, or with its rules on other lines, is the same code: the name of the source and
//! comments are not part of the input. An object may therefore have the debug information of another policy's file.
//!
//! An entry consists of two files: the input, which is compared byte for byte, and the object. A failure has the
//! compiler's messages in place of the object: a chain may be too long for one program, and is then compiled in parts.
//! Compilations with warnings are not cached. The answer about the version of the compiler is cached too. A lock for
//! each entry keeps two processes from compiling the same input at once. [`Calls`] sums up what the cache did.

use crate::precompiled;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

/// The compiler that the tests use.
pub const COMPILER: &str = "clang-19";
/// The file that contains the path of the real compiler.
pub const REAL: &str = "real-compiler";
/// The file with what the compiler prints for [`ASK_VERSION`].
const VERSION: &str = "version";
/// Extensions of an entry's files.
const INPUT: &str = "input";
const OBJECT: &str = "object";
const FAILURE: &str = "failure";
/// The file with a line for each call: see [`Calls`].
const CALLS: &str = "calls";
/// The only argument of a program that looks for a compiler.
const ASK_VERSION: &str = "--version";
/// The file that contains the processor to compile for instead of this one.
const CPU: &str = "processor";
/// Starts a program that the kernel ends with the one that has started it.
const SETPRIV: &str = "/usr/bin/setpriv";
/// Starts a program only if its parent has the number that comes first. A parent that ends before `setpriv` asks the
/// kernel would leave the program running.
const IF_STARTED_BY: &str = r#"test "$PPID" = "$0" && exec "$@""#;
/// What compiles for this processor.
const NATIVE: &str = "-march=native";
/// The choice of kernels with AVX-512, which Weir makes on each processor (crates/engine/src/kernels.rs), and the choice
/// of a processor without.
const CHOICE: &str = "-DWEIR_KERNELS=";
const CHOICE_WITHOUT: [&str; 2] = ["-DWEIR_KERNELS=0", "-mno-avx512f"];

/// Fills `folder` with a program that replaces the compiler. Returns the PATH that finds it. If `cpu` is given, what
/// asks for code for this processor gets code for that one.
///
/// # Errors
/// There is no compiler, or the folder is not writable.
pub fn install(folder: &Path, cpu: Option<&str>) -> Result<OsString, String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let real = folders.iter().map(|folder| folder.join(COMPILER)).find(|path| path.is_file());
    let real = real.ok_or_else(|| format!("{COMPILER} is not installed: make install-test-deps"))?;
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    let version = Command::new(&real).arg(ASK_VERSION).output().map_err(failed)?;
    fs::write(folder.join(VERSION), version.stdout).map_err(failed)?;
    fs::write(folder.join(REAL), real.as_os_str().as_encoded_bytes()).map_err(failed)?;
    fs::copy(std::env::current_exe().map_err(failed)?, folder.join(COMPILER)).map_err(failed)?;
    cpu.map_or(Ok(()), |cpu| fs::write(folder.join(CPU), cpu)).map_err(failed)?;
    std::env::join_paths(std::iter::once(folder).chain(folders)).map_err(|error| error.to_string())
}

/// Compiles, if this program was called under the compiler's name.
pub fn called_as_compiler() -> Option<ExitCode> {
    let program = std::env::current_exe().ok()?;
    if program.file_name()? != COMPILER {
        return None;
    }
    let folder = program.parent()?;
    let outcome = fs::read_to_string(folder.join(REAL)).and_then(|real| compile(folder, Path::new(&real)));
    Some(outcome.unwrap_or_else(|error| {
        eprintln!("{}: {error}", program.display());
        ExitCode::FAILURE
    }))
}

/// The arguments with which a processor without AVX-512 compiles.
fn without_choice(args: Vec<OsString>) -> Vec<OsString> {
    let plain = |arg: OsString| match arg.to_str() {
        Some(text) if text.starts_with(CHOICE) => CHOICE_WITHOUT.map(OsString::from).to_vec(),
        Some(text) if text == CHOICE_WITHOUT[1] => vec![],
        _ => vec![arg],
    };
    args.into_iter().flat_map(plain).collect()
}

/// Returns the object of an entry, or compiles it.
fn compile(cache: &Path, real: &Path) -> io::Result<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.len() == 1
        && args[0] == ASK_VERSION
        && let Ok(version) = fs::read(cache.join(VERSION))
    {
        io::stdout().write_all(&version)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cpu = fs::read_to_string(cache.join(CPU)).ok();
    let args = if cpu.is_some() { without_choice(args) } else { args };
    let real_arg = |arg: &OsString| match &cpu {
        Some(cpu) if arg == NATIVE => format!("-march={cpu}").into(),
        _ => arg.clone(),
    };
    let real_args: Vec<OsString> = args.iter().map(real_arg).collect();
    let mut command = Command::new(real);
    command.args(&real_args);
    let Some(job) = Job::of(&args)? else { return Err(command.exec()) };
    let entry = cache.join(format!("{:016x}", job.hash()));
    let start = Instant::now();
    let mut code = known(&entry, &job)?;
    let mut _locked = None;
    if code.is_none() {
        // Another process may compile the same input now.
        _locked = lock(&entry);
        code = known(&entry, &job)?;
    }
    if let Some(code) = code {
        note(cache, Call::Found, start);
        return Ok(code);
    }
    command.args(precompiled::options(real, cache, &real_args, &job.input)?);
    // The process that starts a compiler may be killed, and this program with it. The compiler must then end too.
    // Guests have no `setpriv`, nor a compiler.
    if Path::new(SETPRIV).exists() {
        let this = std::process::id().to_string();
        let prefix = [SETPRIV, "--pdeathsig", "KILL", "sh", "-c", IF_STARTED_BY, &this];
        command = crate::shell::started_by(prefix, &command);
    }
    let output = command.output()?;
    io::stdout().write_all(&output.stdout)?;
    io::stderr().write_all(&output.stderr)?;
    keep_outcome(&entry, &job, &output);
    note(cache, Call::Compiled, start);
    // A compiler that a signal terminated has no exit code.
    Ok(ExitCode::from(output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Waits until no other process compiles the entry. A user without write permission compiles without a lock.
fn lock(entry: &Path) -> Option<File> {
    let file = File::create(entry.with_extension("lock")).ok()?;
    file.lock().ok()?;
    Some(file)
}

/// Copies the object of an entry, or repeats what the compiler said. None if there is no such entry.
fn known(entry: &Path, job: &Job) -> io::Result<Option<ExitCode>> {
    if !fs::read(entry.with_extension(INPUT)).is_ok_and(|known| known == job.input) {
        return Ok(None);
    }
    if fs::copy(entry.with_extension(OBJECT), &job.output).is_ok() {
        return Ok(Some(ExitCode::SUCCESS));
    }
    let Ok(said) = fs::read(entry.with_extension(FAILURE)) else { return Ok(None) };
    io::stderr().write_all(&said)?;
    Ok(Some(ExitCode::FAILURE))
}

/// Makes an entry. The input is written last, so that an entry with an input is complete. A user without write
/// permission compiles without a cache.
fn keep_outcome(entry: &Path, job: &Job, output: &Output) {
    let [input, object, failure] = [INPUT, OBJECT, FAILURE].map(|extension| entry.with_extension(extension));
    let _unkept = match output.status.code() {
        Some(0) if output.stderr.is_empty() => {
            fs::read(&job.output).and_then(|bytes| keep(&bytes, &object)).and_then(|()| keep(&job.input, &input))
        }
        Some(1) => keep(&output.stderr, &failure).and_then(|()| keep(&job.input, &input)),
        _ => Ok(()),
    };
}

/// Writes a file atomically, because other processes read it.
fn keep(bytes: &[u8], path: &Path) -> io::Result<()> {
    let unfinished = path.with_extension(std::process::id().to_string());
    fs::write(&unfinished, bytes)?;
    fs::rename(&unfinished, path)
}

/// A compilation of one source to a file in the same folder.
struct Job {
    /// Arguments and text, without the name of the temporary folder.
    input: Vec<u8>,
    output: PathBuf,
}

impl Job {
    /// `None` if the arguments do not compile generated code, which is one file: its headers are in it.
    fn of(args: &[OsString]) -> io::Result<Option<Self>> {
        let after = |option: &str| args.windows(2).find(|pair| pair[0] == option).map(|pair| PathBuf::from(&pair[1]));
        let (Some(output), Some(source)) = (after("-o"), args.first().map(PathBuf::from)) else { return Ok(None) };
        let (Some(folder), false) = (output.parent().and_then(Path::to_str), args.iter().any(|arg| arg == "-I")) else {
            return Ok(None);
        };
        if output.parent() != source.parent() {
            return Ok(None);
        }
        let mut input = Vec::new();
        for arg in args.iter().skip(1) {
            let arg = arg.to_string_lossy().replace(folder, ".");
            input.extend_from_slice(arg.as_bytes());
            input.push(0);
        }
        input.extend(source_text(&source)?);
        Ok(Some(Job { input, output }))
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.input);
        hasher.finish()
    }
}

/// The part of a source on which the outcome depends: C without comments, or the whole object to be linked.
fn source_text(path: &Path) -> io::Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "c") {
        return Ok(without_comments(&fs::read_to_string(path)?).into_bytes());
    }
    fs::read(path)
}

/// What begins a line that names the file and the line of the text behind it.
const LINE_MARKER: &str = "# ";

/// C with a space in place of each comment, and without empty lines and line markers. No C that is compiled here has a comment mark in a
/// string, in a comment of one line or behind a line that continues.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        code.push(' ');
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let lines = code.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with(LINE_MARKER));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// What became of a call.
#[derive(Clone, Copy)]
enum Call {
    Found,
    Compiled,
}

/// Adds a line to [`CALLS`]: what became of a call, and how many milliseconds it took. One write appends it, so lines
/// of several processes do not mix.
fn note(cache: &Path, call: Call, start: Instant) {
    let word = match call {
        Call::Found => "found",
        Call::Compiled => "compiled",
    };
    let line = format!("{word} {}\n", start.elapsed().as_millis());
    let file = File::options().append(true).create(true).open(cache.join(CALLS));
    let _unwritten = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

/// How often the compiler was called, and how long calls took together.
#[derive(Default)]
pub struct Calls {
    found: (u32, Duration),
    compiled: (u32, Duration),
}

impl Calls {
    /// The calls of all programs that used the cache in a folder.
    pub fn of(folder: &Path) -> Self {
        let mut calls = Calls::default();
        for line in fs::read_to_string(folder.join(CALLS)).unwrap_or_default().lines() {
            let Some((word, millis)) = line.split_once(' ') else { continue };
            let (count, took) = if word == "found" { &mut calls.found } else { &mut calls.compiled };
            *count += 1;
            *took += Duration::from_millis(millis.parse().unwrap_or(0));
        }
        calls
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((found, waited), (compiled, took)) = (self.found, self.compiled);
        let [waited, took] = [waited, took].map(|time| time.as_secs());
        write!(f, "{compiled} compilations in {took} s, {found} calls answered by the cache in {waited} s")
    }
}

#[cfg(test)]
mod tests {
    use super::{Job, without_choice, without_comments};
    use std::ffi::OsString;
    use std::path::Path;

    #[test]
    fn processors_with_and_without_avx512_ask_for_the_same_code() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        let without = words("a.c -march=native -DWEIR_KERNELS=0 -mno-avx512f -c");
        for asked in ["-DWEIR_KERNELS=0 -mno-avx512f", "-DWEIR_KERNELS=2 -mno-avx512f", "-DWEIR_KERNELS=7"] {
            assert_eq!(without_choice(words(&format!("a.c -march=native {asked} -c"))), without, "{asked}");
        }
    }

    fn job(folder: &Path, source: &str, level: &str) -> Job {
        std::fs::create_dir_all(folder).expect("the folder can be made");
        std::fs::write(folder.join("a.c"), source).expect("the folder can be written to");
        let line = format!("{0}/a.c {level} -ffile-prefix-map={0}=. -o {0}/object", folder.display());
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Job::of(&args).expect("the files are there").expect("it is a job")
    }

    #[test]
    fn the_same_text_is_the_same_job_in_any_folder() {
        let folder = std::env::temp_dir().join(format!("xtask-compile-once-{}", std::process::id()));
        let [one, two] = ["one", "two"].map(|name| job(&folder.join(name), "int a;", "-O3"));
        assert!(one.input == two.input && one.output != two.output);
        let other_lines = "# 7 \"a.c\"\n/* edge.weir:3:\n * accept */ \nint a;";
        assert!(job(&folder.join("one"), other_lines, "-O3").input == two.input);
        assert!(job(&folder.join("one"), "int b;", "-O3").input != two.input);
        assert!(job(&folder.join("one"), "int a;", "-O2").input != two.input);
        let version = ["--version"].map(OsString::from);
        assert!(Job::of(&version).expect("nothing is read").is_none());
        std::fs::remove_dir_all(folder).expect("it was made above");
    }

    #[test]
    fn comments_and_empty_lines_are_left_out() {
        let text = "/* a\n * b */\n#define A 1\n\nint a; /* c */\n\t/* d */ int b;\n";
        assert_eq!(without_comments(text), "#define A 1\nint a;\n\t  int b;\n");
    }
}
