//! Project tasks. `cargo xtask ci` runs exactly the steps of CI and of `make test`.
//!
//! It only starts other programs and counts their results. The rules for the code base are tests (`tests/house.rs`), so
//! that plain `cargo test` checks them.
#![forbid(unsafe_code)]

mod binaries;
mod ci;
mod compile_once;
mod container;
mod deb;
mod debian;
mod fuzz;
mod guest;
mod image;
mod kernels;
mod package_trial;
mod precompiled;
mod shell;
mod synth;
mod tally;
mod times;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use vm::Processor;

/// Weir's project tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all checks of CI: formatting, lints, tests, and the fuzz targets in C for a limited time.
    Ci,
    /// Fuzz one target, or all of them. Crashing inputs are written to fuzz/corpus/<target>.
    Fuzz {
        /// Seconds for each target.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// The target; all if not given.
        target: Option<String>,
    },
    /// Synthesize the card in hw/rtl, and print its cells and the longest path. Needs yosys.
    Synth {
        /// The part; all if not given.
        part: Option<String>,
    },
    /// Boot a kernel with TC flower and a driver with a table in qemu, and run the tests of cards there. Needs apt and
    /// qemu.
    Guest {
        /// Use the processor of this machine, by KVM.
        #[arg(long)]
        kvm: bool,
        /// Run the tests whose names contain this.
        filter: Option<String>,
    },
    /// Run the tests of programs in the kernel on Debian's kernels, in qemu. Needs apt and qemu.
    Kernels {
        /// Use the processor of this machine, by KVM.
        #[arg(long)]
        kvm: bool,
        /// The test binary; all if not given.
        #[arg(long)]
        test: Option<String>,
        /// The kernel, such as 6.1; all if not given.
        kernel: Option<String>,
    },
    /// Build the Debian packages into target/debian, with cargo-deb. Judges them with lintian if it is installed.
    Deb,
    /// Build a container image of the package of `make deb` into target/image/oci. Needs root, debootstrap,
    /// systemd-nspawn, umoci and skopeo.
    Container {
        /// An address of Debian's archive; that of this machine's apt if not given.
        #[arg(long)]
        mirror: Option<String>,
        /// Leave out clang: the image runs bundles only.
        #[arg(long)]
        no_compiler: bool,
    },
    /// Install the packages of `make deb` on a bare Debian 12 that is booted in a container, and go through their life.
    /// Needs root, debootstrap and systemd-nspawn.
    PackageTrial {
        /// An address of Debian's archive; that of this machine's apt if not given.
        #[arg(long)]
        mirror: Option<String>,
        #[command(subcommand)]
        part: Option<TrialPart>,
    },
    /// Overwrite the snapshots with the current output of the tests. Review them with `git diff`, like code.
    Bless,
}

/// Processes of a trial.
#[derive(Subcommand)]
enum TrialPart {
    /// One end of the traffic.
    #[command(hide = true)]
    Packets {
        #[command(subcommand)]
        end: package_trial::Packets,
    },
}

fn main() -> ExitCode {
    if let Some(code) = compile_once::called_as_compiler().or_else(binaries::called_as_runner) {
        return code;
    }
    shell::enter_root();
    let result = match Cli::parse().task {
        Task::Ci => ci::run(),
        Task::Fuzz { seconds, target } => fuzz::run(target.as_deref(), seconds),
        Task::Synth { part } => synth::synthesize_parts(part.as_deref()),
        Task::Guest { kvm, filter } => guest::boot(filter.as_deref(), Processor::new(kvm)),
        Task::Kernels { kvm, test, kernel } => kernels::test(kernel.as_deref(), test.as_deref(), Processor::new(kvm)),
        Task::Deb => deb::build(),
        Task::Container { mirror, no_compiler } => container::build(mirror.as_deref(), !no_compiler),
        Task::PackageTrial { part: Some(TrialPart::Packets { end }), .. } => end.run(),
        Task::PackageTrial { mirror, part: None } => package_trial::run_all(mirror.as_deref()),
        Task::Bless => ci::bless(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
