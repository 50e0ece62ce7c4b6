//! What was learned, for operators: they list it, set it, and reset it.

use super::Mitigator;
use crate::baseline::{Baselines, Rate};
use crate::prefix::Prefix;
use crate::reference::Sizes;

/// A part of what was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything. Then a life begins anew: the first seconds are taken as they are.
    All,
    /// The baselines of a prefix and of all that it covers. They begin as if the prefix were idle.
    Prefix(Prefix),
    /// The highest usual rate of a source.
    Source,
    /// Headers of peaceful traffic.
    Reference,
    /// Signatures of former attacks.
    Signatures,
}

/// An attack lasts, so what is learned anew would be the attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attacked;

impl Mitigator {
    /// The baselines of all prefixes.
    pub fn baselines(&self) -> &Baselines {
        &self.peace.baselines
    }

    /// The highest usual rate of a proven source that is answered, packets a second.
    pub fn source_pps(&self) -> f64 {
        self.peace.source_pps()
    }

    /// How long packets were seen, ns.
    pub fn seen_ns(&self) -> u64 {
        self.peace.seen_ns()
    }

    /// How many headers of peaceful traffic are kept.
    pub fn reference_sizes(&self) -> Sizes {
        self.peace.reference.sizes()
    }

    /// How many signatures of former attacks are remembered.
    pub fn remembered(&self) -> usize {
        self.remembered.len()
    }

    /// Whether a prefix is under attack, so that its baseline is frozen.
    pub fn is_attacked(&self, prefix: &Prefix) -> bool {
        let current = self.attacks.iter().filter(|attack| attack.id.is_some());
        current.into_iter().any(|attack| attack.victim.covers(prefix) || prefix.covers(&attack.victim))
    }

    /// Sets the highest usual rate of a source. It is learned on from there.
    pub fn set_source_pps(&mut self, pps: f64) {
        self.peace.set_source_pps(pps);
    }

    /// Datagrams that were not judged, because only one direction is seen.
    pub fn unjudged(&self) -> u64 {
        self.unjudged
    }

    /// Sets a rate of a prefix. It is learned on from there. Returns whether there is room for the prefix.
    pub fn set_usual(&mut self, prefix: Prefix, rate: Rate, pps: f64) -> bool {
        self.peace.baselines.set(prefix, rate, pps)
    }

    /// Forgets a part of what was learned. Returns how many prefixes, headers or signatures that were.
    ///
    /// # Errors
    /// All is to be forgotten, and an attack lasts.
    pub fn reset(&mut self, what: Part) -> Result<usize, Attacked> {
        match what {
            Part::All if self.attacks.iter().any(|attack| attack.id.is_some()) => Err(Attacked),
            Part::All => {
                let signatures = std::mem::take(&mut self.remembered).len();
                self.attacks.clear();
                self.usually_held.reset();
                Ok(signatures + self.peace.reset())
            }
            Part::Prefix(prefix) => Ok(self.peace.baselines.reset(Some(prefix))),
            Part::Source => {
                self.peace.set_source_pps(0.0);
                Ok(1)
            }
            Part::Reference => Ok(self.peace.reference.reset()),
            Part::Signatures => Ok(std::mem::take(&mut self.remembered).len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Attacked, Part};
    use crate::attack::Attack;
    use crate::baseline::Rate;
    use crate::mitigator::{Mitigator, Settings};
    use crate::prefix::Prefix;
    use weir_abi::PacketClass;

    #[test]
    fn what_is_set_is_listed_and_what_is_reset_is_not() {
        let mut mitigator = Mitigator::new(Settings::default(), 1);
        let host = |number: u32| Prefix::of(false, (0xc000_0200 + number).into(), 32);
        let rate = Rate::Unproven(PacketClass::Udp);
        assert!(mitigator.set_usual(host(1), rate, 500.0) && mitigator.set_usual(host(2), rate, 700.0));
        mitigator.set_source_pps(900.0);
        let listed: Vec<f64> = mitigator.baselines().prefixes().iter().map(|(_, usual)| usual.pps(rate)).collect();
        assert_eq!((listed, mitigator.source_pps()), (vec![500.0, 700.0], 900.0));
        assert_eq!(mitigator.baselines().threshold_pps(&host(1), PacketClass::Udp, 1.0), 1500.0);
        assert_eq!(mitigator.reset(Part::Prefix(Prefix::of(false, 0xc000_0200, 31))), Ok(1));
        assert_eq!(mitigator.baselines().of(&host(1)).pps(rate), 0.0);
        assert_eq!((mitigator.reset(Part::Source), mitigator.source_pps()), (Ok(1), 0.0));
        assert_eq!(mitigator.reset(Part::All), Ok(1));
        assert!(mitigator.baselines().prefixes().is_empty());
    }

    #[test]
    fn nothing_begins_anew_in_an_attack() {
        let mut mitigator = Mitigator::new(Settings::default(), 1);
        let victim = Prefix::of(false, 1, 32);
        let mut attack = Attack::new(victim, PacketClass::Udp, 0);
        attack.id = Some(1);
        mitigator.attacks.push(attack);
        assert_eq!(mitigator.reset(Part::All), Err(Attacked));
        assert_eq!(mitigator.reset(Part::Prefix(victim)), Ok(0));
        assert!(mitigator.is_attacked(&victim));
    }
}
