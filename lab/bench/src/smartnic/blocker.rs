//! What blocks sources at a host.

use super::door::Door;
use weir_command::failure::Failure;

/// Blocks sources at the interface of a host.
pub trait Blocker {
    /// Blocks these sources and no others.
    ///
    /// # Errors
    /// Something that it needs fails.
    fn block(&mut self, door: &Door, sources: &[u32]) -> Result<(), Failure>;
}
