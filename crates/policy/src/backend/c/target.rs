//! The targets of C code, and the C names of actions.

use crate::capability::Engine;
use crate::pass::Placement;
use weir_abi::Action;

/// The target of C code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A shared object that is called once per burst.
    Native,
    /// An XDP program.
    Bpf,
    /// XDP programs of some rules each, which the verifier checks separately. They are slower, so they are used only
    /// for chains that the verifier refuses as one program.
    BpfParts {
        /// Rules in a part. It is more if there would otherwise be more parts than tail calls.
        rules: usize,
    },
}

impl Target {
    /// Native code looks up a burst at a time. BPF looks up one packet, as late as possible.
    pub(super) fn placement(self) -> Placement {
        match self {
            Target::Native => Placement::Staged,
            Target::Bpf | Target::BpfParts { .. } => Placement::Lazy,
        }
    }

    /// The engine that runs it.
    pub(super) fn engine(self) -> Engine {
        if self.is_bpf() { Engine::Xdp } else { Engine::Native }
    }

    /// Whether the kernel runs it, one packet at a time.
    pub(super) fn is_bpf(self) -> bool {
        self != Target::Native
    }
}

/// The C name of an action.
pub(super) fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "ACTION_ACCEPT",
        Action::Drop => "ACTION_DROP",
        Action::Divert => "ACTION_DIVERT",
    }
}
