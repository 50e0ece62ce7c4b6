//! A burst source in memory: frames loaded beforehand and run through a filter again and again, for cycles a packet.

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
        let bytes = AlignedBytes::copy_of(&bytes);
        let frame = |&(at, cap, len): &(usize, u32, u32)| Frame { data: bytes[at..].as_ptr(), cap, len };
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

fn run(filter: &mut dyn Filter, chain: usize, frames: &FrameSet) -> Result<(), EngineError> {
    let mut verdicts = [Verdict(0); BURST_MAX];
    for burst in frames.bursts() {
        filter.decide(chain, &burst, &mut verdicts)?;
    }
    std::hint::black_box(&verdicts);
    Ok(())
}
