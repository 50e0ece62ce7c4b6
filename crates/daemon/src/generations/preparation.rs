//! Prepares generations although file descriptors are scarce.

use crate::generations::controller::Controller;
use crate::generations::generation::Generation;
use crate::interfaces::descriptors;
use weir_command::failure::Failure;
use weir_engine::live::Datapath;

/// Prepares a generation. If there are too few descriptors, it unloads the oldest generations that are not in use, and
/// prepares again.
///
/// # Errors
/// The errors of `make`, or too few descriptors are left.
pub fn prepare<D: Datapath>(
    controller: &Controller<D>,
    make: impl Fn() -> Result<Generation<D::Code>, Failure>,
) -> Result<Generation<D::Code>, Failure> {
    loop {
        let prepared = make().and_then(|generation| {
            descriptors::check_left()?;
            Ok(generation)
        });
        let failure = match prepared {
            Err(failure @ Failure::NoDescriptors(_)) => descriptors::explain(failure),
            prepared => return prepared,
        };
        let Some(gone) = controller.remove_oldest() else { return Err(failure) };
        warning!([Generation: gone] "weir: generation {gone} is unloaded: {}", failure.message());
    }
}
