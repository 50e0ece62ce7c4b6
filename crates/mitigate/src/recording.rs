//! Runs mitigation over packets with their times, and carries out its decisions.

use crate::action::Decision;
use crate::defence::Defence;
use crate::header::Header;
use crate::measure::WINDOW_NS;
use crate::measure::sampling::Sampling;
use crate::mitigator::{Mitigator, Settings};
use crate::prefix::Prefix;

/// Windows without packets that are closed one by one: what lasts longest, the hold of a quiet signature and the idle
/// time of an attack, is over then. A longer gap is skipped.
const EMPTY_WINDOWS_MAX: u64 = 120_000_000_000 / WINDOW_NS;
/// The seed of hashes and samples. A recording cannot adapt to it, and a run can be repeated.
const SEED: u64 = 0x5745_4952;

/// Mitigation over a recording.
#[derive(Clone, Debug)]
pub struct Recording {
    defence: Defence,
    /// Begin of the current window; `None` before the first packet.
    window_ns: Option<u64>,
}

impl Recording {
    /// Nothing was seen. Without prefixes inside, every destination is protected.
    pub fn new(inside: Vec<Prefix>, settings: Settings) -> Self {
        Recording { defence: Defence::new(inside, settings, SEED), window_ns: None }
    }

    /// Mitigation with all that it knows of attacks.
    pub fn mitigator(&self) -> &Mitigator {
        self.defence.mitigator()
    }

    /// Takes a packet. Returns whether an action drops it. Times do not go back.
    pub fn take(&mut self, header: &Header, now_ns: u64) -> bool {
        self.advance(now_ns);
        self.defence.see(header, now_ns)
    }

    /// Closes the windows that have ended.
    fn advance(&mut self, now_ns: u64) {
        let Some(mut begin_ns) = self.window_ns else {
            self.defence.begin(now_ns);
            self.window_ns = Some(now_ns);
            return;
        };
        let mut closed = 0;
        while now_ns.saturating_sub(begin_ns) >= WINDOW_NS {
            begin_ns += WINDOW_NS;
            self.close(begin_ns);
            closed += 1;
            if closed == EMPTY_WINDOWS_MAX {
                begin_ns = now_ns;
                self.defence.begin(now_ns);
            }
        }
        self.window_ns = Some(begin_ns);
    }

    /// Ends a window and carries out the decisions. The last, incomplete window of a recording is not decided on.
    fn close(&mut self, now_ns: u64) {
        for decision in self.defence.end_window(now_ns, Sampling::ALL) {
            match decision {
                Decision::Apply(action) => self.defence.enforce(action, now_ns),
                Decision::Undo(action, _) => self.defence.lift(action),
                Decision::Detected { .. } | Decision::Propose(_) | Decision::Ended(_) => {}
            }
        }
        self.defence.begin_window();
    }
}
