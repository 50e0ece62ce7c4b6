//! `cargo xtask container` (`make image`): a container image in the OCI layout, made of Debian's packages and the
//! package of `make deb`, without a container daemon.

use crate::deb;
use crate::debian::{Root, remove};
use crate::shell::{run, target_dir};
use std::fs;
use std::process::Command;

/// Compiles policies in text.
const COMPILER: &str = "clang-19";
/// What the entry point does unless it gets other arguments.
const COMMAND: &str = "run --config /etc/weir/weir.toml --control /run/weir/weir.sock --state /var/lib/weir/weir \
                       --keep-confirmed";

/// Builds `target/image/oci`, with the tag `weir`. Without the compiler, it runs bundles only.
///
/// # Errors
/// A tool or a package is missing.
pub fn build(mirror: Option<&str>, with_compiler: bool) -> Result<(), String> {
    let folder = target_dir().join("image");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let root = Root::new(&folder, "ca-certificates", mirror)?;
    let package = deb::built("weir")?;
    fs::copy(&package, root.path("/root/weir.deb")).map_err(|error| format!("{}: {error}", package.display()))?;
    let compiler = if with_compiler { COMPILER } else { "" };
    root.run(&format!("apt-get -qq install -y --no-install-recommends /root/weir.deb {compiler} >/dev/null 2>&1"))?;
    root.run("weir --version && mkdir -m 700 -p /var/lib/weir /run/weir")?;
    root.run("rm -rf /root/weir.deb /var/lib/apt/lists/* /var/cache/apt /var/log/* /etc/apt/apt.conf.d/90trial")?;
    root.run("rm -f /etc/resolv.conf /etc/hostname /etc/dpkg/dpkg.cfg.d/trial; : >/etc/machine-id")?;
    let oci = folder.join("oci");
    remove(&oci)?;
    let image = format!("{}:weir", oci.display());
    run(Command::new("umoci").args(["init", "--layout"]).arg(&oci))?;
    run(Command::new("umoci").args(["new", "--image", &image]))?;
    run(Command::new("umoci").args(["insert", "--image", &image]).arg(root.path("/")).arg("/"))?;
    let mut config = Command::new("umoci");
    config.args([
        "config",
        "--image",
        &image,
        "--config.entrypoint",
        "/usr/bin/weir",
        "--config.stopsignal",
        "SIGTERM",
    ]);
    config.args(["--config.volume", "/etc/weir", "--config.volume", "/var/lib/weir"]);
    COMMAND.split_whitespace().for_each(|word| _ = config.args(["--config.cmd", word]));
    run(&mut config)?;
    run(Command::new("umoci").args(["gc", "--layout"]).arg(&oci))?;
    run(Command::new("skopeo").arg("inspect").arg(format!("oci:{image}")))?;
    let bytes: u64 = fs::read_dir(oci.join("blobs/sha256"))
        .map_err(|error| format!("{}: {error}", oci.display()))?
        .flatten()
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum();
    println!("image: {}, {:.0} MB", oci.display(), bytes as f64 / 1e6);
    Ok(())
}
