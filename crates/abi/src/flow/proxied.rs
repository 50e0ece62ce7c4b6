//! What translates the packets of a proxied flow. It lies beside the table of flows, one for each slot.

use super::Side;
use crate::cookie::MSS;

/// The data of a proxied flow (`struct flow_proxied`).
///
/// ```text
///  bytes 0-3    delta: what is added to the server's sequence numbers; before its SYN-ACK, the cookie
///  bytes 4-7    stamp: what is added to the server's timestamps; before its SYN-ACK, the timestamp of the cookie
///  bytes 8-11   the server's initial number; before its SYN-ACK 0
///  bytes 12-13  the MSS in the SYN to the server
///  bytes 14-15   15      10    9     8    7            4 3              0
///               +----------+------+----+--------------+----------------+
///               |    0     | sack | ts | told to it   | client's shift |
///               +----------+------+----+--------------+----------------+
/// ```
/// `sack` and `ts` say that the client was offered selective acknowledgements and timestamps. The first shift is the
/// shift of the client's windows, or 15 if windows are not shifted. The second one is the shift that the client expects
/// of the server's windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Proxied {
    /// See above.
    pub delta: u32,
    /// See above.
    pub stamp: u32,
    /// See above.
    pub isn: u32,
    /// See above.
    pub mss: u16,
    bits: u16,
}

const _: () = assert!(size_of::<Proxied>() == 16);

/// The bits of a [`Proxied`].
const TIMESTAMPS: u16 = 1 << 8;
const SACK: u16 = 1 << 9;
/// The number of bits that have a meaning.
const BITS: u32 = 10;

/// What was agreed with the client of a proxied flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The shift of the client's windows, or [`Side::NO_SCALE`].
    pub client_scale: u8,
    /// The shift of the server's windows that the client was told, or 0.
    pub told_scale: u8,
    /// Whether segments have timestamps.
    pub timestamps: bool,
    /// Whether selective acknowledgements are permitted.
    pub sack: bool,
}

impl Proxied {
    /// A flow whose client returned a cookie, and the timestamp of the cookie.
    pub fn new(cookie: u32, stamp: u32, mss: u16, agreed: Agreed) -> Self {
        let Agreed { client_scale, told_scale, timestamps, sack } = agreed;
        let bits = u16::from(client_scale) | u16::from(told_scale) << 4;
        let bits = bits | if timestamps { TIMESTAMPS } else { 0 } | if sack { SACK } else { 0 };
        Proxied { delta: cookie, stamp, isn: 0, mss, bits }
    }

    /// The words of the array beside the table.
    pub fn pack(&self) -> [u64; 2] {
        let Proxied { delta, stamp, isn, mss, bits } = *self;
        let low = u64::from(delta) | u64::from(stamp) << 32;
        [low, u64::from(isn) | u64::from(mss) << 32 | u64::from(bits) << 48].map(u64::to_le)
    }

    /// The reverse of [`Proxied::pack`].
    pub fn unpack(words: [u64; 2]) -> Self {
        let [low, high] = words.map(u64::from_le);
        let (mss, bits) = ((high >> 32) as u16, (high >> 48) as u16);
        Proxied { delta: low as u32, stamp: (low >> 32) as u32, isn: high as u32, mss, bits }
    }

    /// Whether a cookie can have opened such a flow. Code relies on nothing else.
    pub fn is_sound(&self) -> bool {
        self.bits >> BITS == 0 && MSS.contains(&self.mss)
    }

    /// What was agreed with the client.
    pub fn agreed(&self) -> Agreed {
        Agreed {
            client_scale: self.bits as u8 & 15,
            told_scale: (self.bits >> 4) as u8 & 15,
            timestamps: self.bits & TIMESTAMPS != 0,
            sack: self.bits & SACK != 0,
        }
    }

    /// The flow with the numbers of the server's SYN-ACK, and its timestamp if it has one.
    pub fn answered(self, isn: u32, timestamp: Option<u32>) -> Self {
        let mut agreed = self.agreed();
        agreed.timestamps &= timestamp.is_some();
        let stamp = self.stamp.wrapping_sub(timestamp.unwrap_or(self.stamp));
        Proxied { isn, ..Proxied::new(self.delta.wrapping_sub(isn), stamp, self.mss, agreed) }
    }

    /// The window field for the server of a client's segment without SYN, if the server shifts it by `scale`.
    pub fn window_for_server(&self, window: u16, scale: u8) -> u16 {
        match self.agreed().client_scale {
            Side::NO_SCALE => window,
            shift => shifted(window, shift, scale),
        }
    }

    /// The window field for the client of a server's segment, which the server has shifted by `scale`.
    pub fn window_for_client(&self, window: u16, scale: u8) -> u16 {
        shifted(window, scale, self.agreed().told_scale)
    }
}

/// A window with another shift, as large as the field allows.
fn shifted(window: u16, from: u8, to: u8) -> u16 {
    u16::try_from((u32::from(window) << from) >> to).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_agreed_survives_packing() {
        for client_scale in 0..16 {
            for told_scale in 0..15 {
                let agreed =
                    Agreed { client_scale, told_scale, timestamps: told_scale & 1 != 0, sack: told_scale & 2 != 0 };
                assert_eq!(Proxied::new(1, 2, 3, agreed).agreed(), agreed);
            }
        }
    }

    #[test]
    fn words_are_the_bytes_of_the_layout() {
        let agreed = Agreed { client_scale: 7, told_scale: 9, timestamps: true, sack: false };
        let proxied = Proxied::new(0x0403_0201, 0x0807_0605, 1460, agreed);
        let proxied = Proxied { isn: 0x0c0b_0a09, ..proxied };
        let bytes: Vec<u8> = proxied.pack().into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xb4, 0x05, 0x97, 0x01]);
        assert_eq!(Proxied::unpack(proxied.pack()), proxied);
        assert!(proxied.is_sound() && !Proxied { mss: 1459, ..proxied }.is_sound());
        assert!(!Proxied { bits: 1 << 10, ..proxied }.is_sound() && !Proxied::default().is_sound());
    }

    #[test]
    fn the_cookie_becomes_a_difference() {
        let agreed = Agreed { client_scale: 7, told_scale: 9, timestamps: true, sack: true };
        let answered = Proxied::new(10, 100, 1460, agreed).answered(0xffff_fff0, Some(0xffff_ff00));
        assert_eq!((answered.delta, answered.stamp, answered.isn), (26, 356, 0xffff_fff0));
        assert_eq!(answered.agreed(), agreed);
        let without = Proxied::new(10, 100, 1460, agreed).answered(3, None);
        assert_eq!((without.delta, without.stamp, without.agreed().timestamps), (7, 0, false));
    }

    #[test]
    fn windows_are_shifted_from_one_shift_to_another() {
        let agreed = Agreed { client_scale: 7, told_scale: 9, timestamps: true, sack: true };
        let proxied = Proxied::new(0, 0, 1460, agreed);
        assert_eq!(proxied.window_for_server(500, 7), 500);
        assert_eq!(proxied.window_for_server(500, 0), 64_000);
        assert_eq!(proxied.window_for_server(513, 0), 65_535);
        assert_eq!(proxied.window_for_client(1024, 0), 2);
        assert_eq!(proxied.window_for_client(65_535, 14), 65_535);
        let none = Agreed { client_scale: Side::NO_SCALE, told_scale: 0, timestamps: false, sack: false };
        assert_eq!(Proxied::new(0, 0, 1460, none).window_for_server(500, 0), 500);
        assert_eq!(Proxied::new(0, 0, 1460, none).window_for_client(500, 0), 500);
    }
}
