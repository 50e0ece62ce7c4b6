//! A burst of frames, as every filter takes it.

use std::marker::PhantomData;
use std::ptr;

use weir_abi::burst::Times;
use weir_abi::{BURST_MAX, Frame, Link};

/// Up to [`BURST_MAX`] frames of one link layer, readable for `'a`.
///
/// [`Frame`] holds plain pointers because C reads it; this type is what makes them safe to hand around.
#[derive(Clone, Copy, Debug)]
pub struct FrameBurst<'a> {
    frames: &'a [Frame],
    link: Link,
    now_ns: u64,
    /// One a frame, never falling; empty if all frames are of `now_ns`.
    times_ns: &'a [u64],
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> FrameBurst<'a> {
    /// A burst of `frames`, received at `now_ns`.
    ///
    /// # Panics
    /// If there are more than [`BURST_MAX`] of them.
    ///
    /// # Safety
    /// For all of `'a`, each frame's `data` must be valid for reads of `cap` bytes that nothing writes, and `cap <= len`.
    pub unsafe fn from_raw(frames: &'a [Frame], link: Link, now_ns: u64) -> Self {
        assert!(frames.len() <= BURST_MAX, "a burst has at most {BURST_MAX} frames");
        FrameBurst { frames, link, now_ns, times_ns: &[], bytes: PhantomData }
    }

    /// The same frames, each received at a time of its own.
    ///
    /// # Panics
    /// If there are not as many times as frames, or they fall.
    pub fn with_times(self, times_ns: &'a [u64]) -> Self {
        assert!(times_ns.len() == self.frames.len() && times_ns.is_sorted(), "a time for each frame, in order");
        FrameBurst { times_ns, ..self }
    }

    /// The same frames, all received at `now_ns`.
    pub fn received_at(self, now_ns: u64) -> Self {
        FrameBurst { now_ns, times_ns: &[], ..self }
    }

    /// The first frames, at most `count`.
    pub fn first(self, count: usize) -> Self {
        let count = count.min(self.frames.len());
        FrameBurst { frames: &self.frames[..count], times_ns: &self.times_ns[..count.min(self.times_ns.len())], ..self }
    }

    /// The frames but the first `count`.
    pub fn after(self, count: usize) -> Self {
        let count = count.min(self.frames.len());
        FrameBurst { frames: &self.frames[count..], times_ns: &self.times_ns[count.min(self.times_ns.len())..], ..self }
    }

    /// The frames as C reads them.
    pub fn frames(&self) -> &'a [Frame] {
        self.frames
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The captured bytes of frame `index`, link header first.
    pub fn bytes(&self, index: usize) -> &'a [u8] {
        let frame = &self.frames[index];
        if frame.cap == 0 {
            return &[];
        }
        // SAFETY: whoever called `from_raw` established that `data` is readable for `cap` bytes during 'a.
        unsafe { std::slice::from_raw_parts(frame.data, frame.cap as usize) }
    }

    /// Bytes that frame `index` had on the wire.
    pub fn wire_len(&self, index: usize) -> u32 {
        self.frames[index].len
    }

    /// The link layer of all of them.
    pub fn link(&self) -> Link {
        self.link
    }

    /// When the frames were received, as compiled chains take it.
    pub fn times(&self) -> Times {
        let each_ns = if self.times_ns.is_empty() { ptr::null() } else { self.times_ns.as_ptr() };
        Times { now_ns: self.now_ns, each_ns }
    }

    /// When frame `index` was received, ns. Limits go by it.
    pub fn time_ns(&self, index: usize) -> u64 {
        self.times_ns.get(index).copied().unwrap_or(self.now_ns)
    }

    /// Time of the burst in ns: since 1970 for a capture, which lends its own time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
}
