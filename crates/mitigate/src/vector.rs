//! The vectors of an attack: the classes of packets that it consists of, each with its evidence, its rate, its begin
//! and its end.
//!
//! What actions hold back is a part of the rate, so a vector is seen while its actions hide it.

use crate::class;
use crate::stored::StoredClass;
use crate::victim::Evidence;
use serde::{Deserialize, Serialize};
use weir_abi::PacketClass;

/// Windows with excess that make a vector, and the time in which they occur.
const WINDOWS: usize = 2;
const SPAN_NS: u64 = 10_000_000_000;
/// Vectors of an attack that are over and still listed.
const OVER_MAX: usize = 32;

/// A vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vector {
    /// The class of its packets.
    #[serde(with = "StoredClass")]
    pub class: PacketClass,
    /// What exceeded which threshold when it began.
    pub evidence: Vec<Evidence>,
    /// When it began, ns.
    pub from_ns: u64,
    /// When its rate last exceeded the threshold, ns.
    pub last_ns: u64,
    /// Packets a second in the last window, with what actions hold back.
    pub rate_pps: f64,
    /// The highest of these rates.
    pub peak_pps: f64,
    /// Whether it is over.
    pub is_over: bool,
}

impl Vector {
    /// What kind of attack it is.
    pub fn kind(&self) -> &'static str {
        class::attack(self.class)
    }
}

/// The vectors of one attack, and the measurements of the current window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Vectors {
    all: Vec<Vector>,
    /// What actions have held back in this window, packets a second by class.
    held_pps: [f64; PacketClass::COUNT],
    /// Rates of this window, with what is held back.
    rates_pps: [f64; PacketClass::COUNT],
    /// Classes whose rate exceeds the threshold in this window.
    #[serde(skip)]
    excess: Vec<(PacketClass, Evidence)>,
    /// Windows in which a class had excess that is no vector.
    windows: [Vec<u64>; PacketClass::COUNT],
}

impl Vectors {
    /// All vectors in the order in which they began.
    pub fn all(&self) -> &[Vector] {
        &self.all
    }

    /// The vector of a class that lasts.
    pub fn current(&self, class: PacketClass) -> Option<&Vector> {
        self.all.iter().find(|vector| vector.class == class && !vector.is_over)
    }

    /// What actions have held back in the window before the current one is forgotten.
    pub(crate) fn begin_window(&mut self) {
        self.held_pps = [0.0; PacketClass::COUNT];
        self.excess.clear();
    }

    /// An action has held packets of a class back.
    pub(crate) fn hold_back(&mut self, class: PacketClass, pps: f64) {
        self.held_pps[class as usize] += pps;
    }

    /// The rate of a class in this window, with what is held back.
    pub(crate) fn measure(&mut self, class: PacketClass, passing_pps: f64, usual_pps: f64, threshold_pps: f64) {
        let rate_pps = passing_pps + self.held_pps[class as usize];
        self.rates_pps[class as usize] = rate_pps;
        if rate_pps > threshold_pps {
            let measure = format!("{} without proof, packets/s", class::title(class));
            let threshold = Some(threshold_pps);
            self.excess.push((class, Evidence { measure, value: rate_pps, usual: usual_pps, threshold }));
        }
    }

    /// A part of the victim has excess of a class.
    pub(crate) fn measure_part(&mut self, class: PacketClass, evidence: &[Evidence]) {
        if let Some(worst) = evidence.first()
            && self.excess_of(class).is_none()
        {
            self.excess.push((class, worst.clone()));
        }
    }

    /// The excess of a class in this window.
    pub(crate) fn excess_of(&self, class: PacketClass) -> Option<&Evidence> {
        self.excess.iter().find(|(known, _)| *known == class).map(|(_, evidence)| evidence)
    }

    /// A vector begins, unless it lasts already. Returns whether it does.
    pub(crate) fn begin(&mut self, class: PacketClass, evidence: Vec<Evidence>, now_ns: u64) -> bool {
        if self.current(class).is_some() {
            return false;
        }
        let rate_pps = self.rates_pps[class as usize];
        let (from_ns, last_ns, peak_pps) = (now_ns, now_ns, rate_pps);
        self.all.push(Vector { class, evidence, from_ns, last_ns, rate_pps, peak_pps, is_over: false });
        self.windows[class as usize].clear();
        true
    }

    /// Something else shows that a vector is an attack.
    pub(crate) fn support(&mut self, class: PacketClass, evidence: &[Evidence]) {
        let vector = self.all.iter_mut().find(|vector| vector.class == class && !vector.is_over);
        if let Some(vector) = vector {
            let is_new = |one: &&Evidence| vector.evidence.iter().all(|known| known.measure != one.measure);
            let more: Vec<Evidence> = evidence.iter().filter(is_new).cloned().collect();
            vector.evidence.extend(more);
        }
    }

    /// Nothing is seen, which says nothing about an end.
    pub(crate) fn hold(&mut self, now_ns: u64) {
        self.all.iter_mut().filter(|vector| !vector.is_over).for_each(|vector| vector.last_ns = now_ns);
    }

    /// Notes the rates of this window. Returns the classes that begin.
    pub(crate) fn follow(&mut self, now_ns: u64) -> Vec<PacketClass> {
        for vector in self.all.iter_mut().filter(|vector| !vector.is_over) {
            vector.rate_pps = self.rates_pps[vector.class as usize];
            vector.peak_pps = vector.peak_pps.max(vector.rate_pps);
            if self.excess.iter().any(|(class, _)| *class == vector.class) {
                vector.last_ns = now_ns;
            }
        }
        let mut begun = Vec::new();
        for (class, evidence) in self.excess.clone() {
            let windows = &mut self.windows[class as usize];
            windows.retain(|&time_ns| now_ns.saturating_sub(time_ns) < SPAN_NS);
            windows.push(now_ns);
            if windows.len() >= WINDOWS && self.begin(class, vec![evidence], now_ns) {
                begun.push(class);
            }
        }
        begun
    }

    /// Ends the vectors that have had no excess for a time, and that `is_needed` does not name. The last one ends with
    /// its attack. Returns those that end.
    pub(crate) fn retire(
        &mut self,
        now_ns: u64,
        idle_ns: u64,
        is_needed: impl Fn(PacketClass) -> bool,
    ) -> Vec<PacketClass> {
        let mut ended = Vec::new();
        let mut left = self.all.iter().filter(|vector| !vector.is_over).count();
        for vector in self.all.iter_mut().filter(|vector| !vector.is_over) {
            let is_idle = now_ns.saturating_sub(vector.last_ns) >= idle_ns;
            if left > 1 && is_idle && !is_needed(vector.class) {
                (vector.is_over, vector.rate_pps) = (true, 0.0);
                ended.push(vector.class);
                left -= 1;
            }
        }
        let mut excess = self.all.iter().filter(|vector| vector.is_over).count().saturating_sub(OVER_MAX);
        self.all.retain(|vector| {
            let goes = excess > 0 && vector.is_over;
            excess -= usize::from(goes);
            !goes
        });
        ended
    }

    /// The attack is over.
    pub(crate) fn end(&mut self) {
        self.all.iter_mut().for_each(|vector| (vector.is_over, vector.rate_pps) = (true, 0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::{OVER_MAX, SPAN_NS, Vectors};
    use crate::measure::WINDOW_NS;
    use weir_abi::PacketClass;

    const IDLE_NS: u64 = 10_000_000_000;

    /// A window in which datagrams pass and SYNs are held back.
    fn window(vectors: &mut Vectors, udp_pps: f64, syn_pps: f64, now_ns: u64) -> Vec<PacketClass> {
        vectors.begin_window();
        vectors.hold_back(PacketClass::Syn, syn_pps);
        vectors.measure(PacketClass::Udp, udp_pps, 0.0, 100.0);
        vectors.measure(PacketClass::Syn, 0.0, 0.0, 100.0);
        vectors.follow(now_ns)
    }

    #[test]
    fn a_vector_begins_with_its_second_window_and_what_is_held_back_is_a_part_of_it() {
        let mut vectors = Vectors::default();
        assert_eq!(window(&mut vectors, 500.0, 0.0, 1), []);
        assert_eq!(window(&mut vectors, 600.0, 0.0, SPAN_NS + 1), []);
        assert_eq!(window(&mut vectors, 400.0, 101.0, SPAN_NS + 2), [PacketClass::Udp]);
        assert_eq!(window(&mut vectors, 400.0, 100.0, SPAN_NS + 3), []);
        assert_eq!(window(&mut vectors, 300.0, 500.0, SPAN_NS + 4), [PacketClass::Syn]);
        let rates: Vec<_> = vectors.all().iter().map(|one| (one.kind(), one.rate_pps, one.peak_pps)).collect();
        assert_eq!(rates, [("udp-flood", 300.0, 400.0), ("syn-flood", 500.0, 500.0)]);
    }

    #[test]
    fn vectors_end_one_by_one_and_the_last_with_its_attack() {
        let mut vectors = Vectors::default();
        (1..3).for_each(|at| _ = window(&mut vectors, 500.0, 500.0, at));
        let late_ns = IDLE_NS + 3;
        window(&mut vectors, 0.0, 50.0, late_ns);
        assert_eq!(vectors.retire(late_ns, IDLE_NS, |class| class == PacketClass::Udp), [PacketClass::Syn]);
        assert_eq!((vectors.retire(late_ns, IDLE_NS, |_| false), vectors.all()[1].is_over), (vec![], true));
        vectors.end();
        assert!(vectors.all().iter().all(|vector| vector.is_over));
    }

    #[test]
    fn vectors_that_begin_again_and_again_are_bounded() {
        let mut vectors = Vectors::default();
        for turn in 0..100 {
            let now_ns = turn * 2 * IDLE_NS;
            let syn_pps = if turn % 2 == 0 { 500.0 } else { 0.0 };
            for number in 0..2 {
                window(&mut vectors, 500.0, syn_pps, now_ns + number * WINDOW_NS);
            }
            vectors.retire(now_ns + WINDOW_NS, IDLE_NS, |_| false);
        }
        assert_eq!(vectors.all().len(), OVER_MAX + 1);
        assert!(vectors.current(PacketClass::Udp).is_some());
    }
}
