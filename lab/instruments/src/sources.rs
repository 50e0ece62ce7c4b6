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

/// The sources, and the position among them: `struct stream`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stream {
    /// The source of the next packet.
    pub next: u32,
    /// Number of sources of a stream.
    pub count: u32,
    zero: [u32; 14],
    /// In network byte order.
    pub sources: [u32; SOURCES_MAX],
}

/// Writes the sources (host byte order) of the object's packets and resets the position to the first. No program of the
/// object may run meanwhile.
///
/// # Errors
/// The object has no sources.
///
/// # Panics
/// If there are more than [`SOURCES_MAX`].
pub fn fill(object: &Object, sources: &[u32]) -> Result<(), EngineError> {
    assert!(sources.len() <= SOURCES_MAX, "at most {SOURCES_MAX} sources");
    let stream = map(object, SECTION, size_of::<Stream>())?;
    let network: Vec<u32> = sources.iter().map(|source| source.to_be()).collect();
    // SAFETY: the mapping has room for the first words and all sources (checked by `map` and above), and is aligned to
    // a page. Programs write it too, but they run only in calls by the owner of the object, who is the caller.
    unsafe {
        stream.as_mut_ptr().add(offset_of!(Stream, next)).cast::<u32>().write_volatile(0);
        stream.as_mut_ptr().add(offset_of!(Stream, count)).cast::<u32>().write_volatile(network.len() as u32);
        let to = stream.as_mut_ptr().add(offset_of!(Stream, sources)).cast::<u32>();
        to.copy_from_nonoverlapping(network.as_ptr(), network.len());
    }
    Ok(())
}
