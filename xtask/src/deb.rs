//! Builds the Debian packages `weir` and `weir-dpdk` with cargo-deb, into `target/debian`. What is in them, and who
//! maintains them, is said in `crates/weir/Cargo.toml`. If lintian is installed, it judges them, and any tag is an error.

use crate::shell::{self, cargo, run, target_dir};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of cargo-deb. Another one may understand `package.metadata.deb` differently.
const CARGO_DEB: &str = "3.8.0";
/// A package is smaller than this.
const BYTES_MAX: u64 = 15_000_000;
/// The shells, and where their completions are.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "weir"), ("zsh", "_weir"), ("fish", "weir.fish")];

/// Builds both packages; `weir-dpdk` only if DPDK is installed, because the program links it.
pub fn build() -> Result<(), String> {
    let tool = cargo_deb()?;
    let folder = target_dir().join("debian");
    let _ = fs::remove_dir_all(&folder);
    documents()?;
    package(&tool, None)?;
    let has_dpdk = Command::new("pkg-config").args(["--exists", "libdpdk"]).status().is_ok_and(|found| found.success());
    match has_dpdk {
        true => package(&tool, Some("dpdk"))?,
        false => println!("deb: weir-dpdk is not built, because libdpdk-dev is not installed"),
    }
    shell::files(&folder, &["deb"]).iter().try_for_each(|package| judge(package))
}

/// The package with this name that [`build`] has built.
///
/// # Errors
/// There is none.
pub fn built(name: &str) -> Result<PathBuf, String> {
    let begin = format!("{name}_");
    let found = shell::files(&target_dir().join("debian"), &["deb"]).into_iter();
    let mut found =
        found.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin)));
    found.next().ok_or_else(|| format!("target/debian has no package {name}: make deb"))
}

/// The program cargo-deb. It is installed below `target` if that was not done yet.
fn cargo_deb() -> Result<PathBuf, String> {
    let root = target_dir().join("cargo-deb");
    let program = root.join("bin/cargo-deb");
    let version = Command::new(&program).arg("--version").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(CARGO_DEB)) {
        println!("deb: installing cargo-deb {CARGO_DEB} into {}", root.display());
        let mut install = cargo(["install", "cargo-deb", "--locked", "--quiet", "--version", CARGO_DEB, "--root"]);
        run(install.arg(&root))?;
    }
    Ok(program)
}

/// Builds the program, and lets it write manual pages and completions. Writes the changelog with its maintainer.
fn documents() -> Result<(), String> {
    run(&mut cargo(["build", "--quiet", "--release", "--package", "weir"]))?;
    let program = target_dir().join("release/weir");
    let folder = target_dir().join("debian-documents");
    let _ = fs::remove_dir_all(&folder);
    run(Command::new(&program).arg("man").arg(folder.join("man")))?;
    let write = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))
    };
    write("weir-dpdk.1", b".so man1/weir.1\n")?;
    let changelog = String::from_utf8_lossy(&shell::read(Path::new("packaging/debian/changelog"))?).into_owned();
    write("changelog", changelog.replace("MAINTAINER", &maintainer()?).as_bytes())?;
    for (shell, file) in COMPLETIONS {
        let output = Command::new(&program).args(["completions", shell]).output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("weir completions {shell}: {}", output.status));
        }
        let to = folder.join(shell);
        fs::create_dir_all(&to).map_err(|error| format!("{}: {error}", to.display()))?;
        write(&format!("{shell}/{file}"), &output.stdout)?;
    }
    Ok(())
}

/// Name and address of the maintainer, from the manifest.
fn maintainer() -> Result<String, String> {
    let manifest = String::from_utf8_lossy(&shell::read(Path::new("crates/weir/Cargo.toml"))?).into_owned();
    let line = manifest.lines().find_map(|line| line.strip_prefix("maintainer = \"")?.strip_suffix('"'));
    line.map(str::to_owned).ok_or_else(|| "crates/weir/Cargo.toml: no maintainer".to_owned())
}

fn package(tool: &Path, variant: Option<&str>) -> Result<(), String> {
    let mut command = Command::new(absolute(tool)?);
    // Paths in the manifest begin at its folder.
    command.current_dir("crates/weir").args(["--profile", "release", "--quiet", "--output"]);
    command.arg(absolute(&target_dir())?.join("debian/"));
    if let Some(variant) = variant {
        command.args(["--variant", variant]);
    }
    run(&mut command)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Says how large a package is, and lets lintian judge it.
fn judge(package: &Path) -> Result<(), String> {
    let bytes = fs::metadata(package).map_err(|error| format!("{}: {error}", package.display()))?.len();
    println!("deb: {}, {:.1} MB", package.display(), bytes as f64 / 1e6);
    if bytes > BYTES_MAX {
        return Err(format!("{} is larger than {} MB", package.display(), BYTES_MAX / 1_000_000));
    }
    if Command::new("lintian").arg("--version").output().is_err() {
        println!("deb: lintian is not installed, so nobody judged the package");
        return Ok(());
    }
    run(Command::new("lintian").args(["--fail-on", "error,warning", "--allow-root"]).arg(package))
}
