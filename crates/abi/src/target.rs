//! Targets of generated source.

/// What the compiler generates source for. An artifact has one source for each target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// C for a shared object in user space.
    Native,
    /// C for XDP programs in the kernel.
    Bpf,
}

impl Target {
    /// Every target, in the order of artifacts and bundles.
    pub const ALL: [Self; 2] = [Target::Native, Target::Bpf];

    /// The name of the source in a bundle, and the ending of its file's name elsewhere.
    pub const fn file_name(self) -> &'static str {
        match self {
            Target::Native => "native.c",
            Target::Bpf => "bpf.c",
        }
    }
}
