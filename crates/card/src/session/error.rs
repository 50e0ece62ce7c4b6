//! Why a session with a card fails.

use crate::control::Request;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;
use weir_abi::card::{control, memory};

/// Why a session with a card fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// There was no answer.
    Silent {
        /// What was asked for.
        asked: String,
        /// How long the card was silent.
        silence: Duration,
    },
    /// The card refused a request.
    Refused {
        /// The request.
        asked: String,
    },
    /// A word is not what was written.
    Unlike {
        /// The memory.
        memory: String,
        /// The word.
        at: usize,
        /// What it is, and what it should be.
        is: u32,
        #[allow(missing_docs)]
        should_be: u32,
    },
    /// A memory of the configuration is larger than the profile says.
    TooLarge {
        /// The memory.
        memory: String,
        /// Words of the configuration, and of the card.
        needs: usize,
        #[allow(missing_docs)]
        has: usize,
    },
    /// The answer to a commit does not have the configuration's seal.
    WrongSeal,
    /// The card has no configuration any more: it was reset.
    Unconfigured,
}

impl std::error::Error for SessionError {}

impl Display for SessionError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Silent { asked, silence } => {
                write!(f, "the card has not answered for {:.1} s; asked for: {asked}", silence.as_secs_f64())
            }
            SessionError::Refused { asked } => write!(f, "the card refuses to {asked}"),
            SessionError::Unlike { memory, at, is, should_be } => write!(
                f,
                "word {at} of {memory} is {is:#x} instead of {should_be:#x}: the card is smaller than its profile, or \
                 somebody else uses it"
            ),
            SessionError::TooLarge { memory, needs, has } => {
                write!(f, "{memory} needs {needs} words, the profile has {has}")
            }
            SessionError::Unconfigured => f.write_str("the card has lost its configuration"),
            SessionError::WrongSeal => f.write_str(
                "the answer to a commit has another seal than the configuration: this is no card, or somebody else uses it",
            ),
        }
    }
}

/// A request in words.
pub(super) fn asked(request: &Request) -> String {
    let words = |verb: &str| {
        let first = request.first as usize;
        let last = first + usize::from(request.count).max(1) - 1;
        format!("{verb} words {first} to {last} of {}", name(request.memory))
    };
    match request.op {
        control::WRITE => words("write"),
        control::READ => words("read"),
        _ => "commit the configuration".to_owned(),
    }
}

/// The name of a memory.
pub(super) fn name(number: u8) -> String {
    match number {
        memory::CONFIG => "CONFIG".to_owned(),
        memory::PATTERNS => "PATTERNS".to_owned(),
        memory::RULES => "RULES".to_owned(),
        memory::SELECT => "SELECT".to_owned(),
        memory::LOOKUPS => "LOOKUPS".to_owned(),
        memory::COUNTERS => "COUNTERS".to_owned(),
        memory::COUNTERS_BEFORE => "COUNTERS_BEFORE".to_owned(),
        memory::EXTENSION.. => format!("EXTENSION {}", number - memory::EXTENSION),
        memory::DIRECT.. => format!("DIRECT {}", number - memory::DIRECT),
        _ => format!("memory {number}"),
    }
}
