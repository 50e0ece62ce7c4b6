//! What the next program in this process continues with.

use super::{Controller, Shared};
use crate::generations::succession::HandedSuccession;
use std::io;
use std::time::Instant;
use weir_engine::live::os::inherited::Kept;
use weir_engine::live::{Datapath, HandedLink};

impl<D: Datapath> Controller<D> {
    /// The decisions of the operator, and the generations in use.
    pub fn succession(&self) -> (HandedSuccession, Vec<Shared<D::Code>>) {
        let state = self.state();
        let handed = state.succession.hand_over(Instant::now(), weir_state::now_ns());
        let generations = handed.generations().into_iter().map(|id| state.ready(id)).collect();
        (handed, generations)
    }

    /// Hands over what decides packets. See [`Datapath::hand_over`].
    ///
    /// # Errors
    /// A descriptor cannot be kept.
    pub fn hand_over(&self, kept: &mut Kept) -> io::Result<Option<Vec<HandedLink>>> {
        self.datapath.hand_over(kept)
    }
}
