//! What a running Weir says about itself at one time.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use weir_control::{
    AttackOperation, AttacksListed, CardReport, Client, Error, FeaturesShown, LimitsStatus, Request, Room, Stats,
    Status,
};

/// Maximum number of addresses and limits that are asked for.
const TOP: usize = 50;

/// The answers of a running Weir at one time. As a JSON line it is a line of a recording. A part that Weir does not
/// know is absent, and `absent` says why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was taken, seconds since 1970.
    pub time_s: f64,
    /// The state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
    /// The attacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attacks: Option<AttacksListed>,
    /// What passed in the last second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<FeaturesShown>,
    /// The counts of limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsStatus>,
    /// How full tables and slots are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<Room>,
    /// What a card drops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardReport>,
    /// Why parts are absent, by the part.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
    /// Why Weir did not answer at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Snapshot {
    /// Says that Weir did not answer.
    pub fn gone(time_s: f64, problem: &Error) -> Self {
        Snapshot { time_s, problem: Some(problem.to_string()), ..Self::default() }
    }

    /// Asks a running Weir.
    ///
    /// # Errors
    /// The connection fails. A request that is refused is a part that is absent.
    pub fn take(client: &mut Client, time_s: f64) -> Result<Self, Error> {
        let requests = [
            Request::Status,
            Request::Stats,
            Request::Attacks { operation: AttackOperation::List },
            Request::Features { top: TOP },
            Request::Limits { top: TOP, list: None },
            Request::Card { top: TOP },
            Request::Room,
        ];
        let mut answers = Vec::with_capacity(requests.len());
        client.ask_all(&requests, &mut answers)?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(Value::Null));
        let mut absent = BTreeMap::new();
        let (status, stats) = (part("status", next(), &mut absent), part("stats", next(), &mut absent));
        let (attacks, features) = (part("attacks", next(), &mut absent), part("features", next(), &mut absent));
        let (limits, card) = (part("limits", next(), &mut absent), part("card", next(), &mut absent));
        let room = part("room", next(), &mut absent);
        Ok(Snapshot { time_s, status, stats, attacks, features, limits, room, card, absent, problem: None })
    }
}

/// A part of a snapshot, or the reason why it is absent.
fn part<T: serde::de::DeserializeOwned>(
    name: &str,
    answer: Result<Value, Error>,
    absent: &mut BTreeMap<String, String>,
) -> Option<T> {
    match answer.and_then(weir_control::read) {
        Ok(value) => Some(value),
        Err(error) => {
            absent.insert(name.to_owned(), error.to_string());
            None
        }
    }
}
