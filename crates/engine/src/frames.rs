//! A burst of frames, as every filter takes it.

use std::marker::PhantomData;

use weir_abi::{BURST_MAX, Frame, Link};

/// Up to [`BURST_MAX`] frames of one link layer, readable for `'a`.
///
/// [`Frame`] holds plain pointers because C reads it; this type is what makes them safe to hand around.
#[derive(Clone, Copy, Debug)]
pub struct FrameBurst<'a> {
    frames: &'a [Frame],
    link: Link,
    now_ns: u64,
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
        FrameBurst { frames, link, now_ns, bytes: PhantomData }
    }

    /// The first frames, at most `count`.
    pub fn first(self, count: usize) -> Self {
        FrameBurst { frames: &self.frames[..count.min(self.frames.len())], ..self }
    }

    /// The frames but the first `count`.
    pub fn after(self, count: usize) -> Self {
        FrameBurst { frames: &self.frames[count.min(self.frames.len())..], ..self }
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

    /// Time of the burst in ns: since 1970 for a capture, which lends its own time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
}
