//! Runs mitigation over packets with their times, and carries out its decisions.

use crate::action::Decision;
use crate::baseline::floor_pps;
use crate::defence::{Defence, Fate};
use crate::excerpt::{Excerpt, Frame};
use crate::header::Header;
use crate::measure::sampling::Sampling;
use crate::measure::{Directions, WINDOW_NS, Way};
use crate::mitigator::{Mitigator, Settings};
use crate::prefix::Prefix;
use crate::victim::SPAN_NS;
use weir_abi::PacketClass;

/// Windows without packets that are closed one by one: what lasts longest, the hold of a quiet signature and the idle
/// time of an attack, is over then. A longer gap is skipped.
const EMPTY_WINDOWS_MAX: u64 = 120_000_000_000 / WINDOW_NS;
/// A recording with fewer windows is too short for two windows with excess, which a victim has.
const SHORT_WINDOWS: u64 = 2;
/// The seed of hashes and samples. A recording cannot adapt to it, and a run can be repeated.
const SEED: u64 = 0x5745_4952;

/// A recording that is too short to judge, and what would be enough.
#[derive(Clone, Debug, PartialEq)]
pub struct TooShort {
    /// How long an attack must be seen, ns.
    pub needed_ns: u64,
    /// The packets without proof of one class that are an attack on a prefix in any case, however short they are seen.
    pub needed_packets: u64,
    /// The prefix and the class with the most packets without proof, and their number.
    pub busiest: Option<(Prefix, PacketClass, u64)>,
}

/// Mitigation over a recording.
#[derive(Clone, Debug)]
pub struct Recording {
    defence: Defence,
    /// Begin of the current window; `None` before the first packet.
    window_ns: Option<u64>,
    /// When the last packet came.
    last_ns: u64,
    /// Windows that were closed.
    closed: u64,
    too_short: Option<TooShort>,
}

impl Recording {
    /// Nothing was seen. Without prefixes inside, every destination is protected.
    pub fn new(inside: Vec<Prefix>, settings: Settings) -> Self {
        let defence = Defence::new(inside, settings, SEED);
        Recording { defence, window_ns: None, last_ns: 0, closed: 0, too_short: None }
    }

    /// Mitigation with all that it knows of attacks.
    pub fn mitigator(&self) -> &Mitigator {
        self.defence.mitigator()
    }

    /// Keeps packets around attacks from now on.
    pub fn keep_excerpts(&mut self) {
        self.defence.keep_excerpts(SEED);
    }

    /// The excerpts that are complete.
    pub fn take_excerpts(&mut self) -> Vec<Excerpt> {
        self.defence.take_excerpts()
    }

    /// Attacks that have no excerpt, because there were too many at once.
    pub fn excerpts_left_out(&self) -> u64 {
        self.defence.excerpts_left_out()
    }

    /// The way of a packet between the protected prefixes and the rest.
    pub fn way(&self, header: &Header) -> Way {
        self.defence.way(header)
    }

    /// Takes a packet. Returns whether it is dropped, or waits at a SYN proxy. Times do not go back.
    pub fn take(&mut self, header: &Header, now_ns: u64) -> bool {
        self.take_frame(header, None, now_ns).is_dropped()
    }

    /// Takes a packet, with the packet itself for excerpts, and says what happens to it. Times do not go back.
    pub fn take_frame(&mut self, header: &Header, frame: Option<Frame<'_>>, now_ns: u64) -> Fate {
        self.advance(now_ns);
        self.last_ns = now_ns;
        self.defence.see(header, frame, now_ns)
    }

    /// Which directions of traffic are seen.
    pub fn directions(&self) -> Directions {
        self.defence.extractor().directions()
    }

    /// Whether it has ended and was too short to judge, unless it shows an attack nevertheless.
    pub fn too_short(&self) -> Option<&TooShort> {
        self.too_short.as_ref()
    }

    /// Ends the recording. Its last, incomplete window is decided on only if there was hardly another one. A fraction
    /// of a second shows an attack only if it has very many packets, and nothing can be done about it any more.
    pub fn finish(&mut self) {
        if let Some(begin_ns) = self.window_ns
            && self.closed < SHORT_WINDOWS
        {
            let busiest = self.defence.end_short(begin_ns + WINDOW_NS);
            let host = Prefix::of(false, 0, u8::MAX);
            let prefix = busiest.map_or(host, |(prefix, ..)| prefix);
            let needed_packets = (floor_pps(&prefix) * SPAN_NS as f64 / 1e9) as u64;
            self.too_short = Some(TooShort { needed_ns: SHORT_WINDOWS * WINDOW_NS, needed_packets, busiest });
        }
        self.defence.finish_excerpts(self.last_ns);
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
        self.closed += 1;
        for decision in self.defence.end_window(now_ns, Sampling::ALL) {
            match decision {
                Decision::Apply(action) => self.defence.enforce(action, now_ns),
                Decision::Undo(action, _) => self.defence.lift(action, now_ns),
                Decision::Detected { .. }
                | Decision::VectorBegan { .. }
                | Decision::VectorEnded { .. }
                | Decision::Propose(_)
                | Decision::Ended(_) => {}
            }
        }
        self.defence.begin_window();
    }
}
