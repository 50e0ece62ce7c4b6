//! A burst source in memory, for cycles a packet: frames loaded beforehand and run through a filter again and again, or a ring of few that are
//! written anew before each burst, as a card does.

use weir_abi::{BURST_MAX, Frame, Link, Verdict};

use crate::image::AlignedBytes;
use crate::{EngineError, Filter, FrameBurst, tsc};

/// Frames start at multiples of this, as they do in a card's receive buffers.
const FRAME_ALIGN: usize = 64;

/// Frames of one link layer held in memory.
pub struct FrameSet {
    /// What `frames` point into.
    _bytes: AlignedBytes,
    frames: Vec<Frame>,
    /// When each frame is received, ns; never falling.
    times_ns: Vec<u64>,
    link: Link,
}

// SAFETY: the pointers in `frames` lead into `_bytes`, which the set owns and nobody writes.
unsafe impl Send for FrameSet {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for FrameSet {}

impl FrameSet {
    /// Copies packets, each with its captured bytes and its length on the wire (never less than what was captured).
    pub fn new<'a>(link: Link, packets: impl IntoIterator<Item = (&'a [u8], u32)>) -> Self {
        let mut bytes = Vec::new();
        let mut spans = Vec::new();
        for (packet, len) in packets {
            let cap = u32::try_from(packet.len()).expect("a frame is shorter than 4 GiB");
            spans.push((bytes.len(), cap, len.max(cap)));
            bytes.extend_from_slice(packet);
            bytes.resize(bytes.len().next_multiple_of(FRAME_ALIGN), 0);
        }
        let mut bytes = AlignedBytes::copy_of(&bytes);
        // One pointer that may write, for `frame_mut`, from which those of all frames come.
        let start = bytes.as_mut_ptr();
        let frame = |&(at, cap, len): &(usize, u32, u32)| Frame { data: start.wrapping_add(at), cap, len };
        let frames: Vec<Frame> = spans.iter().map(frame).collect();
        FrameSet { _bytes: bytes, times_ns: vec![0; frames.len()], frames, link }
    }

    /// The same frames, each received at a time of its own, or with the one before it if that was later.
    ///
    /// # Panics
    /// If there are not as many times as frames.
    pub fn with_times(self, times_ns: impl IntoIterator<Item = u64>) -> Self {
        let mut last = 0;
        let mut risen = |time_ns: u64| {
            last = time_ns.max(last);
            last
        };
        let times_ns: Vec<u64> = times_ns.into_iter().map(&mut risen).collect();
        assert_eq!(times_ns.len(), self.frames.len(), "a time for each frame");
        FrameSet { times_ns, ..self }
    }

    /// All frames again, so much later.
    pub fn delay(&mut self, by_ns: u64) {
        self.times_ns.iter_mut().for_each(|time_ns| *time_ns += by_ns);
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The captured bytes of a frame, to be changed.
    ///
    /// # Panics
    /// If there is none of this index.
    pub fn frame_mut(&mut self, index: usize) -> &mut [u8] {
        let Frame { data, cap, .. } = self.frames[index];
        // SAFETY: `new` made `data` of a pointer that may write `cap` bytes of `_bytes`, which nobody else reaches; bursts, which read them, cannot
        // outlive the shared borrow that they come from.
        unsafe { std::slice::from_raw_parts_mut(data.cast_mut(), cap as usize) }
    }

    /// The frames in bursts of [`BURST_MAX`], the last one shorter.
    pub fn bursts(&self) -> impl Iterator<Item = FrameBurst<'_>> {
        (0..self.frames.len().div_ceil(BURST_MAX)).map(|index| self.burst(index))
    }

    /// Burst `index` of [`FrameSet::bursts`].
    ///
    /// # Panics
    /// If there is none.
    pub fn burst(&self, index: usize) -> FrameBurst<'_> {
        let start = index * BURST_MAX;
        let range = start..self.frames.len().min(start + BURST_MAX);
        let (frames, times_ns) = (&self.frames[range.clone()], &self.times_ns[range]);
        // SAFETY: `new` made every frame point to `cap` bytes of `_bytes`, which lives as long as this borrow and is never
        // written; `cap <= len`.
        let burst = unsafe { FrameBurst::from_raw(frames, self.link, times_ns[0]) };
        burst.with_times(times_ns)
    }
}

/// A figure from several repeats of the same work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// The spread of `samples`; `None` if there are none.
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (&min, &max) = (samples.first()?, samples.last()?);
        Some(Spread { min, median: samples[samples.len() / 2], max })
    }

    /// All three multiplied by `factor`, which is positive.
    pub fn scaled(self, factor: f64) -> Self {
        Spread { min: self.min * factor, median: self.median * factor, max: self.max * factor }
    }
}

/// What deciding a packet cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// TSC cycles a packet.
    pub cycles_per_packet: Spread,
    /// Nanoseconds a packet.
    pub ns_per_packet: Spread,
    /// Packets of one repeat.
    pub packets: usize,
}

/// Runs all frames through `filter` once to warm up, then `repeats` times, and says what a packet cost in each repeat.
///
/// # Panics
/// If `frames` is empty or `repeats` is 0.
pub fn measure(filter: &mut dyn Filter, chain: usize, frames: &FrameSet, repeats: usize) -> Result<Cost, EngineError> {
    assert!(!frames.is_empty() && repeats > 0, "nothing to measure");
    run(filter, chain, frames)?;
    let mut samples = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let start = tsc::now();
        run(filter, chain, frames)?;
        samples.push((tsc::now() - start) as f64 / frames.len() as f64);
    }
    let cycles_per_packet = Spread::of(samples).expect("there was at least one repeat");
    let ns_per_packet = cycles_per_packet.scaled(1e9 / tsc::frequency_hz());
    Ok(Cost { cycles_per_packet, ns_per_packet, packets: frames.len() })
}

/// Takes frames as a card gives them: a ring of few, each written by `write` before it is decided. TSC cycles a packet for so many packets (or a
/// burst more), without what writing took, after as many that are not counted.
///
/// # Panics
/// If the ring is empty or no packets are wanted.
pub fn measure_ring(
    filter: &mut dyn Filter,
    chain: usize,
    ring: &mut FrameSet,
    packets: usize,
    mut write: impl FnMut(&mut [u8]),
) -> Result<f64, EngineError> {
    assert!(!ring.is_empty() && packets > 0, "nothing to measure");
    let mut verdicts = [Verdict(0); BURST_MAX];
    let bursts = ring.len().div_ceil(BURST_MAX);
    let mut cycles_of = |packets: usize| {
        let (mut cycles, mut decided, mut next) = (0, 0, 0);
        while decided < packets {
            let first = next * BURST_MAX;
            (first..ring.len().min(first + BURST_MAX)).for_each(|index| write(ring.frame_mut(index)));
            let burst = ring.burst(next);
            let start = tsc::now();
            filter.decide(chain, &burst, &mut verdicts)?;
            cycles += tsc::now() - start;
            decided += burst.len();
            next = (next + 1) % bursts;
        }
        std::hint::black_box(&verdicts);
        Ok::<_, EngineError>(cycles as f64 / decided as f64)
    };
    cycles_of(packets)?;
    cycles_of(packets)
}

fn run(filter: &mut dyn Filter, chain: usize, frames: &FrameSet) -> Result<(), EngineError> {
    let mut verdicts = [Verdict(0); BURST_MAX];
    for burst in frames.bursts() {
        filter.decide(chain, &burst, &mut verdicts)?;
    }
    std::hint::black_box(&verdicts);
    Ok(())
}
