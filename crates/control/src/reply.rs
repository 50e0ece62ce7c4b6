//! What requests are answered.

use crate::{
    AttackEntry, AttacksChanged, AttacksListed, AttacksMode, BaselineChanged, BaselineListed, CardReport,
    FeaturesShown, FlowsCounted, FlowsKilled, FlowsListed, LimitsStatus, Ready, Reconfigured, Reloaded, Room,
    ShadowShown, SlotChanged, SlotListed, Stats, Status, TableChanged, TableEntries, TableFound, UpgradeStatus,
};
use serde::Serialize;

macro_rules! replies {
    ($($name:ident,)*) => {
        /// The value of [`Answer::Ok`](crate::Answer::Ok). The request says which one it is.
        #[derive(Clone, Debug, Serialize)]
        #[serde(untagged)]
        #[allow(missing_docs, reason = "each variant has the name of its type")]
        pub enum Reply {
            $($name(Box<$name>),)*
        }

        $(impl From<$name> for Reply {
            fn from(value: $name) -> Self {
                Reply::$name(Box::new(value))
            }
        })*
    };
}

replies! {
    AttackEntry,
    AttacksChanged,
    AttacksListed,
    AttacksMode,
    BaselineChanged,
    BaselineListed,
    CardReport,
    FeaturesShown,
    FlowsCounted,
    FlowsKilled,
    FlowsListed,
    LimitsStatus,
    Ready,
    Reconfigured,
    Reloaded,
    Room,
    ShadowShown,
    SlotChanged,
    SlotListed,
    Stats,
    Status,
    TableChanged,
    TableEntries,
    TableFound,
    UpgradeStatus,
}
