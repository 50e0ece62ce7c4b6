//! Runs mitigation over packets with their times, and carries out its decisions.

use crate::action::Decision;
use crate::filter::Filter;
use crate::header::Header;
use crate::measure::{Extractor, WINDOW_NS};
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
    extractor: Extractor,
    mitigator: Mitigator,
    filter: Filter,
    inside: Vec<Prefix>,
    /// Begin of the current window; `None` before the first packet.
    window_ns: Option<u64>,
}

impl Recording {
    /// Nothing was seen. Without prefixes inside, every destination is protected.
    pub fn new(inside: Vec<Prefix>, settings: Settings) -> Self {
        Recording {
            extractor: Extractor::new(inside.clone(), SEED, 0),
            mitigator: Mitigator::new(settings, SEED),
            filter: Filter::default(),
            inside,
            window_ns: None,
        }
    }

    /// Mitigation with all that it knows of attacks.
    pub fn mitigator(&self) -> &Mitigator {
        &self.mitigator
    }

    /// Takes a packet. Returns whether an action drops it. Times do not go back.
    pub fn take(&mut self, header: &Header, now_ns: u64) -> bool {
        self.advance(now_ns);
        let is_inside = |address: u128| self.inside.iter().any(|prefix| prefix.contains(header.is_ipv6, address));
        let is_outgoing = is_inside(header.saddr);
        let extractor = &mut self.extractor;
        if !is_outgoing && self.filter.drops(header, now_ns, || extractor.see_dropped(header)).is_some() {
            return true;
        }
        extractor.see(header, now_ns);
        false
    }

    /// Closes the windows that have ended.
    fn advance(&mut self, now_ns: u64) {
        let Some(mut begin_ns) = self.window_ns else {
            self.extractor.begin(now_ns);
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
                self.extractor.begin(now_ns);
            }
        }
        self.window_ns = Some(begin_ns);
    }

    /// Ends a window and carries out the decisions. The last, incomplete window of a recording is not decided on.
    fn close(&mut self, now_ns: u64) {
        let window = self.extractor.close(now_ns);
        let hits = self.filter.take_hits();
        let extractor = &mut self.extractor;
        for decision in self.mitigator.decide(&window, &hits, &|source| extractor.is_known(source)) {
            match decision {
                Decision::Apply(action) => self.filter.apply(action, now_ns),
                Decision::Undo(action, _) => self.filter.undo(action),
                Decision::Detected { .. } | Decision::Propose(_) | Decision::Ended(_) => {}
            }
        }
        let current = self.mitigator.attacks().filter(|attack| !attack.is_over && attack.is_unused);
        self.extractor.distrust(current.map(|attack| (attack.victim, attack.from_ns)));
    }
}
