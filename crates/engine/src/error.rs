//! Errors of the environment: files, compilers, kernels, interfaces.

use std::io;
use std::path::PathBuf;

use crate::capture::CaptureFault;
use crate::descriptors;

/// The errors of this crate. Each names its object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A file could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The error of the system call.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A capture is damaged or has an unsupported format. All packets before it were delivered.
    #[error("{}: packet {packet} at byte {offset}: {fault}", path.display())]
    Capture {
        /// The capture.
        path: PathBuf,
        /// Number of the unreadable packet, from 1.
        packet: u64,
        /// File offset of its record, in bytes.
        offset: u64,
        /// The fault.
        fault: CaptureFault,
    },
    /// A file is not a bundle, or is damaged.
    #[error("{}: {problem}", path.display())]
    Bundle {
        /// The bundle.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Users who are not trusted may have written the code of a bundle.
    #[error(
        "{}: its code is not run: {why}; sign the bundle (`weir compile --sign KEY`, then `--trust KEY`), \
         or let only root and the user who runs weir write it", path.display()
    )]
    Untrusted {
        /// The bundle.
        path: PathBuf,
        /// Who may have written it, and why.
        why: String,
    },
    /// A file is not a key, or not the expected kind of key.
    #[error("{}: {problem}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Code or a bundle was compiled for another version of the ABI.
    #[error("{object}: compiled for abi version {found}, this weir has {expected}; compile the policy again")]
    AbiVersion {
        /// The bundle or code.
        object: String,
        /// Its version.
        found: u32,
        /// The version of this program.
        expected: u32,
    },
    /// Native code was compiled for another processor.
    #[error("{object}: compiled for a processor with {missing}, which this one lacks; compile with --cpu x86-64-v3")]
    Cpu {
        /// The bundle or code.
        object: String,
        /// The missing instruction sets.
        missing: String,
    },
    /// Something failed because this process may not have more files open. The error that says what failed.
    #[error(transparent)]
    NoDescriptors(Box<EngineError>),
    /// A table's image cannot be used.
    #[error("table {table}: {problem}")]
    Image {
        /// The table.
        table: String,
        /// The problem.
        problem: String,
    },
    /// Opening an interface, or input or output on it, failed.
    #[error("interface {interface}: {source}")]
    Interface {
        /// The interface.
        interface: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// Another XDP program is attached where one of Weir's is to be attached.
    #[error(
        "interface {interface}: the XDP program {program} ({name}) is attached there, which is not Weir's to remove; \
         `ip link set dev {interface} {mode} off` detaches it"
    )]
    ForeignXdp {
        /// The interface.
        interface: String,
        /// The program's id in the kernel.
        program: u32,
        /// The program's name in the kernel. It is empty if the program has none or the process may not read it.
        name: String,
        /// The attach mode, as in ip-link(8).
        mode: &'static str,
    },
    /// A policy is to run as P4, and this program has no DPDK.
    #[error("the engine p4 needs a weir that was built with DPDK (`cargo build --release --features dpdk`)")]
    NoP4,
    /// A bundle is to run as P4.
    #[error("{object}: a bundle has no code for the engine p4; name its policy instead")]
    NoP4InBundle {
        /// The policy.
        object: String,
    },
    /// DPDK cannot start, or has no memory.
    #[error("dpdk: {problem}")]
    Dpdk {
        /// The problem.
        problem: String,
    },
    /// A worker's thread could not be started.
    #[error("worker {number}: {source}")]
    Worker {
        /// The worker, from 0.
        number: usize,
        /// The error of the system call.
        source: io::Error,
    },
    /// A worker failed. Joining it gives the cause.
    #[error("worker {number} has ended")]
    WorkerEnded {
        /// The worker, from 0.
        number: usize,
    },
    /// The datapath is being stopped.
    #[error("weir is stopping")]
    Stopping,
    /// A worker does not change to another policy, or does not end, because it hangs or gets no CPU time.
    #[error("worker {number} does not answer")]
    WorkerStuck {
        /// The worker, from 0.
        number: usize,
    },
    /// No compiler was found.
    #[error("clang not found (tried {tried}): install it with `apt-get install clang-19`, or set WEIR_CLANG")]
    NoClang {
        /// The programs that were tried.
        tried: String,
    },
    /// The compiler in WEIR_CLANG does not work.
    #[error("WEIR_CLANG={}: {problem}", program.display())]
    BadClang {
        /// The program in WEIR_CLANG.
        program: PathBuf,
        /// The problem.
        problem: String,
    },
    /// clang rejected generated C.
    #[error("compiler bug: clang refuses generated code, kept as {}\n{stderr}", file.display())]
    Refused {
        /// The generated file, which is kept.
        file: PathBuf,
        /// The output of clang.
        stderr: String,
    },
    /// Native code could not be loaded.
    #[error("native code of {object}: {problem}")]
    Native {
        /// The artifact.
        object: String,
        /// The problem.
        problem: String,
    },
    /// The process lacks the permission to load BPF programs.
    #[error("xdp: not permitted to load BPF programs: run as root or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")]
    NotPermitted,
    /// The kernel's verifier rejected a program.
    #[error("compiler bug: the verifier of Linux {release} refuses {object}:\n{log}")]
    Verifier {
        /// The artifact.
        object: String,
        /// The release of the kernel.
        release: String,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// The kernel lacks what programs call.
    #[error("xdp: {object} needs Linux {release} or newer for {purpose}, and this is {running}")]
    KernelTooOld {
        /// The artifact.
        object: String,
        /// The first release that has it.
        release: &'static str,
        /// What it is for.
        purpose: &'static str,
        /// The release of the kernel.
        running: String,
    },
    /// The state belongs to another program: what differs.
    #[error("the policy's state belongs to another program: {0}")]
    State(String),
    /// The policy is correct, but exceeds a limit of the kernel.
    #[error(
        "{object}: too large for the kernel: {limit}; have fewer rules or tables, or put the addresses of large sets into tables"
    )]
    TooLarge {
        /// The artifact.
        object: String,
        /// The exceeded limit.
        limit: &'static str,
    },
    /// A BPF object, map or call failed.
    #[error("xdp: {object}: {problem}")]
    Xdp {
        /// The program, map or object.
        object: String,
        /// The problem.
        problem: String,
    },
}

impl EngineError {
    /// Whether something failed because this process may not have more files open.
    pub fn is_descriptor_limit(&self) -> bool {
        match self {
            EngineError::NoDescriptors(_) => true,
            EngineError::Io { source, .. } | EngineError::Interface { source, .. } => {
                descriptors::limit_reached(source)
            }
            _ => false,
        }
    }

    /// This error, or `NoDescriptors` with it if `cause` is the limit of descriptors. The error itself has its cause
    /// only as text.
    pub(crate) fn caused_by(self, cause: &io::Error) -> Self {
        if descriptors::limit_reached(cause) { EngineError::NoDescriptors(Box::new(self)) } else { self }
    }

    /// As [`EngineError::caused_by`], for the call of libbpf that has just failed on this thread.
    pub(crate) fn caused_by_libbpf(self, cause: &libbpf_rs::Error) -> Self {
        match descriptors::limit_reached_in_libbpf(cause) {
            true => EngineError::NoDescriptors(Box::new(self)),
            false => self,
        }
    }
}
