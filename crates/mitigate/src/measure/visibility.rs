//! Whether the answers of protected hosts are seen: it decides what a proof is worth.
//!
//! With asymmetric routes, or in a recording of one direction, no source can show that it has received an answer. Then
//! plausible sources count. Where answers are seen, an attacker could use that, so they do not count there.

use super::conversations::Proof;
use crate::header::{Header, protocol};

/// Share of established TCP that is real where answers are seen, to begin to rely on it and to stop.
const BEGIN: f64 = 0.5;
const STOP: f64 = 0.2;
/// Fewest segments that say anything.
const SEGMENTS_MIN: f64 = 20.0;
/// Weight of the past in each window: half of it is forgotten in a minute.
const PAST: f64 = 0.997;

/// Counts of established TCP.
#[derive(Clone, Debug, Default)]
pub struct Visibility {
    window: [u64; 2],
    real: f64,
    plausible: f64,
    is_two_way: bool,
}

impl Visibility {
    /// Counts a packet to a protected host.
    pub fn count(&mut self, header: &Header, proof: Proof) {
        match proof {
            Proof::Real if header.protocol == protocol::TCP => self.window[0] += 1,
            Proof::Plausible(_) => self.window[1] += 1,
            Proof::Real | Proof::Vouched(_) | Proof::None => {}
        }
    }

    /// Ends a window. During an attack nothing changes, because the attacker would decide.
    pub fn end_window(&mut self, is_peaceful: bool) {
        let [real, plausible] = std::mem::take(&mut self.window).map(|count| count as f64);
        if !is_peaceful {
            return;
        }
        self.real = self.real * PAST + real;
        self.plausible = self.plausible * PAST + plausible;
        let all = self.real + self.plausible;
        if all >= SEGMENTS_MIN {
            self.is_two_way = self.real >= all * if self.is_two_way { STOP } else { BEGIN };
        }
    }

    /// Whether answers are seen.
    pub fn is_two_way(&self) -> bool {
        self.is_two_way
    }
}

#[cfg(test)]
mod tests {
    use super::Visibility;
    use crate::header::{Header, protocol};
    use crate::measure::conversations::Proof;

    fn segment() -> Header {
        Header { protocol: protocol::TCP, ..Header::between(1, 2) }
    }

    fn windows(visibility: &mut Visibility, count: u32, real: u32, plausible: u32, is_peaceful: bool) {
        for _ in 0..count {
            (0..real).for_each(|_| visibility.count(&segment(), Proof::Real));
            (0..plausible).for_each(|_| visibility.count(&segment(), Proof::Plausible(0)));
            visibility.end_window(is_peaceful);
        }
    }

    #[test]
    fn an_attacker_does_not_decide() {
        let mut visibility = Visibility::default();
        windows(&mut visibility, 10, 0, 10, true);
        assert!(!visibility.is_two_way());
        windows(&mut visibility, 20, 10, 0, true);
        assert!(visibility.is_two_way());
        windows(&mut visibility, 100, 1, 10_000, false);
        assert!(visibility.is_two_way());
    }
}
