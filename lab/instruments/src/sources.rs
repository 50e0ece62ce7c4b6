//! The sources of made-up packets, which programs in the kernel write into one packet after the other.
//!
//! The programs include `lab/instruments/c/sources.h`. `tests/layout.rs` compares it with the numbers here.

use std::mem::offset_of;

use libbpf_rs::Object;
use weir_engine::EngineError;
use weir_engine::clang::Extras;
use weir_engine::xdp::map;

/// Maximum number of sources: `STREAM_SOURCES_MAX`.
pub const SOURCES_MAX: usize = 1 << 18;
/// Maximum number of packets that one run of a stream decides: `STREAM_PACKETS`.
pub const STREAM_PACKETS: usize = 1 << 9;

/// The headers for clang: the path of each in `#include`, and its text.
pub const HEADERS: Extras<'static> = Extras {
    headers: &[
        ("generate.h", include_str!("../c/generate.h")),
        ("sources.h", include_str!("../c/sources.h")),
        ("stream.h", include_str!("../c/stream.h")),
    ],
    flags: &[],
};

/// The section of `struct stream`.
const SECTION: &str = ".bss.stream";

/// Words of an IPv6 source: `STREAM_WORDS6`.
pub const WORDS6: usize = 4;

/// The sources of packets of one family, in host byte order.
#[derive(Clone, Copy, Debug)]
pub enum Sources<'a> {
    /// Of IPv4.
    V4(&'a [u32]),
    /// Of IPv6.
    V6(&'a [u128]),
}

/// The sources, and the position among them: `struct stream`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stream {
    /// The source of the next packet.
    pub next: u32,
    /// Number of sources of a stream.
    pub count: u32,
    /// Words of a source: 1 or [`WORDS6`].
    pub words: u32,
    zero: [u32; 13],
    /// In network byte order.
    pub sources: [u32; WORDS6 * SOURCES_MAX],
}

impl Sources<'_> {
    /// Their number.
    pub fn len(self) -> usize {
        match self {
            Sources::V4(sources) => sources.len(),
            Sources::V6(sources) => sources.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// In network byte order, 1 word each or [`WORDS6`].
    fn words(self) -> (usize, Vec<u32>) {
        let words6 = |source: &u128| {
            let bytes = source.to_be_bytes();
            std::array::from_fn::<u32, WORDS6, _>(|at| u32::from_ne_bytes(std::array::from_fn(|i| bytes[4 * at + i])))
        };
        match self {
            Sources::V4(sources) => (1, sources.iter().map(|source| source.to_be()).collect()),
            Sources::V6(sources) => (WORDS6, sources.iter().flat_map(words6).collect()),
        }
    }
}

impl<'a, T: AsRef<[u32]> + ?Sized> From<&'a T> for Sources<'a> {
    fn from(sources: &'a T) -> Self {
        Sources::V4(sources.as_ref())
    }
}

/// Writes the sources of the object's packets and resets the position to the first. No program of the object may run
/// meanwhile.
///
/// # Errors
/// The object has no sources.
///
/// # Panics
/// If there are more than [`SOURCES_MAX`].
pub fn fill(object: &Object, sources: Sources<'_>) -> Result<(), EngineError> {
    assert!(sources.len() <= SOURCES_MAX, "at most {SOURCES_MAX} sources");
    let stream = map(object, SECTION, size_of::<Stream>())?;
    let (words, network) = sources.words();
    // SAFETY: the mapping has room for the first words and all sources (checked by `map` and above), and is aligned to
    // a page. Programs write it too, but they run only in calls by the owner of the object, who is the caller.
    unsafe {
        let word = |at: usize| stream.as_mut_ptr().add(at).cast::<u32>();
        word(offset_of!(Stream, next)).write_volatile(0);
        word(offset_of!(Stream, count)).write_volatile(sources.len() as u32);
        word(offset_of!(Stream, words)).write_volatile(words as u32);
        let to = stream.as_mut_ptr().add(offset_of!(Stream, sources)).cast::<u32>();
        to.copy_from_nonoverlapping(network.as_ptr(), network.len());
    }
    Ok(())
}
