//! SYN cookies: the number of a SYN-ACK that proves, when it comes back, that Weir sent it. Also the timestamp of the
//! SYN-ACK, which keeps the options of the SYN. `docs/decisions/0037-synproxy.md` says why; `datapath/proxy/cookie.h`
//! is the same in C.
//!
//! ```text
//!   31                                    4    3     2   0       31                    9 8     5    4   3       0
//!  +----------------------------------------+-------+-----+     +----------------------+-------+------+---------+
//!  | SipHash-2-4 of the words below, 28     | epoch | mss |     | time in 2^29 ns, 23  | told  | sack |  shift  |
//!  +----------------------------------------+-------+-----+     +----------------------+-------+------+---------+
//!                       the cookie                                              the timestamp
//! ```
//! `shift` is the shift of the client's windows, `told` the shift of the server's windows as the SYN-ACK says. So the
//! policy that gets the ACK knows what another one has offered. Time and options together count in units of 2^20 ns.
//!
//! The message is the five words of the flow's key and two more:
//!
//! ```text
//!  word 5    the client's initial number, 32 | epoch, 32
//!  word 6    0, 48 | index of the MSS, 8 | 0, 6 | IPv6, 1 | side of the client, 1
//! ```
//! The lowest 28 bits of the hash are taken.

use crate::flow::{FlowKey, Side};
use crate::siphash::siphash;

/// log2 of the number of nanoseconds of an epoch, 69 s. Cookies of this and the previous epoch are valid.
pub const EPOCH_SHIFT: u32 = 36;
/// The MSS that a cookie can keep (RFC 9293, section 3.7.1: 536 if a SYN has none).
pub const MSS: [u16; 8] = [536, 1220, 1300, 1360, 1400, 1440, 1452, 1460];
/// The secret of replays of captures, which makes them deterministic.
pub const REPLAY_SECRET: [u64; 2] = [0, 1];

/// The bits of a cookie and of a timestamp.
const MSS_BITS: u32 = 3;
const EPOCH_BIT: u32 = 1 << MSS_BITS;
const HASH_SHIFT: u32 = MSS_BITS + 1;
/// log2 of the unit of timestamps in ns: 1.05 ms, between 1 ms and 1 s (RFC 7323, section 5.4).
const STAMP_SHIFT: u32 = 20;
const STAMP_OPTIONS: u32 = (1 << 9) - 1;
const STAMP_SACK: u32 = 1 << 4;
const STAMP_TOLD: u32 = 5;

/// What a cookie is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The flow that it opens.
    pub key: FlowKey,
    /// The side of the client.
    pub client: usize,
    /// The number of the client's SYN.
    pub isn: u32,
}

/// The epoch of a time.
pub const fn epoch(time_ns: u64) -> u32 {
    (time_ns >> EPOCH_SHIFT) as u32
}

/// The index of the largest MSS that is not above the client's; the first if all are.
pub fn mss_index(mss: u16) -> usize {
    MSS.iter().rposition(|&known| known <= mss).unwrap_or(0)
}

/// The cookie of a request in an epoch.
pub fn make(secret: [u64; 2], request: &Request, epoch: u32, mss_index: usize) -> u32 {
    let Request { key, client, isn } = request;
    let [a, b, c, d, e] = key.words;
    let last = (mss_index as u64) << 8 | u64::from(key.is_ipv6) << 1 | *client as u64;
    let hash = siphash(secret, &[a, b, c, d, e, u64::from(*isn) << 32 | u64::from(epoch), last]);
    (hash as u32) << HASH_SHIFT | (epoch & 1) << MSS_BITS | mss_index as u32
}

/// The MSS in a cookie, if the cookie is valid: made for this request in the epoch `now` or the one before.
pub fn check(secret: [u64; 2], request: &Request, now: u32, cookie: u32) -> Option<u16> {
    let is_of_now = cookie & EPOCH_BIT == (now & 1) << MSS_BITS;
    let epoch = if is_of_now { now } else { now.wrapping_sub(1) };
    let index = (cookie & (EPOCH_BIT - 1)) as usize;
    (make(secret, request, epoch, index) == cookie).then_some(MSS[index])
}

/// What a client was offered with timestamps: the timestamp of the SYN-ACK keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedOptions {
    /// The shift of the client's windows, or [`Side::NO_SCALE`] if windows are not shifted.
    pub scale: u8,
    /// The shift of the server's windows that the client was told, or 0.
    pub told_scale: u8,
    /// Whether selective acknowledgements are permitted.
    pub sack: bool,
}

impl StampedOptions {
    /// None.
    pub const NONE: Self = StampedOptions { scale: Side::NO_SCALE, told_scale: 0, sack: false };

    /// The options in a timestamp.
    pub const fn of(timestamp: u32) -> Self {
        let told_scale = (timestamp >> STAMP_TOLD) as u8 & 15;
        StampedOptions { scale: timestamp as u8 & 15, told_scale, sack: timestamp & STAMP_SACK != 0 }
    }

    /// The timestamp at a time. With the same options it never goes back.
    pub const fn timestamp(self, time_ns: u64) -> u32 {
        let sack = if self.sack { STAMP_SACK } else { 0 };
        let told = (self.told_scale as u32) << STAMP_TOLD;
        (time_ns >> STAMP_SHIFT) as u32 & !STAMP_OPTIONS | told | sack | self.scale as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Arrival;

    fn request(isn: u32) -> Request {
        let key = FlowKey::of(Arrival::Outside, (0xc000_0201, 40_000), (0xc633_6401, 80), 6, [0; 2], false);
        Request { key, client: Arrival::Outside.side(), isn }
    }

    #[test]
    fn a_cookie_is_valid_in_two_epochs_and_for_one_request() {
        let secret = [3, 4];
        for (epoch, mss) in [(0, 0), (7, 5), (u32::MAX, 7)] {
            let cookie = make(secret, &request(100), epoch, mss);
            let next = epoch.wrapping_add(1);
            assert_eq!(check(secret, &request(100), epoch, cookie), Some(MSS[mss]));
            assert_eq!(check(secret, &request(100), next, cookie), Some(MSS[mss]));
            assert_eq!(check(secret, &request(100), next.wrapping_add(1), cookie), None);
            assert_eq!(check(secret, &request(100), epoch.wrapping_sub(1), cookie), None, "made later");
            assert_eq!(check(secret, &request(101), epoch, cookie), None);
            assert_eq!(check([3, 5], &request(100), epoch, cookie), None);
            let of_server = Request { client: 1 - request(100).client, ..request(100) };
            assert_eq!(check(secret, &of_server, epoch, cookie), None);
            for bit in 0..32 {
                assert_eq!(check(secret, &request(100), epoch, cookie ^ 1 << bit), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn the_largest_mss_that_the_client_receives() {
        assert_eq!([0, 535, 536, 1219, 1220, 1459, 1460, 65_535].map(mss_index), [0, 0, 0, 0, 1, 6, 7, 7]);
    }

    #[test]
    fn timestamps_keep_options_and_do_not_go_back() {
        for options in [StampedOptions::NONE, StampedOptions { scale: 14, told_scale: 13, sack: true }] {
            let mut last = options.timestamp(0);
            for time_ns in (0..1 << 32).step_by(1_000_003) {
                let stamp = options.timestamp(time_ns);
                assert_eq!(StampedOptions::of(stamp), options);
                assert!(stamp >= last && (stamp >> 9) << 29 <= time_ns as u32);
                last = stamp;
            }
        }
    }
}
