//! The shape of a compiled program: what engines know of it besides its code.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_abi::{Layout, Reason};

use crate::EngineError;
use crate::image::{IMAGE_BYTES_MAX, Image};
use crate::limits::Limits;

/// The most rules that a program can have.
pub const RULES_MAX: usize = Reason::RULES_MAX;

/// The chains, tables and numbers of counters of a compiled program. The intermediate representation is in weir-policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramShape {
    /// Chain names: suffixes of the compiled functions, and of the indices that [`crate::Filter::decide`] takes.
    pub chains: Vec<String>,
    /// Number of rules, at most [`RULES_MAX`].
    pub rules: usize,
    /// Its tables, in slot order.
    pub tables: Vec<TableSlot>,
    /// Number of limiters.
    pub limiters: usize,
    /// Counters of what the limits of rules ended.
    pub limited: usize,
}

/// A place for a table's image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSlot {
    /// The table's name in the policy.
    pub name: String,
    /// The layout that the code expects, written as its name.
    #[serde(serialize_with = "write_layout", deserialize_with = "read_layout")]
    pub layout: Layout,
}

impl ProgramShape {
    /// Counters that the program needs: the built-in reasons, then one a rule, then those of what limits ended.
    pub fn counters(&self) -> usize {
        usize::from(Reason::RULE_BASE) + self.rules + self.limited
    }

    /// Refuses limits of another program.
    pub(crate) fn check_limits(&self, limits: Option<&Limits>) -> Result<(), EngineError> {
        let found = limits.map_or(0, |limits| limits.image.limiters());
        match found == self.limiters {
            true => Ok(()),
            false => Err(EngineError::Image {
                table: "limits".to_owned(),
                problem: format!("of {found} limiters, the program has {}", self.limiters),
            }),
        }
    }

    /// Refuses images that are not what the slots expect: one each, laid out alike, within [`IMAGE_BYTES_MAX`].
    pub(crate) fn check_images(&self, images: &[Arc<Image>]) -> Result<(), EngineError> {
        let refuse = |table: &str, problem| EngineError::Image { table: table.to_owned(), problem };
        for (index, slot) in self.tables.iter().enumerate() {
            let Some(image) = images.get(index) else {
                return Err(refuse(&slot.name, "its image is missing".to_owned()));
            };
            let (found, bytes) = (image.layout(), image.as_bytes().len());
            if !slot.layout.reads(found) {
                let expected = slot.layout.name();
                return Err(refuse(
                    &slot.name,
                    format!("laid out as {}, the program expects {expected}", found.name()),
                ));
            }
            if bytes > IMAGE_BYTES_MAX {
                return Err(refuse(&slot.name, format!("{bytes} bytes, an image has at most {IMAGE_BYTES_MAX}")));
            }
        }
        Ok(())
    }
}

fn write_layout<S: Serializer>(layout: &Layout, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(layout.name())
}

fn read_layout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Layout, D::Error> {
    let name = String::deserialize(deserializer)?;
    Layout::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown table layout `{name}`")))
}
