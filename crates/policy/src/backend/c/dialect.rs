//! The dialects of C that the emitter writes, and how they call actions.

use crate::pass::Placement;
use weir_abi::{Action, Target};

/// How the C is laid out. Each target has a dialect of its own, and BPF has one more for large chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A shared object called once a burst.
    Native,
    /// An XDP program.
    Bpf,
    /// XDP programs of some rules each, which the verifier follows one by one. Slower: for chains that are too much for one program.
    BpfParts {
        /// Rules of a part; more where there would be more parts than the kernel can jump to.
        rules: usize,
    },
}

impl Dialect {
    /// Native code asks tables a burst at a time; BPF sees one packet and asks as late as it can.
    pub(super) fn placement(self) -> Placement {
        match self {
            Dialect::Native => Placement::Staged,
            Dialect::Bpf | Dialect::BpfParts { .. } => Placement::Lazy,
        }
    }

    /// What it is compiled for.
    pub(super) fn target(self) -> Target {
        if self.is_bpf() { Target::Bpf } else { Target::Native }
    }

    /// Whether the kernel runs it, a packet at a time.
    pub(super) fn is_bpf(self) -> bool {
        self != Dialect::Native
    }
}

/// An action in C.
pub(super) fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "ACTION_ACCEPT",
        Action::Drop => "ACTION_DROP",
        Action::Divert => "ACTION_DIVERT",
    }
}
