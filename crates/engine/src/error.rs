//! What can go wrong outside: files, compilers, kernels.

use std::io;
use std::path::PathBuf;

use crate::capture::CaptureFault;
use crate::descriptors;

/// Everything that the engines report, each naming its object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A file could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A capture is damaged or of a kind that Weir does not read. All whole packets before have been delivered.
    #[error("{}: packet {packet} at byte {offset}: {fault}", path.display())]
    Capture {
        /// The capture.
        path: PathBuf,
        /// Number of the packet that could not be read, from 1.
        packet: u64,
        /// Where its record starts.
        offset: u64,
        /// What is wrong.
        fault: CaptureFault,
    },
    /// A file that is no bundle, or a damaged one.
    #[error("{}: {problem}", path.display())]
    Bundle {
        /// The bundle.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A bundle whose code somebody else may have written.
    #[error(
        "{}: its code is not run: {why}; have the bundle signed (`weir compile --sign KEY`, then `--trust KEY`), \
         or let only root and who runs weir write it", path.display()
    )]
    Untrusted {
        /// The bundle.
        path: PathBuf,
        /// Who may have written it.
        why: String,
    },
    /// A file that is no key, or not the one expected.
    #[error("{}: {problem}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Code or a bundle made for another version of the shared memory layouts.
    #[error("{object}: compiled for abi version {found}, this weir has {expected}; compile the policy again")]
    AbiVersion {
        /// Bundle or code.
        object: String,
        /// Its version.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// Native code compiled for another processor.
    #[error("{object}: compiled for a processor with {missing}, which this one lacks; compile with --cpu x86-64-v3")]
    Cpu {
        /// Bundle or code.
        object: String,
        /// The instruction sets that are missing.
        missing: String,
    },
    /// Limiters cannot have their buckets.
    #[error("{count} buckets: {problem}")]
    Buckets {
        /// How many there are, or were to be.
        count: usize,
        /// What is wrong.
        problem: String,
    },
    /// Something failed because this process may not have more files open. The error that says what failed.
    #[error(transparent)]
    NoDescriptors(Box<EngineError>),
    /// A table's image cannot be used.
    #[error("table {table}: {problem}")]
    Image {
        /// The table.
        table: String,
        /// What is wrong.
        problem: String,
    },
    /// An interface could not be opened, read from or written to.
    #[error("interface {interface}: {source}")]
    Interface {
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
    /// Another XDP program is attached where one of Weir's shall be.
    #[error(
        "interface {interface}: the XDP program {program} ({name}) is attached there, which is not Weir's to remove; \
         `ip link set dev {interface} {mode} off` detaches it"
    )]
    ForeignXdp {
        /// The interface.
        interface: String,
        /// Its number in the kernel.
        program: u32,
        /// Its name there; empty if it has none, or there is no right to ask.
        name: String,
        /// Where it runs, as ip-link(8) calls it.
        mode: &'static str,
    },
    /// DPDK does not start, or has no memory.
    #[error("dpdk: {problem}")]
    Dpdk {
        /// What is wrong.
        problem: String,
    },
    /// A worker's thread could not be started.
    #[error("worker {number}: {source}")]
    Worker {
        /// The worker, from 0.
        number: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A worker has failed, which it says itself when it is joined.
    #[error("worker {number} has ended")]
    WorkerEnded {
        /// The worker, from 0.
        number: usize,
    },
    /// The datapath is being stopped.
    #[error("weir is about to end")]
    Stopping,
    /// A worker does not change to another policy, or does not end: it hangs, or it gets no core.
    #[error("worker {number} does not answer")]
    WorkerStuck {
        /// The worker, from 0.
        number: usize,
    },
    /// There is no compiler.
    #[error("clang not found (tried {tried}): install it with `apt-get install clang-19`, or set WEIR_CLANG")]
    NoClang {
        /// The programs looked for.
        tried: String,
    },
    /// The compiler in WEIR_CLANG does not work.
    #[error("WEIR_CLANG={}: {problem}", program.display())]
    BadClang {
        /// The program named.
        program: PathBuf,
        /// What happened.
        problem: String,
    },
    /// clang refused what our compiler wrote.
    #[error("compiler bug: clang refuses generated code, kept as {}\n{stderr}", file.display())]
    Refused {
        /// The generated file.
        file: PathBuf,
        /// What clang said.
        stderr: String,
    },
    /// Native code could not be loaded.
    #[error("native code of {object}: {problem}")]
    Native {
        /// The artifact.
        object: String,
        /// What is wrong.
        problem: String,
    },
    /// The kernel gives no right to load BPF programs.
    #[error("xdp: not permitted to load BPF programs: run as root or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")]
    NotPermitted,
    /// The kernel's verifier refused a program.
    #[error("compiler bug: the kernel's verifier refuses {object}:\n{log}")]
    Verifier {
        /// The artifact.
        object: String,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// The policy is right, but too large for the kernel.
    #[error(
        "{object}: too large for the kernel: {limit}; have fewer rules or tables, or put the addresses of large sets into tables"
    )]
    TooLarge {
        /// The artifact.
        object: String,
        /// Which of the kernel's limits.
        limit: &'static str,
    },
    /// BPF object, map or call that failed.
    #[error("xdp: {object}: {problem}")]
    Xdp {
        /// Program, map or object.
        object: String,
        /// What is wrong.
        problem: String,
    },
}

impl EngineError {
    /// Whether something failed because this process may not have more files open.
    pub fn is_for_want_of_descriptors(&self) -> bool {
        match self {
            EngineError::NoDescriptors(_) => true,
            EngineError::Io { source, .. } | EngineError::Interface { source, .. } => descriptors::were_wanting(source),
            _ => false,
        }
    }

    /// The same error with its cause, which it has only as text.
    pub(crate) fn caused_by(self, cause: &io::Error) -> Self {
        if descriptors::were_wanting(cause) { EngineError::NoDescriptors(Box::new(self)) } else { self }
    }

    /// As [`EngineError::caused_by`], for the call of libbpf that has just failed on this thread.
    pub(crate) fn caused_by_libbpf(self, cause: &libbpf_rs::Error) -> Self {
        match descriptors::were_wanting_to_libbpf(cause) {
            true => EngineError::NoDescriptors(Box::new(self)),
            false => self,
        }
    }
}
