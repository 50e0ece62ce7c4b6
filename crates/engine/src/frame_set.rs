//! Frames in memory, as a source of bursts.

use weir_abi::{BURST_MAX, Frame, Link};

use crate::FrameBurst;
use crate::image::AlignedBytes;

/// Alignment of frames, the same as in receive buffers of network cards.
const FRAME_ALIGN: usize = 64;

/// Frames of one link layer in memory.
pub struct FrameSet {
    /// The memory that `frames` point into.
    _bytes: AlignedBytes,
    frames: Vec<Frame>,
    /// Reception time of each frame in ns, never decreasing.
    times_ns: Vec<u64>,
    link: Link,
}

// SAFETY: the pointers in `frames` point into `_bytes`, which the set owns. Only `frame_mut` writes them.
unsafe impl Send for FrameSet {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for FrameSet {}

impl FrameSet {
    /// Copies packets. Each has its captured bytes and its length on the wire, which is raised to the captured length
    /// if it is less.
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
        // `frame_mut` writes through these pointers, so they derive from a mutable one.
        let start = bytes.as_mut_ptr();
        let frame = |&(at, cap, len): &(usize, u32, u32)| Frame { data: start.wrapping_add(at), cap, len };
        let frames: Vec<Frame> = spans.iter().map(frame).collect();
        FrameSet { _bytes: bytes, times_ns: vec![0; frames.len()], frames, link }
    }

    /// Gives each frame a reception time. A time less than its predecessor is replaced by the predecessor.
    ///
    /// # Panics
    /// If the number of times differs from the number of frames.
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

    /// Adds `by_ns` to the reception times of all frames.
    pub fn delay(&mut self, by_ns: u64) {
        self.times_ns.iter_mut().for_each(|time_ns| *time_ns += by_ns);
    }

    /// Moves all times back.
    ///
    /// # Panics
    /// If a time would be before 0.
    pub fn hasten(&mut self, by_ns: u64) {
        let earlier = |time_ns: &u64| time_ns.checked_sub(by_ns).expect("times were delayed before");
        self.times_ns.iter_mut().for_each(|time_ns| *time_ns = earlier(time_ns));
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The captured bytes of a frame, writable.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn frame_mut(&mut self, index: usize) -> &mut [u8] {
        let Frame { data, cap, .. } = self.frames[index];
        // SAFETY: `new` made `data` from a pointer that may write `cap` bytes of `_bytes`. Bursts also read them, but
        // cannot outlive a shared borrow of the set.
        unsafe { std::slice::from_raw_parts_mut(data.cast_mut(), cap as usize) }
    }

    /// The frames in bursts of [`BURST_MAX`] frames. The last burst may be shorter.
    pub fn bursts(&self) -> impl Iterator<Item = FrameBurst<'_>> {
        (0..self.frames.len().div_ceil(BURST_MAX)).map(|index| self.burst(index))
    }

    /// Burst `index` of [`FrameSet::bursts`].
    ///
    /// # Panics
    /// If there is no such burst.
    pub fn burst(&self, index: usize) -> FrameBurst<'_> {
        let start = index * BURST_MAX;
        let range = start..self.frames.len().min(start + BURST_MAX);
        let (frames, times_ns) = (&self.frames[range.clone()], &self.times_ns[range]);
        // SAFETY: `new` made every frame point to `cap` bytes of `_bytes`, with `cap <= len`. They live as long as this
        // borrow, during which nothing writes them.
        let burst = unsafe { FrameBurst::from_raw(frames, self.link, times_ns[0]) };
        burst.with_times(times_ns)
    }
}
