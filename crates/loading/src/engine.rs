//! The engines that can decide by a policy.

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The reference interpreter.
    Eval,
    /// Generated C in this process.
    Native,
    /// Generated BPF in the kernel.
    Xdp,
    /// Generated P4 on DPDK's SWX pipeline.
    P4,
}

impl Engine {
    /// The name in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Eval => "eval",
            Engine::Native => "native",
            Engine::Xdp => "xdp",
            Engine::P4 => "p4",
        }
    }
}
