//! When the last resort is taken.

use super::Mitigator;
use crate::action::{Measure, Trial};
use crate::header::Header;
use crate::last_resort::{self, Case, Resort};
use crate::measure::{Pickup, Source, Window};
use crate::victim::Suspect;

/// Failures of learning after which the last resort is taken: with the pauses between them, within two seconds.
const FAILURES: u32 = 3;
/// An attack that lasts for this long is no burst of connections that have moved here, which prove themselves.
const PROXIED_NS: u64 = 1_000_000_000;
/// Failures after which an attack is reported that no measure is taken against.
const REPORT_FAILURES: u32 = 2;

impl Mitigator {
    /// Takes the last resort after some failures, if the situation is bad enough. A suspicion becomes an attack then.
    pub(super) fn resort(
        &mut self,
        at: usize,
        suspect: &Suspect,
        window: &Window,
        pool: &[Header],
        is_known: &dyn Fn(Source) -> bool,
    ) {
        let attack = &self.attacks[at];
        if attack.failures < REPORT_FAILURES || attack.is_overruled {
            return;
        }
        let known = pool.iter().filter(|header| is_known((header.is_ipv6, header.saddr))).count();
        let case = Case { suspect, window, pool, known };
        let Some(resort) = last_resort::measure(&case, &self.peace.baselines, &self.settings.prepared) else { return };
        let has_failed = attack.failures >= FAILURES;
        let lasts = attack.id.is_some() && window.to_ns.saturating_sub(attack.from_ns) >= PROXIED_NS;
        let is_refused = |measure: &Measure| measure.signature().is_some_and(|one| attack.is_refused(one));
        let measure = match resort {
            Resort::Report => None,
            Resort::Take(measure @ Measure::SynProxy(_, Pickup::On)) => Some(measure),
            // Until then the attack is reported.
            Resort::Take(measure @ Measure::SynProxy(_, Pickup::Off)) => Some(measure).filter(|_| has_failed || lasts),
            Resort::Take(measure) if has_failed && !is_refused(&measure) => Some(measure),
            Resort::Take(_) => return,
        };
        if attack.id.is_none() {
            self.begin(at, suspect, window, pool);
        }
        if let Some(measure) = measure {
            self.apply(at, Some(suspect.class), measure, Trial::default());
        }
    }
}
