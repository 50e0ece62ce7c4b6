//! The facts about a compiled program that loaders need.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_abi::flow::buckets;
use weir_abi::{FeatureShape, Layout, Reason};
use weir_state::features::Features;
use weir_state::flows::FlowTable;
use weir_state::limits::Limits;
use weir_state::tables::{ByRules, LiveTables};

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
    /// Number of limiters.
    pub limiters: usize,
    /// Number of adders.
    pub adders: usize,
    /// Maximum number of additions that one packet makes.
    pub additions: usize,
    /// Number of counters for packets that rules decide because a limit is exceeded.
    pub limited: usize,
    /// Number of flows that its table holds; `None` if it does not track.
    pub flows: Option<u32>,
    /// Whether chains change packets.
    pub rewrites: bool,
    /// Number of slots of rules.
    pub slots: usize,
    /// What is counted of the packets that pass; `None` if nothing is.
    pub features: Option<FeatureShape>,
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

    /// Refuses the limits of another program.
    fn check_limits(&self, limits: Option<&Limits>) -> Result<(), EngineError> {
        let found = limits.map_or(0, |limits| limits.image.limiters());
        match found == self.limiters {
            true => Ok(()),
            false => Err(EngineError::Image {
                table: "limits".to_owned(),
                problem: format!("has {found} limiters, the program expects {}", self.limiters),
            }),
        }
    }

    /// Refuses a table of flows of another size.
    fn check_flows(&self, table: Option<&FlowTable>) -> Result<(), EngineError> {
        let (found, expected) = (table.map(FlowTable::buckets), self.flows.map(buckets));
        if self.rewrites && table.is_none_or(|table| table.proxied().is_null()) {
            let problem = "has no room for proxied flows".to_owned();
            return Err(EngineError::Image { table: "flows".to_owned(), problem });
        }
        match found == expected {
            true => Ok(()),
            false => Err(EngineError::Image {
                table: "flows".to_owned(),
                problem: format!("{found:?} buckets, the program expects {expected:?}"),
            }),
        }
    }

    /// Refuses the slots of another program.
    fn check_slots(&self, slots: usize) -> Result<(), EngineError> {
        match slots == self.slots {
            true => Ok(()),
            false => Err(EngineError::Image {
                table: "slots".to_owned(),
                problem: format!("{slots} of them, the program expects {}", self.slots),
            }),
        }
    }

    /// Refuses the state of another program.
    pub(crate) fn check(&self, bound: &Bound) -> Result<(), EngineError> {
        let Bound { images, limits, tables, flows, slots, features } = bound;
        self.check_images(images)?;
        self.check_limits(limits.as_ref())?;
        self.check_adders(tables.as_ref())?;
        self.check_flows(flows.table().map(Arc::as_ref))?;
        self.check_slots(slots.slots().count())?;
        self.check_features(features.features().map(Arc::as_ref))
    }

    /// Refuses features of another shape.
    fn check_features(&self, features: Option<&Features>) -> Result<(), EngineError> {
        let found = features.map(Features::shape);
        match found == self.features.as_ref() {
            true => Ok(()),
            false => Err(EngineError::Image {
                table: "features".to_owned(),
                problem: format!("{found:?}, the program expects {:?}", self.features),
            }),
        }
    }

    /// Refuses tables that the program's rules could not change.
    fn check_adders(&self, tables: Option<&LiveTables>) -> Result<(), EngineError> {
        let found = tables.map_or(0, |tables| match &tables.by_rules {
            ByRules::Never => 0,
            ByRules::Queued(_, adders) => adders.adders.len(),
            ByRules::Replayed(replayed) => replayed.adders.adders.len(),
        });
        match found == self.adders {
            true => Ok(()),
            false => Err(EngineError::Image {
                table: "added to by rules".to_owned(),
                problem: format!("{found} adders, the program expects {}", self.adders),
            }),
        }
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
