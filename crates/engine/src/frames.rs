//! A burst of frames: the input of every filter.

use std::marker::PhantomData;
use std::ptr;

use weir_abi::burst::Times;
use weir_abi::{BURST_MAX, Frame, Link};

/// Up to [`BURST_MAX`] frames of one link layer, readable for `'a`.
///
/// [`Frame`] contains raw pointers, because C reads it. This type adds their lifetime.
#[derive(Clone, Copy, Debug)]
pub struct FrameBurst<'a> {
    frames: &'a [Frame],
    link: Link,
    now_ns: u64,
    /// Time of each frame, never decreasing. It is empty if all frames have the time `now_ns`.
    times_ns: &'a [u64],
    /// Bytes behind each frame that can be read, too.
    behind: usize,
    /// The port at which they were received, by its number on its side.
    port: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> FrameBurst<'a> {
    /// A burst of `frames`, received at `now_ns`.
    ///
    /// # Panics
    /// If there are more than [`BURST_MAX`] of them.
    ///
    /// # Safety
    /// During `'a`, each frame's `data` must be valid for reads of `cap` bytes that nothing writes, and `cap <= len`.
    pub unsafe fn from_raw(frames: &'a [Frame], link: Link, now_ns: u64) -> Self {
        assert!(frames.len() <= BURST_MAX, "a burst has at most {BURST_MAX} frames");
        FrameBurst { frames, link, now_ns, times_ns: &[], behind: 0, port: 0, bytes: PhantomData }
    }

    /// These frames with a time for each one.
    ///
    /// # Panics
    /// If the number of times differs from the number of frames, or a time is less than its predecessor.
    pub fn with_times(self, times_ns: &'a [u64]) -> Self {
        assert!(times_ns.len() == self.frames.len() && times_ns.is_sorted(), "a time for each frame, in order");
        FrameBurst { times_ns, ..self }
    }

    /// These frames, all received at `now_ns`.
    pub fn received_at(self, now_ns: u64) -> Self {
        FrameBurst { now_ns, times_ns: &[], ..self }
    }

    /// These frames, received at a port with this number on its side.
    pub fn at_port(self, port: usize) -> Self {
        FrameBurst { port, ..self }
    }

    /// The number of the port at which they were received.
    pub fn port(&self) -> usize {
        self.port
    }

    /// The first `count` frames, or all if there are fewer.
    pub fn first(self, count: usize) -> Self {
        let count = count.min(self.frames.len());
        FrameBurst { frames: &self.frames[..count], times_ns: &self.times_ns[..count.min(self.times_ns.len())], ..self }
    }

    /// The frames after the first `count`.
    pub fn after(self, count: usize) -> Self {
        let count = count.min(self.frames.len());
        FrameBurst { frames: &self.frames[count..], times_ns: &self.times_ns[count.min(self.times_ns.len())..], ..self }
    }

    /// Frames that replace the frames from index `from` on, with `behind` readable bytes behind each.
    ///
    /// # Safety
    /// `frames` are some of this burst's in order, each cut by `behind` bytes or more at its end.
    pub(crate) unsafe fn cut<'b>(&'b self, from: usize, frames: &'b [Frame], behind: usize) -> FrameBurst<'b> {
        let times_ns = if self.times_ns.is_empty() { &[] } else { &self.times_ns[from..from + frames.len()] };
        FrameBurst { frames, times_ns, behind, ..*self }
    }

    /// The bytes behind frame `index`: a card's answers about it.
    pub fn behind(&self, index: usize) -> &'a [u8] {
        let frame = &self.frames[index];
        if self.behind == 0 {
            return &[];
        }
        // SAFETY: the caller of `cut` established that the frame was longer by `behind` bytes.
        unsafe { std::slice::from_raw_parts(frame.data.wrapping_add(frame.cap as usize), self.behind) }
    }

    /// Number of bytes behind each frame that can be read.
    pub fn bytes_behind(&self) -> usize {
        self.behind
    }

    /// The frames as C reads them.
    pub fn frames(&self) -> &'a [Frame] {
        self.frames
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The captured bytes of frame `index`, from the link header on.
    pub fn bytes(&self, index: usize) -> &'a [u8] {
        let frame = &self.frames[index];
        if frame.cap == 0 {
            return &[];
        }
        // SAFETY: the caller of `from_raw` established that `data` is readable for `cap` bytes during 'a.
        unsafe { std::slice::from_raw_parts(frame.data, frame.cap as usize) }
    }

    /// Length of frame `index` on the wire, in bytes.
    pub fn wire_len(&self, index: usize) -> u32 {
        self.frames[index].len
    }

    /// The link layer of all frames.
    pub fn link(&self) -> Link {
        self.link
    }

    /// The reception times in the form for compiled chains.
    pub fn times(&self) -> Times {
        let each_ns = if self.times_ns.is_empty() { ptr::null() } else { self.times_ns.as_ptr() };
        Times { now_ns: self.now_ns, each_ns }
    }

    /// Reception time of frame `index` in ns. Limits use it.
    pub fn time_ns(&self, index: usize) -> u64 {
        self.times_ns.get(index).copied().unwrap_or(self.now_ns)
    }

    /// Time of the burst in ns. For captures this is the capture's own time, since 1970.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
}
