//! A worker's end of the taps.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_abi::{BURST_MAX, Verdict};
use weir_tables::SplitMix;

use super::head;
use super::open_tap::{Copied, OpenTap};
use super::policy_bits::PolicyBits;
use super::taps::Taps;
use crate::FrameBurst;
use crate::live::lane::Side;

/// A worker's end of the taps. As long as none is open, a burst costs one read of a word that nothing writes.
pub(in crate::live) struct WorkerTaps {
    taps: Arc<Taps>,
    /// The version of `open`.
    seen: u64,
    open: Vec<Arc<OpenTap>>,
    /// The policy that decides packets.
    policy: Option<Arc<PolicyBits>>,
    random: SplitMix,
}

impl WorkerTaps {
    pub fn new(taps: Arc<Taps>) -> Self {
        // Nobody outside can know which packets are chosen.
        let random = SplitMix::new(RandomState::new().build_hasher().finish());
        WorkerTaps { taps, seen: 0, open: Vec::new(), policy: None, random }
    }

    /// Notes which policy decides the next burst.
    pub fn follow(&mut self, policy: &Arc<PolicyBits>) {
        if self.policy.as_ref().is_none_or(|known| !Arc::ptr_eq(known, policy)) {
            self.policy = Some(policy.clone());
        }
    }

    /// Copies packets of a burst, which end before as many bytes as `cut` says, to the taps that want them.
    pub fn take(&mut self, from: Side, burst: &FrameBurst<'_>, verdicts: &[Verdict], cut: &[u8; BURST_MAX]) {
        let version = self.taps.version.load(Ordering::Relaxed);
        // Who opens or closes a tap holds the lock. The worker then looks again with the next burst.
        if version != self.seen
            && let Some(open) = self.taps.try_open_taps()
        {
            (self.open, self.seen) = (open, version);
        }
        if self.open.is_empty() {
            return;
        }
        if let Some(policy) = self.policy.clone() {
            self.copy(&policy, from, burst, verdicts, cut);
        }
    }

    fn copy(
        &mut self,
        policy: &PolicyBits,
        from: Side,
        burst: &FrameBurst<'_>,
        verdicts: &[Verdict],
        cut: &[u8; BURST_MAX],
    ) {
        let mut at_ns = None;
        for (index, &verdict) in verdicts.iter().enumerate() {
            let wanting = policy.of(verdict.reason());
            if wanting == 0 {
                continue;
            }
            let mut head = None;
            for tap in self.open.iter().filter(|tap| wanting >> tap.index & 1 != 0 && tap.wants(verdict, from)) {
                if tap.filter.tests_headers() {
                    let head = head.get_or_insert_with(|| head::read(burst.link(), burst.bytes(index)));
                    if head::excludes(&tap.filter.headers, head) {
                        tap.exclude();
                        continue;
                    }
                }
                if !tap.takes(|| (self.random.draw() >> 32) as u32) {
                    continue;
                }
                let (frame, cut) = (burst.frames()[index], u32::from(cut[index]));
                let wire_len = frame.len.saturating_sub(cut);
                let captured = frame.cap.min(wire_len).min(tap.filter.snap()) as usize;
                tap.send(Copied {
                    bytes: burst.bytes(index)[..captured].into(),
                    wire_len,
                    link: burst.link(),
                    from,
                    verdict,
                    policy: policy.number(),
                    names: policy.names(),
                    at_ns: *at_ns.get_or_insert_with(since_1970),
                });
            }
        }
    }
}

/// The time in ns since 1970.
pub(super) fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
