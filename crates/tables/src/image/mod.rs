//! Table images: the flat bytes that native code and BPF read, owned ([`Image`]) or borrowed and checked
//! ([`ImageView`]).
//!
//! Layouts lie between the parts of this folder. `format.rs` knows headers and sections, and no layout. Every layout
//! writes and reads its sections by it. `view.rs` knows all layouts.

mod error;
mod format;
mod view;

pub use error::{BuildError, ImageError};
pub(crate) use format::{HEADER_BYTES, Header, TICKETS_END, Writer};
pub use format::{Image, LABELS_MAX, Section};
pub use view::ImageView;
