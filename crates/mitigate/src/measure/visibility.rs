//! Whether the answers of protected hosts are seen: it decides what a proof is worth, and what it means if nobody
//! answers.
//!
//! With asymmetric routes, or in a recording of one direction, no source can show that it has received an answer. Then
//! plausible sources count. Where answers are seen, an attacker could use that, so they do not count there.
//!
//! Segments of TCP say it, because only answers make a source real. Where hardly any TCP is seen, datagrams do: whether
//! those of a conversation have been answered, or belong to a stream in one direction.

use super::conversations::{Proof, Standing, Stream};
use crate::header::{Header, protocol};
use serde::{Deserialize, Serialize};

/// Share of the segments or datagrams of conversations that are answered where answers are seen, to begin to rely on it
/// and to stop.
const BEGIN: f64 = 0.5;
const STOP: f64 = 0.2;
/// Fewest segments or datagrams that say anything.
const PACKETS_MIN: f64 = 20.0;
/// Weight of the past in each window: half of it is forgotten in a minute.
const PAST: f64 = 0.997;

/// Packets of conversations with answers, and of those in one direction.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Conversed {
    window: [u64; 2],
    both: f64,
    one: f64,
}

impl Conversed {
    fn end_window(&mut self, is_peaceful: bool) {
        let [both, one] = std::mem::take(&mut self.window).map(|count| count as f64);
        if is_peaceful {
            self.both = self.both * PAST + both;
            self.one = self.one * PAST + one;
        }
    }

    /// Whether answers are seen, if so few packets can say it.
    fn is_two_way(&self, was_two_way: bool) -> Option<bool> {
        let all = self.both + self.one;
        (all >= PACKETS_MIN).then_some(self.both >= all * if was_two_way { STOP } else { BEGIN })
    }
}

/// Which directions of traffic are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Directions {
    /// Too few packets of conversations were seen to say it.
    #[default]
    Unknown,
    /// Answers are not seen.
    One,
    /// Answers are seen.
    Both,
}

impl Directions {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Directions::Unknown => "unknown",
            Directions::One => "one",
            Directions::Both => "both",
        }
    }
}

/// Finds which directions are seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Visibility {
    segments: Conversed,
    datagrams: Conversed,
    directions: Directions,
}

impl Visibility {
    /// Counts a packet to a protected host.
    pub fn count(&mut self, header: &Header, standing: &Standing) {
        let is_stream = standing.stream != Stream::None;
        match (header.protocol, standing.proof) {
            (protocol::TCP, Proof::Real) => self.segments.window[0] += 1,
            (protocol::TCP, Proof::Plausible(_)) => self.segments.window[1] += 1,
            (protocol::UDP, Proof::Vouched(_)) => self.datagrams.window[0] += 1,
            (protocol::UDP, Proof::Plausible(_)) => self.datagrams.window[1] += 1,
            (protocol::UDP, Proof::None) if is_stream => self.datagrams.window[1] += 1,
            _ => {}
        }
    }

    /// Ends a window. During an attack nothing changes, because the attacker would decide.
    pub fn end_window(&mut self, is_peaceful: bool) {
        self.segments.end_window(is_peaceful);
        self.datagrams.end_window(is_peaceful);
        if is_peaceful {
            let was_two_way = self.is_two_way();
            let said = self.segments.is_two_way(was_two_way).or_else(|| self.datagrams.is_two_way(was_two_way));
            self.directions =
                said.map_or(self.directions, |both| if both { Directions::Both } else { Directions::One });
        }
    }

    /// Which directions are seen.
    pub fn directions(&self) -> Directions {
        self.directions
    }

    /// Whether answers are seen.
    pub fn is_two_way(&self) -> bool {
        self.directions == Directions::Both
    }
}

#[cfg(test)]
mod tests {
    use super::Visibility;
    use crate::header::{Header, protocol};
    use crate::measure::conversations::{Proof, Standing, Stream, Voucher};

    fn count(visibility: &mut Visibility, protocol: u8, proof: Proof, packets: u32) {
        let header = Header { protocol, ..Header::between(1, 2) };
        let stream = if proof == Proof::None { Stream::Further } else { Stream::None };
        (0..packets).for_each(|_| visibility.count(&header, &Standing { proof, stream, ..Standing::UNKNOWN }));
    }

    fn windows(visibility: &mut Visibility, number: u32, real: u32, plausible: u32, is_peaceful: bool) {
        for _ in 0..number {
            count(visibility, protocol::TCP, Proof::Real, real);
            count(visibility, protocol::TCP, Proof::Plausible(0), plausible);
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

    #[test]
    fn streams_in_one_direction_do_not_hide_that_connections_are_answered() {
        let mut visibility = Visibility::default();
        for proof in [Proof::Plausible(0), Proof::None] {
            count(&mut visibility, protocol::UDP, proof, 10_000);
            windows(&mut visibility, 10, 10, 0, true);
            assert!(visibility.is_two_way());
        }
    }

    #[test]
    fn datagrams_say_it_where_there_is_no_tcp() {
        let two_way = |vouched: u32, streamed: u32| {
            let mut visibility = Visibility::default();
            count(&mut visibility, protocol::UDP, Proof::Vouched(Voucher::Few), vouched);
            count(&mut visibility, protocol::UDP, Proof::None, streamed);
            visibility.end_window(true);
            visibility.is_two_way()
        };
        assert_eq!([two_way(19, 0), two_way(20, 0), two_way(20, 30)], [false, true, false]);
    }
}
