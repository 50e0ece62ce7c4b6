//! From a policy to a filter in one call.

use crate::error::LoadError;
use crate::eval::EvalFilter;
use crate::policy::Policy;
use weir_engine::{Controller, Filter};
use weir_policy::capability::Engine;

impl Policy {
    /// Loads the program into an engine.
    ///
    /// # Errors
    /// The policy has unsupported rules, or the engine fails.
    pub fn filter(&self, engine: Engine) -> Result<Box<dyn Filter + '_>, LoadError> {
        self.filter_with(engine, None)
    }

    /// Loads the program into an engine. P4 pipelines have this controller.
    ///
    /// # Errors
    /// As for [`Policy::filter`].
    pub fn filter_with(
        &self,
        engine: Engine,
        controller: Option<Controller>,
    ) -> Result<Box<dyn Filter + '_>, LoadError> {
        self.refuse_unsupported(&[engine])?;
        Ok(match engine {
            Engine::Eval => Box::new(EvalFilter::new(&self.program, self.answers()).with_slots(self.slot_rules())),
            Engine::Native => Box::new(self.native()?),
            Engine::Xdp => Box::new(self.xdp()?),
            Engine::P4 => Box::new(self.p4(controller)?),
            Engine::Host => return Err(LoadError::NoEngine(engine)),
        })
    }
}
