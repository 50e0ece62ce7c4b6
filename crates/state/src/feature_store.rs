//! Features as a kind of shared state. Generations share what is observed if they observe in the same shape.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_abi::FeatureShape;
use weir_abi::features::REPLAY_SEED;

use crate::bound_kind::{BoundKind, StateShape, expect};
use crate::features::Features;
use crate::store::{Binding, Request, StateKind};
use crate::{Memory, StateError, UsedBy};

/// Names of the maps of the head and of the elements. libbpf cuts names of sections at 15 characters.
const HEAD: &str = ".bss.features";
const ELEMENTS: &str = "weir_features";

/// Features as a kind of shared state.
pub struct ObservedFeatures {
    /// The code that counts.
    pub used_by: UsedBy,
}

/// What a generation observes.
pub type FeatureBinding = Binding<ObservedFeatures>;

impl FeatureBinding {
    /// What is observed; `None` if the generation does not observe.
    pub fn features(&self) -> Option<&Arc<Features>> {
        self.objects().next()
    }
}

impl StateKind for ObservedFeatures {
    type Declaration = FeatureShape;
    type Object = Arc<Features>;

    fn fits(shape: &FeatureShape, features: &Arc<Features>) -> bool {
        features.shape() == shape
    }

    fn bind(
        &mut self,
        requests: Vec<Request<'_, Self>>,
        _: &mut dyn Iterator<Item = &Arc<Features>>,
        _: u64,
    ) -> Result<Vec<Arc<Features>>, StateError> {
        let bind = |request: Request<'_, Self>| match request.earlier.first() {
            Some(&known) => Ok(known.clone()),
            None => self.sheets(request.declaration),
        };
        requests.into_iter().map(bind).collect()
    }
}

impl ObservedFeatures {
    /// Empty sheets.
    fn sheets(&self, shape: FeatureShape) -> Result<Arc<Features>, StateError> {
        let (seed, cpus) = match self.used_by {
            UsedBy::Replay(_) => (REPLAY_SEED, Ok(1)),
            UsedBy::Workers | UsedBy::Kernel { .. } => (RandomState::new().hash_one(()), crate::cpus()),
        };
        match self.used_by.memory() {
            Memory::Process => Ok(Features::of_process(shape, seed)),
            Memory::Kernel => {
                let cpus = cpus.map_err(|error| StateError::Features { problem: error.to_string() })?;
                Features::of_kernel(shape, seed, cpus)
            }
        }
    }
}

/// Workers have another sheet in each burst, which [`crate::features::FeatureWriter`] chooses.
impl BoundKind for FeatureBinding {
    fn check(&self, expected: &StateShape) -> Result<(), String> {
        let found = self.features().map(|features| features.shape());
        expect("features", found, expected.features.as_ref())
    }

    fn maps(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let maps = self.features().and_then(|features| features.maps());
        let maps = maps.map(|(head, elements)| [(HEAD, head), (ELEMENTS, elements)]);
        maps.into_iter().flatten().map(|(name, map)| (name.to_owned(), map)).collect()
    }
}
