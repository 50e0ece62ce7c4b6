//! Shadows: policies that judge packets and change nothing.

use crate::Comparison;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What to do about the shadow. The answer is always a [`ShadowShown`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ShadowOperation {
    /// Lets a policy judge packets from now on, in place of the previous shadow.
    Load {
        /// Its absolute path.
        policy: PathBuf,
        /// One packet in so many, chosen by chance.
        every: u32,
        /// Its posture; `None` for its base policy.
        #[serde(default)]
        posture: Option<String>,
    },
    /// Shows what it would decide otherwise.
    Show,
    /// Ends it, and shows it for the last time.
    End,
}

/// The shadow, if there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowShown {
    /// `None` if no policy is a shadow.
    pub shadow: Option<ShadowReport>,
}

/// What a shadow has judged. `packets` of its comparison are those that it judged itself, so a shadow that judges
/// nothing is seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowReport {
    /// Its file.
    pub policy: String,
    /// Its posture; `None` for its base policy.
    pub posture: Option<String>,
    /// It judges one packet in so many.
    pub every: u32,
    /// Seconds since it was loaded.
    pub seconds: f64,
    /// Seconds since it judged a packet; `None` if it has judged none.
    pub idle_s: Option<f64>,
    /// Packets that the active policy has decided since then.
    pub decided: u64,
    /// Packets that it should have judged, but whose copies were lost.
    pub lost: u64,
    /// Why it judges no more packets, if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Its dynamic tables that began with the entries of the active policy.
    #[serde(default)]
    pub tables: Vec<String>,
    /// Changes of these tables by hand or by feeds that the shadow does not have.
    #[serde(default)]
    pub table_changes_missed: u64,
    /// Whether it tracks connections, so that packets of earlier ones may be decided otherwise only for that.
    #[serde(default)]
    pub tracks: bool,
    /// What it would decide otherwise. The old policy is the active one.
    #[serde(flatten)]
    pub comparison: Comparison,
}
