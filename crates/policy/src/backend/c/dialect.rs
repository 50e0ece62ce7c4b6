//! The dialects of C that the emitter writes, and the C names of actions.

use crate::pass::Placement;
use weir_abi::{Action, Target};

/// The dialect of C code: one for each target, and one more for large chains in BPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
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

impl Dialect {
    /// Native code looks up a burst at a time. BPF looks up one packet, as late as possible.
    pub(super) fn placement(self) -> Placement {
        match self {
            Dialect::Native => Placement::Staged,
            Dialect::Bpf | Dialect::BpfParts { .. } => Placement::Lazy,
        }
    }

    /// The target that the code is compiled for.
    pub(super) fn target(self) -> Target {
        if self.is_bpf() { Target::Bpf } else { Target::Native }
    }

    /// Whether the kernel runs it, one packet at a time.
    pub(super) fn is_bpf(self) -> bool {
        self != Dialect::Native
    }

    /// The header for one packet in the kernel, or the one for a burst in user space.
    pub(super) fn header(self, kernel: &'static str, burst: &'static str) -> &'static str {
        if self.is_bpf() { kernel } else { burst }
    }
}

/// The C name of an action.
pub(super) fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "ACTION_ACCEPT",
        Action::Drop => "ACTION_DROP",
        Action::Divert => "ACTION_DIVERT",
        Action::Reply => "ACTION_REPLY",
    }
}
