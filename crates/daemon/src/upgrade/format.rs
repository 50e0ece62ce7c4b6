//! The versions that both programs of an upgrade compare.

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The format of what is handed over. Another one is refused.
pub const FORMAT: u32 = 2;
