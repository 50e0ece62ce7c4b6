//! What software does with a frame from the card's port: it compares the seal, and removes the trailer.

use weir_abi::card::{SEAL_BYTES, Seal};

/// A configuration of the card: its seals are constants, which software has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The epoch.
    pub epoch: u16,
    /// Bytes of the body.
    pub body: u8,
}

/// The card's port, as software knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The card's secret.
    pub token: u64,
    /// The configuration for the software's policy.
    pub own: Configured,
    /// The configurations whose frames may also arrive: earlier ones, and the one that the card gets next.
    pub others: Vec<Configured>,
}

/// What a frame from a sealed port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'f> {
    /// A packet with answers of the software's epoch.
    Answered {
        /// The packet, without its trailer.
        packet: &'f [u8],
        /// The body.
        body: &'f [u8],
    },
    /// A packet that software decides alone: the card has no answers, or they are of another epoch.
    Alone {
        /// The packet, without its trailer.
        packet: &'f [u8],
    },
    /// The answer to a control frame.
    Control {
        /// The frame, without its seal.
        frame: &'f [u8],
    },
    /// A frame that does not end with the card's seal. It is dropped (`docs/decisions/0046-card-metadata.md`).
    Unsealed,
}

impl Port {
    /// The seal of frames with answers for the software's policy.
    pub const fn expected(&self) -> Seal {
        self.seal(self.own, true)
    }

    const fn seal(&self, Configured { epoch, body }: Configured, answers: bool) -> Seal {
        Seal { token: self.token, control: false, answers, body: if answers { body } else { 0 }, epoch }
    }

    /// Reads the trailer of a frame. `frame` must contain all bytes of the frame.
    pub fn receive<'f>(&self, frame: &'f [u8]) -> Received<'f> {
        let Some((rest, seal)) = frame.split_last_chunk::<SEAL_BYTES>() else { return Received::Unsealed };
        let seal = Seal::of(u64::from_le_bytes(*seal));
        let Some(at) = rest.len().checked_sub(usize::from(seal.body)) else { return Received::Unsealed };
        let (packet, body) = rest.split_at(at);
        if seal == self.expected() {
            return Received::Answered { packet, body };
        }
        for known in [self.own].iter().chain(&self.others) {
            let alone = self.seal(*known, false);
            if seal == alone || seal == self.seal(*known, true) {
                return Received::Alone { packet };
            }
            if seal == (Seal { control: true, ..alone }) {
                return Received::Control { frame: rest };
            }
        }
        Received::Unsealed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> Port {
        let (own, earlier) = (Configured { epoch: 7, body: 3 }, Configured { epoch: 6, body: 2 });
        Port { token: 0x12_3456_789a, own, others: vec![earlier] }
    }

    fn frame(seal: Seal) -> Vec<u8> {
        [&[9; 60][..], &[1, 2, 3][..usize::from(seal.body).min(3)], &seal.word().to_le_bytes()].concat()
    }

    #[test]
    fn only_the_expected_seal_has_answers() {
        let (port, expected) = (port(), port().expected());
        let received = |seal: Seal| port.receive(&frame(seal)) == Received::Alone { packet: &[9; 60] };
        assert_eq!(port.receive(&frame(expected)), Received::Answered { packet: &[9; 60], body: &[1, 2, 3] });
        assert!(received(Seal { answers: false, body: 0, ..expected }));
        assert!(received(Seal { epoch: 6, body: 2, ..expected }), "a body of another epoch is removed");
        assert!(received(Seal { epoch: 6, answers: false, body: 0, ..expected }));
        let control = Seal { control: true, answers: false, body: 0, ..expected };
        assert_eq!(port.receive(&frame(control)), Received::Control { frame: &[9; 60] });
        for wrong in [
            Seal { body: 2, ..expected },
            Seal { epoch: 6, ..expected },
            Seal { epoch: 5, ..expected },
            Seal { answers: false, ..expected },
            Seal { control: true, ..expected },
            Seal { token: 0, ..expected },
        ] {
            assert_eq!(port.receive(&frame(wrong)), Received::Unsealed, "{wrong:?}");
        }
    }

    #[test]
    fn no_bit_of_a_seal_may_differ() {
        let port = port();
        for bit in 0..64 {
            let seal = Seal::of(port.expected().word() ^ 1 << bit);
            assert_eq!(port.receive(&frame(seal)), Received::Unsealed, "bit {bit}");
        }
    }

    #[test]
    fn a_part_of_a_trailer_is_none() {
        let (port, whole) = (port(), frame(port().expected()));
        for length in 0..whole.len() {
            assert_eq!(port.receive(&whole[..length]), Received::Unsealed, "{length} bytes");
        }
        // A seal without room for the body that it names.
        assert_eq!(port.receive(&port.expected().word().to_le_bytes()), Received::Unsealed);
    }
}
