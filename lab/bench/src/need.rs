//! What scenarios need of the machine, and whether it has it.

use crate::live::wire;
use crate::options::Options;
use crate::process;
use rustix::process::geteuid;
use std::env;
use std::process::{Command, Stdio};
use std::thread;
use weir_engine::clang::Clang;

/// Something that a machine may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root, for network namespaces and for programs in the kernel.
    Root,
    /// So many processors.
    Processors(usize),
    Clang,
    /// The program `weir` beside this one.
    Weir,
    /// A program in `PATH`.
    Program(&'static str),
    /// A file in the directory of lists. No list is generated in its place.
    List(&'static str),
    /// DPDK's library and headers.
    Dpdk,
}

impl Need {
    /// What the machine does not have, and how to get it.
    pub fn missing(self, options: &Options) -> Option<String> {
        match self {
            Need::Root => (!geteuid().is_root()).then(|| "root; run as root".to_owned()),
            Need::Processors(count) => {
                let available = thread::available_parallelism().map_or(1, usize::from);
                (available < count).then(|| format!("{count} processors; there are {available}"))
            }
            Need::Clang => Clang::find().err().map(|error| error.to_string()),
            Need::Weir => {
                let program = process::program().ok()?;
                (!program.exists()).then(|| format!("{}; build it with `cargo build`", program.display()))
            }
            Need::Program(name) => (!is_in_path(name)).then(|| match wire::package(name) {
                Some(package) => format!("the program {name}; install it with `apt-get install {package}`"),
                None => format!("the program {name}"),
            }),
            Need::List(name) => {
                let path = options.data.join(name);
                (!path.exists()).then(|| format!("{}; set the directory of lists with --data", path.display()))
            }
            Need::Dpdk => {
                let asked = Command::new("pkg-config").args(["--exists", "libdpdk"]).stderr(Stdio::null()).status();
                let has = asked.is_ok_and(|status| status.success());
                (!has).then(|| "libdpdk; install it with `apt-get install libdpdk-dev pkg-config`".to_owned())
            }
        }
    }
}

fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn what_is_missing_is_said_with_the_way_to_get_it() {
        let options = Options::parse_from(["weir-bench", "live", "--data", "/nonexistent"]);
        assert_eq!(Need::Program("sh").missing(&options), None);
        let missing = Need::Program("no-such-program").missing(&options);
        assert_eq!(missing.as_deref(), Some("the program no-such-program"));
        let list = Need::List("country.csv").missing(&options).expect("there is no such folder");
        assert!(list.contains("/nonexistent/country.csv") && list.contains("--data"), "{list}");
        assert!(Need::Processors(1 << 20).missing(&options).is_some_and(|text| text.contains("processors")));
    }
}
