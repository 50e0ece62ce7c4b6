//! The facts about a compiled program that loaders need.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_abi::{Layout, Reason};
use weir_state::StateShape;

use crate::image::{IMAGE_BYTES_MAX, Image};
use crate::{Bound, EngineError};

/// Maximum number of rules of a program.
pub const RULES_MAX: usize = Reason::RULES_MAX;

/// The facts about a compiled program that every loader needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramShape {
    /// Names of the chains, which are suffixes of the compiled functions. [`crate::Filter::decide`] takes their
    /// indices.
    pub chains: Vec<String>,
    /// Number of rules, at most [`RULES_MAX`].
    pub rules: usize,
    /// The tables, in slot order.
    pub tables: Vec<TableSlot>,
    /// Maximum number of additions that one packet makes.
    pub additions: usize,
    /// Number of counters for packets that rules decide because a limit is exceeded.
    pub limited: usize,
    /// Whether chains change packets.
    pub rewrites: bool,
    /// Its state.
    pub state: StateShape,
    /// The chain that reads a card's answers, and the bytes that it reads behind each packet. `None` if there is none.
    pub answered: Option<(usize, usize)>,
}

/// A table of the program, for which an image is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSlot {
    /// The table's name in the policy.
    pub name: String,
    /// The layout that the code expects. It is serialized as its name.
    #[serde(serialize_with = "write_layout", deserialize_with = "read_layout")]
    pub layout: Layout,
}

impl ProgramShape {
    /// Number of counters of the program: built-in reasons, then one per rule, then exceeded limits.
    pub fn counters(&self) -> usize {
        usize::from(Reason::RULE_BASE) + self.rules + self.limited
    }

    /// Refuses the images and the state of another program.
    pub(crate) fn check(&self, bound: &Bound) -> Result<(), EngineError> {
        self.check_images(&bound.images)?;
        bound.state.check(&self.state).map_err(EngineError::State)
    }

    /// Refuses images unless there is one for each slot, in the expected layout and within [`IMAGE_BYTES_MAX`].
    fn check_images(&self, images: &[Arc<Image>]) -> Result<(), EngineError> {
        for (index, slot) in self.tables.iter().enumerate() {
            let image = images.get(index).ok_or_else(|| slot.refuse("its image is missing".to_owned()))?;
            slot.check(image)?;
        }
        Ok(())
    }
}

impl TableSlot {
    /// Refuses an image unless it is in the expected layout and within [`IMAGE_BYTES_MAX`].
    pub(crate) fn check(&self, image: &Image) -> Result<(), EngineError> {
        let (found, bytes) = (image.layout(), image.as_bytes().len());
        if !self.layout.reads(found) {
            let expected = self.layout.name();
            return Err(self.refuse(format!("has the layout {}, the program expects {expected}", found.name())));
        }
        match bytes > IMAGE_BYTES_MAX {
            true => Err(self.refuse(format!("{bytes} bytes, an image has at most {IMAGE_BYTES_MAX}"))),
            false => Ok(()),
        }
    }

    fn refuse(&self, problem: String) -> EngineError {
        EngineError::Image { table: self.name.clone(), problem }
    }
}

fn write_layout<S: Serializer>(layout: &Layout, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(layout.name())
}

fn read_layout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Layout, D::Error> {
    let name = String::deserialize(deserializer)?;
    Layout::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown table layout `{name}`")))
}
