//! Bounds the debts of buckets when another generation becomes active.
//!
//! A debt is a time, and at most the room of the limit that charged the bucket. A limit with less room, as a higher
//! rate has, would let nothing pass until the old debt is paid: after `1pps burst 10` up to ten seconds, after
//! `1/hour burst 10` up to ten hours. Therefore a debt is reduced to the room of the limit that is now active: the
//! bucket is empty, and the next packet passes as soon as the new rate has earned it.

use weir_abi::LimitProfile;

use super::limit_store::WordFormat;
use super::{LimiterBuckets, Limits};

impl Limits {
    /// Reduces each debt to the room of its limit, while packets charge the buckets. Programs of other generations must
    /// not charge them any more. `clock` returns the present in nanoseconds. Returns whether any debt was larger.
    ///
    /// A debt that a charge of these limits makes is never changed, so no packet passes beyond its limit. Limits of 0
    /// pass nothing and leave the debt as it is.
    pub fn bound_debts(&self, clock: &dyn Fn() -> u64) -> bool {
        let mut any = false;
        for (number, &LimiterBuckets { declared, offset, .. }) in self.limiters.iter().enumerate() {
            let assigned = self.binding.object(declared);
            for (entry, &first) in assigned.slots().iter().enumerate() {
                let profile = self.image.profile(number, entry).filter(|&profile| profile != LimitProfile::CLOSED);
                let Some(profile) = profile else { continue };
                any |= match assigned.format() {
                    WordFormat::Buckets => {
                        let slot = first + offset;
                        self.buckets.bound(slot..slot + 1, profile.room, clock)
                    }
                    WordFormat::AddressTable { .. } => {
                        self.buckets.bound_addresses(first..first + assigned.width(), profile, clock)
                    }
                    WordFormat::Seats(_) => false,
                };
            }
        }
        any
    }
}
