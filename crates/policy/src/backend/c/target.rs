//! What C is generated for, and how it calls actions.

use crate::pass::Placement;
use weir_abi::Action;

/// What the C is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
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

impl Target {
    /// Native code asks tables a burst at a time; BPF sees one packet and asks as late as it can.
    pub(super) fn placement(self) -> Placement {
        match self {
            Target::Native => Placement::Staged,
            Target::Bpf | Target::BpfParts { .. } => Placement::Lazy,
        }
    }

    /// Whether the kernel runs it, a packet at a time.
    pub(super) fn is_bpf(self) -> bool {
        self != Target::Native
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
