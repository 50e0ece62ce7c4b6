//! Targets of generated source.

/// What the compiler generates source for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// C for a shared object in user space.
    Native,
    /// C for XDP programs in the kernel.
    Bpf,
    /// C for a shared object with a P4 program, which a pipeline of DPDK's SWX runs.
    P4,
}

impl Target {
    /// The targets for which an artifact or a bundle has a source, in their order. P4 is compiled from text only, where
    /// DPDK is.
    pub const ALL: [Self; 2] = [Target::Native, Target::Bpf];

    /// The name of the source in a bundle, and the ending of its file's name elsewhere.
    pub const fn file_name(self) -> &'static str {
        match self {
            Target::Native => "native.c",
            Target::Bpf => "bpf.c",
            Target::P4 => "p4.c",
        }
    }
}
