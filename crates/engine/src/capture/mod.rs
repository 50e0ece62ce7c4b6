//! Capture files: pcap and pcapng, recognised by content, read and written as a stream.
//!
//! The reader hands out bursts that point into its buffer: nothing is allocated or copied a packet, and a file of any
//! size is read through a window of about a megabyte. Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. It
//! never looks into a frame. A damaged file yields all whole packets before the damage, then an error with its place.
//! The records are read here because pcap-parser builds a list of options for each; the tests compare with it.

mod buffer;
mod fault;
mod interface;
mod link_type;
mod pcap;
mod pcapng;
mod reader;
mod record;
mod writer;

pub use fault::CaptureFault;
pub use interface::{Interface, Resolution};
pub use link_type::{link_of, link_type_name};
pub use reader::{CaptureBurst, CaptureForm, CaptureReader};
pub use writer::CaptureWriter;

/// The most captured bytes of one packet, as in libpcap.
pub const CAPTURED_BYTES_MAX: u32 = 256 * 1024;
