//! A worker's end of the taps.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_abi::{BURST_MAX, Verdict};
use weir_tables::SplitMix;

use super::copy_ring::{Head, RingWriter, WorkerCounts};
use super::head;
use super::open_tap::OpenTap;
use super::policy_bits::PolicyBits;
use super::taps::Taps;
use crate::FrameBurst;
use crate::live::lane::Side;

/// A bit for each packet of a burst.
type Packets = u64;
const _: () = assert!(BURST_MAX <= Packets::BITS as usize);

/// A worker's end of the taps. As long as none is open, a burst costs one read of a word that nothing writes.
pub(in crate::live) struct WorkerTaps {
    taps: Arc<Taps>,
    number: usize,
    /// The version of `open`.
    seen: u64,
    open: Vec<OwnTap>,
    /// The policy that decides packets.
    policy: Option<Arc<PolicyBits>>,
    random: SplitMix,
}

/// An open tap, as one worker uses it.
struct OwnTap {
    /// Dropped before `tap`, so that the rings of an unused tap are unused too.
    writer: RingWriter,
    tap: Arc<OpenTap>,
    /// Wanted packets that go by until the next copy.
    skip: u64,
}

/// A decided burst, whose packets end before as many bytes as `cut` says.
struct Decided<'a> {
    policy: &'a PolicyBits,
    from: Side,
    burst: &'a FrameBurst<'a>,
    verdicts: &'a [Verdict],
    cut: &'a [u8; BURST_MAX],
}

impl WorkerTaps {
    pub fn new(taps: Arc<Taps>) -> Self {
        // Nobody outside can know which packets are chosen.
        let random = SplitMix::new(RandomState::new().build_hasher().finish());
        let number = taps.join();
        WorkerTaps { taps, number, seen: 0, open: Vec::new(), policy: None, random }
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
            self.use_taps(open);
            self.seen = version;
        }
        if self.open.is_empty() {
            return;
        }
        let WorkerTaps { open, policy: Some(policy), random, .. } = self else { return };
        let decided = Decided { policy, from, burst, verdicts, cut };
        let mut at_ns = None;
        for own in open {
            let wanted = own.wanted(&decided);
            if wanted != 0 {
                own.copy(wanted, &decided, random, &mut at_ns);
            }
        }
    }

    /// Uses these taps. Those that it uses already go on.
    fn use_taps(&mut self, open: Vec<Arc<OpenTap>>) {
        self.open.retain(|own| open.iter().any(|tap| Arc::ptr_eq(tap, &own.tap)));
        for tap in open {
            if !self.open.iter().any(|own| Arc::ptr_eq(&tap, &own.tap)) {
                let skip = next_skip(tap.filter.one_in, &mut self.random);
                self.open.push(OwnTap { writer: tap.ring(self.number).writer(), tap, skip });
            }
        }
    }
}

impl OwnTap {
    /// The packets that the tap wants, by side, action and reason.
    fn wanted(&self, decided: &Decided<'_>) -> Packets {
        let Decided { policy, from, verdicts, .. } = *decided;
        if self.tap.wants_all(from) {
            return first(verdicts.len());
        }
        let is_wanted =
            |verdict: Verdict| self.tap.wants(verdict, from) && policy.of(verdict.reason()) >> self.tap.index & 1 != 0;
        verdicts.iter().rev().fold(0, |packets, &verdict| packets << 1 | Packets::from(is_wanted(verdict)))
    }

    /// Copies the wanted packets that are chosen and within the budget. Out of the way of bursts without them.
    fn copy(&mut self, wanted: Packets, decided: &Decided<'_>, random: &mut SplitMix, at_ns: &mut Option<u64>) {
        let OwnTap { tap, writer, skip } = self;
        WorkerCounts::add(&writer.counts().matched, wanted.count_ones().into());
        let mut left = wanted;
        if tap.filter.tests_headers() {
            left = by_headers(tap, left, decided.burst);
            WorkerCounts::add(&writer.counts().excluded, (wanted & !left).count_ones().into());
        }
        let chosen = choose(left, tap.filter.one_in, skip, random);
        if chosen == 0 {
            return;
        }
        let granted = tap.grant(chosen.count_ones());
        WorkerCounts::add(&writer.counts().over, (chosen.count_ones() - granted).into());
        let Decided { policy, from, burst, verdicts, cut } = *decided;
        for index in bits(chosen).take(granted as usize) {
            let (frame, cut) = (burst.frames()[index], u32::from(cut[index]));
            let wire_len = frame.len.saturating_sub(cut);
            let captured = frame.cap.min(wire_len).min(tap.filter.snap());
            let head = Head {
                captured,
                wire_len,
                verdict: verdicts[index],
                policy: policy.number(),
                at_ns: *at_ns.get_or_insert_with(since_1970),
                link: burst.link(),
                from,
            };
            writer.push(head, &burst.bytes(index)[..captured as usize]);
        }
        writer.publish();
    }
}

/// The first packets of a burst, so many.
fn first(packets: usize) -> Packets {
    Packets::MAX.checked_shr(Packets::BITS - packets as u32).unwrap_or(0)
}

/// The numbers of packets, in order.
fn bits(mut packets: Packets) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (packets != 0).then(|| packets.trailing_zeros() as usize)?;
        packets &= packets - 1;
        Some(index)
    })
}

/// Without the packets whose headers are not as wanted.
fn by_headers(tap: &OpenTap, packets: Packets, burst: &FrameBurst<'_>) -> Packets {
    let is_excluded =
        |index: &usize| head::excludes(&tap.filter.headers, &head::read(burst.link(), burst.bytes(*index)));
    bits(packets).filter(is_excluded).fold(packets, |left, index| left & !(1 << index))
}

/// One packet in `one_in`. Packets that are not chosen cost one subtraction for all in the burst.
fn choose(packets: Packets, one_in: u32, skip: &mut u64, random: &mut SplitMix) -> Packets {
    if one_in <= 1 {
        return packets;
    }
    let count = u64::from(packets.count_ones());
    if *skip >= count {
        *skip -= count;
        return 0;
    }
    let mut chosen = 0;
    for index in bits(packets) {
        match *skip {
            0 => {
                chosen |= 1 << index;
                *skip = next_skip(one_in, random);
            }
            _ => *skip -= 1,
        }
    }
    chosen
}

/// Packets that go by until the next copy: any number below twice `one_in` - 1, so their mean is `one_in` - 1 (sFlow
/// version 5, section 3.1).
fn next_skip(one_in: u32, random: &mut SplitMix) -> u64 {
    random.below(2 * u64::from(one_in.max(1)) - 1)
}

/// The time in ns since 1970.
pub(super) fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
