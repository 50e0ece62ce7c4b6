//! The generations with which a program begins: the first policy, or those of the program before it in its process.

use crate::generations::generation::Generation;
use crate::generations::succession::Succession;
use crate::options::RunOptions;
use std::time::Instant;
use weir_command::failure::Failure;
use weir_engine::live::Loaded;
use weir_policy::ir::OnExit;

/// The generations with which a program begins.
pub struct Beginning<C> {
    /// All of them.
    pub ready: Vec<Generation<C>>,
    /// The operator's decisions. The generations that it names are ready.
    pub succession: Succession,
    /// What happens when Weir ends.
    pub on_exit: OnExit,
}

impl<C> Beginning<C> {
    /// The generation that decides packets.
    pub fn active(&self) -> &Generation<C> {
        let active = self.succession.active().generation;
        self.ready.iter().find(|one| one.id == active).expect("generations of the succession are ready")
    }

    /// Its code, in its posture.
    ///
    /// # Errors
    /// It has no such posture.
    pub fn loaded(&self) -> Result<Loaded<C>, Failure> {
        self.active().loaded(self.succession.active().posture.as_deref())
    }
}

/// Begins with the first policy, on trial if the options say so.
///
/// # Errors
/// The trial is too long.
pub fn with<C>(options: &RunOptions, mut first: Generation<C>) -> Result<Beginning<C>, Failure> {
    let succession = match options.confirm {
        Some(time) => Succession::on_trial(time, Instant::now())
            .map_err(|refusal| Failure::Rejected(format!("weir: {refusal}")))?,
        None => Succession::default(),
    };
    first.id = succession.active().generation;
    // Until the first policy is confirmed, everything passes when Weir ends.
    let on_exit = if options.confirm.is_some() { OnExit::Forward } else { first.program().on_exit };
    Ok(Beginning { ready: vec![first], succession, on_exit })
}
