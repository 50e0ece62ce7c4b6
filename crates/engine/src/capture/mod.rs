//! Capture files: pcap and pcapng, recognised by content, and read and written as streams.
//!
//! The reader returns bursts that point into its buffer. It allocates and copies nothing per packet, and reads a file
//! of any size through a window of about a megabyte. The formats are defined by draft-ietf-opsawg-pcap and
//! draft-ietf-opsawg-pcapng. It never parses a frame. A damaged file yields all whole packets before the damage, and
//! then an error with its position. The records are parsed here because pcap-parser builds a list of options for each
//! record. The tests compare both.

mod buffer;
mod fault;
mod interface;
mod link_header;
mod link_type;
mod notes;
pub mod packet_stream;
mod pcap;
mod pcapng;
mod reader;
mod record;
mod segment;
mod writer;

pub use fault::CaptureFault;
pub use interface::{Interface, Resolution};
pub use link_type::{link_type_name, link_type_of};
pub use notes::CaptureNotes;
pub use reader::{CaptureBurst, CaptureForm, CaptureReader};
pub use writer::CaptureWriter;

/// Maximum number of captured bytes per packet, as in libpcap.
pub const CAPTURED_BYTES_MAX: u32 = 256 * 1024;
