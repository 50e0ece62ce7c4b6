//! Requests, answers, and their representation as lines.

use crate::{AttackOperation, CaptureFilter, FlowOperation, ShadowOperation, SlotOperation, TableOperation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Asks for the active generation and all loaded ones. The answer is a [`Status`](crate::Status).
    Status,
    /// Asks for all counters. The answer is [`Stats`](crate::Stats).
    Stats,
    /// Asks how full tables and slots are. The answer is [`Room`](crate::Room).
    Room,
    /// Asks for the counters of limits. The answer is a [`LimitsStatus`](crate::LimitsStatus).
    Limits {
        /// Maximum number of limits, most exceeded first. The server lists at most [`TOP_MAX`](crate::TOP_MAX).
        top: usize,
        /// Restricts the answer to this list.
        #[serde(default)]
        list: Option<String>,
    },
    /// Loads a policy or bundle as a new generation without activating it. The answer is [`Ready`].
    Load {
        /// Its absolute path.
        policy: PathBuf,
    },
    /// Removes a loaded generation that is neither active nor a rollback target. The answer is a
    /// [`Status`](crate::Status).
    Unload {
        /// Its number.
        generation: u64,
    },
    /// Activates a generation. The answer is a [`Status`](crate::Status), as for the requests below.
    Activate {
        /// Its number.
        generation: u64,
        /// Starts a trial: the previous generation is reactivated after this time in seconds, unless confirmed.
        #[serde(default)]
        confirm_s: Option<f64>,
    },
    /// Ends the trial and keeps the active generation.
    Confirm,
    /// Reactivates the last confirmed generation during a trial, else the previously confirmed one.
    Rollback,
    /// Activates a posture of the active generation.
    Posture {
        /// Its name; `None` for the base policy.
        #[serde(default)]
        name: Option<String>,
    },
    /// Reads the configuration again, loads its policy and activates it. The answer is
    /// [`Reconfigured`](crate::Reconfigured). If anything fails, the active generation stays.
    Reconfigure {
        /// Starts a trial, as for `Activate`.
        #[serde(default)]
        confirm_s: Option<f64>,
    },
    /// Reads the files of tables and limits of the active generation again, and applies what has changed. The answer is
    /// [`Reloaded`](crate::Reloaded).
    Reload {
        /// Whether `max-change` of tables is ignored.
        #[serde(default)]
        force: bool,
    },
    /// Changes or reads a table of the active generation.
    Table {
        /// Its name.
        table: String,
        /// What to do. It says the type of the answer.
        operation: TableOperation,
    },
    /// Asks for what was observed of the packets that passed. The answer is [`FeaturesShown`](crate::FeaturesShown).
    Features {
        /// Maximum number of addresses, those with most packets first. The server lists at most
        /// [`FEATURES_MAX`](crate::FEATURES_MAX).
        top: usize,
    },
    /// Reads or ends the tracked flows of the active generation.
    Flows {
        /// What to do. It says the type of the answer.
        operation: FlowOperation,
    },
    /// Changes or lists the rules of a slot of the active generation.
    Slot {
        /// Its name.
        slot: String,
        /// What to do. It says the type of the answer.
        operation: SlotOperation,
    },
    /// Asks what the card does. The answer is a [`CardReport`](crate::CardReport).
    Card {
        /// Maximum number of entries, those with the most packets first.
        top: usize,
    },
    /// Upgrades the running program in place, or asks what became of that. The answer is an
    /// [`UpgradeStatus`](crate::UpgradeStatus), at once when an upgrade begins.
    Upgrade {
        /// Whether an upgrade begins.
        begin: bool,
    },
    /// Copies decided packets to the client. The answer is [`CaptureStarted`](crate::CaptureStarted), and behind it come
    /// the packets. The connection carries no further request.
    Capture(CaptureFilter),
    /// Lets a second policy judge packets, which changes nothing. The answer is a [`ShadowShown`](crate::ShadowShown).
    Shadow {
        /// What to do.
        operation: ShadowOperation,
    },
    /// Reads attacks, and decides on proposed actions against them.
    Attacks {
        /// What to do. It says the type of the answer.
        operation: AttackOperation,
    },
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Success. The type of the value depends on the request.
    Ok(Value),
    /// There is nothing that could be shown, and why: a part that this Weir or its policy does not use, or nothing yet.
    Nothing(String),
    /// The request was refused and nothing was changed. The text contains the errors of the policy or of the request.
    Error(String),
    /// The request failed because of the environment.
    Failed(String),
}

/// The answer to [`Request::Load`]: the generation can be activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The number of its generation.
    pub generation: u64,
}

/// The answer to [`Request::Reconfigure`]: the policy of the configuration decides packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconfigured {
    /// The number of its generation.
    pub generation: u64,
    /// The path of its policy.
    pub policy: String,
    /// Its posture; `None` for the base policy.
    pub posture: Option<String>,
    /// The posture that the operator had activated, if the policy does not have it any more.
    pub posture_lost: Option<String>,
    /// Keys whose values have changed since the start. They take effect at the next start.
    pub restart: Vec<String>,
}

/// What a request, or a part of the daemon, changes of what decides packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes<'a> {
    /// Nothing. Decisions on attacks are such requests: what they cause are changes of their own.
    Nothing,
    /// The active generation or its posture, or which of them is confirmed.
    Policy,
    /// Tables and limits, from their list files.
    Lists,
    /// The entries of a table.
    Table(&'a str),
    /// The rules of a slot.
    Slot(&'a str),
    /// Tracked flows.
    Flows,
}

impl Request {
    /// What it changes.
    pub fn changes(&self) -> Changes<'_> {
        match self {
            Request::Activate { .. }
            | Request::Reconfigure { .. }
            | Request::Confirm
            | Request::Rollback
            | Request::Posture { .. } => Changes::Policy,
            Request::Reload { .. } => Changes::Lists,
            Request::Table { operation: TableOperation::List(_) | TableOperation::Get { .. }, .. } => Changes::Nothing,
            Request::Table { table, .. } => Changes::Table(table),
            Request::Slot { operation: SlotOperation::List, .. } => Changes::Nothing,
            Request::Slot { slot, .. } => Changes::Slot(slot),
            Request::Flows { operation: FlowOperation::List { .. } | FlowOperation::Count } => Changes::Nothing,
            Request::Flows { .. } => Changes::Flows,
            Request::Status
            | Request::Stats
            | Request::Room
            | Request::Limits { .. }
            | Request::Load { .. }
            | Request::Unload { .. }
            | Request::Features { .. }
            | Request::Card { .. }
            | Request::Upgrade { .. }
            | Request::Capture(_)
            | Request::Shadow { .. }
            | Request::Attacks { .. } => Changes::Nothing,
        }
    }

    /// Whether it only asks for what there is. [`Answer::Nothing`] then is an answer, and otherwise a refusal.
    pub fn is_question(&self) -> bool {
        match self {
            Request::Attacks { operation } => matches!(
                operation,
                AttackOperation::List | AttackOperation::Show { .. } | AttackOperation::Baseline { .. }
            ),
            Request::Table { .. } | Request::Slot { .. } | Request::Flows { .. } => self.changes() == Changes::Nothing,
            Request::Shadow { operation } => *operation == ShadowOperation::Show,
            Request::Status
            | Request::Stats
            | Request::Room
            | Request::Limits { .. }
            | Request::Features { .. }
            | Request::Card { .. } => true,
            Request::Load { .. }
            | Request::Unload { .. }
            | Request::Activate { .. }
            | Request::Reconfigure { .. }
            | Request::Confirm
            | Request::Rollback
            | Request::Posture { .. }
            | Request::Reload { .. }
            | Request::Upgrade { .. }
            | Request::Capture(_) => false,
        }
    }

    /// The request as a line with its line feed.
    ///
    /// # Errors
    /// A path is not UTF-8.
    pub fn line(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Parses a line, with or without its line feed.
    ///
    /// # Errors
    /// The line is not a request.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

impl Answer {
    /// The answer as a line with its line feed.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("an answer is JSON") + "\n"
    }

    /// Parses a line, with or without its line feed.
    ///
    /// # Errors
    /// The line is not an answer.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Request};
    use crate::{
        AttackOperation, CaptureFilter, FlowOperation, GivenEntries, ShadowOperation, SlotOperation, TableOperation,
    };
    use serde_json::json;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn requests_are_lines() {
        let requests = [
            (Request::Status, r#""status""#),
            (Request::Stats, r#""stats""#),
            (Request::Room, r#""room""#),
            (Request::Limits { top: 3, list: None }, r#"{"limits":{"top":3,"list":null}}"#),
            (Request::Load { policy: "/p.weir".into() }, r#"{"load":{"policy":"/p.weir"}}"#),
            (
                Request::Activate { generation: 2, confirm_s: Some(0.1) },
                r#"{"activate":{"generation":2,"confirm_s":0.1}}"#,
            ),
            (Request::Reconfigure { confirm_s: None }, r#"{"reconfigure":{"confirm_s":null}}"#),
            (Request::Unload { generation: 3 }, r#"{"unload":{"generation":3}}"#),
            (Request::Confirm, r#""confirm""#),
            (Request::Rollback, r#""rollback""#),
            (Request::Reload { force: true }, r#"{"reload":{"force":true}}"#),
            (Request::Posture { name: Some("high".into()) }, r#"{"posture":{"name":"high"}}"#),
            (
                Request::Table {
                    table: "bad".into(),
                    operation: TableOperation::Add(GivenEntries::of(&["192.0.2.1"])),
                },
                r#"{"table":{"table":"bad","operation":{"add":{"entries":["192.0.2.1"]}}}}"#,
            ),
            (
                Request::Table {
                    table: "bad".into(),
                    operation: TableOperation::Update(GivenEntries {
                        file: Some("/bad.txt".into()),
                        timeout_ms: Some(500),
                        atomic: true,
                        ..GivenEntries::default()
                    }),
                },
                r#"{"table":{"table":"bad","operation":{"update":{"file":"/bad.txt","timeout_ms":500,"atomic":true}}}}"#,
            ),
            (Request::Features { top: 3 }, r#"{"features":{"top":3}}"#),
            (Request::Flows { operation: FlowOperation::Count }, r#"{"flows":{"operation":"count"}}"#),
            (
                Request::Flows { operation: FlowOperation::Kill { matches: "tcp dport 80".into() } },
                r#"{"flows":{"operation":{"kill":{"matches":"tcp dport 80"}}}}"#,
            ),
            (
                Request::Slot { slot: "attacks".into(), operation: SlotOperation::Del { number: 3 } },
                r#"{"slot":{"slot":"attacks","operation":{"del":{"number":3}}}}"#,
            ),
            (
                Request::Slot {
                    slot: "attacks".into(),
                    operation: SlotOperation::Add { rule: "udp drop".into(), timeout_ms: Some(500) },
                },
                r#"{"slot":{"slot":"attacks","operation":{"add":{"rule":"udp drop","timeout_ms":500}}}}"#,
            ),
            (Request::Attacks { operation: AttackOperation::List }, r#"{"attacks":{"operation":"list"}}"#),
            (
                Request::Attacks { operation: AttackOperation::Accept { attack: 3 } },
                r#"{"attacks":{"operation":{"accept":{"attack":3}}}}"#,
            ),
            (
                Request::Table { table: "bad".into(), operation: TableOperation::Flush },
                r#"{"table":{"table":"bad","operation":"flush"}}"#,
            ),
        ];
        for (request, line) in requests {
            assert_eq!(request.line().expect("it is UTF-8"), format!("{line}\n"));
            assert_eq!(Request::parse(line.as_bytes()).expect("a request"), request);
        }
        let short = Request::parse(br#"{"activate":{"generation":2}}"#).expect("a trial is optional");
        assert_eq!(short, Request::Activate { generation: 2, confirm_s: None });
    }

    #[test]
    fn a_capture_names_only_what_it_wants() {
        let wanted = CaptureFilter { rule: Some("e.weir:2".into()), every: Some(9), ..CaptureFilter::default() };
        let load = ShadowOperation::Load { policy: "/n.weir".into(), every: 10, posture: None };
        let requests = [
            (Request::Capture(wanted), r#"{"capture":{"rule":"e.weir:2","every":9}}"#),
            (
                Request::Shadow { operation: load },
                r#"{"shadow":{"operation":{"load":{"policy":"/n.weir","every":10,"posture":null}}}}"#,
            ),
            (Request::Shadow { operation: ShadowOperation::End }, r#"{"shadow":{"operation":"end"}}"#),
        ];
        for (request, line) in requests {
            assert_eq!(request.line().expect("it is UTF-8"), format!("{line}\n"));
            assert_eq!(Request::parse(line.as_bytes()).expect("a request"), request);
        }
    }

    #[test]
    fn requests_about_baselines_are_lines() {
        let requests = [
            (AttackOperation::Baseline { top: 3 }, r#"{"baseline":{"top":3}}"#),
            (
                AttackOperation::SetBaseline { of: "source".into(), rate: None, pps: 500 },
                r#"{"set-baseline":{"of":"source","rate":null,"pps":500}}"#,
            ),
            (
                AttackOperation::ResetBaseline { of: "192.0.2.0/24".into() },
                r#"{"reset-baseline":{"of":"192.0.2.0/24"}}"#,
            ),
        ];
        for (operation, line) in requests {
            let request = Request::Attacks { operation };
            assert_eq!(request.line().expect("it is UTF-8"), format!("{{\"attacks\":{{\"operation\":{line}}}}}\n"));
            assert_eq!(Request::parse(request.line().expect("it is UTF-8").as_bytes()).expect("a request"), request);
        }
    }

    #[test]
    fn other_lines_are_no_requests() {
        let lines: [&[u8]; 6] =
            [b"", b"status", b"\"reload\"", br#"{"load":{}}"#, br#"{"limits":{"top":1,"last":2}}"#, b"\"\xff\""];
        for line in lines {
            assert!(Request::parse(line).is_err(), "{}", line.escape_ascii());
        }
        let unprintable = Request::Load { policy: OsStr::from_bytes(b"/\xff").into() };
        assert_eq!(unprintable.line().expect_err("no UTF-8").to_string(), "path contains invalid UTF-8 characters");
    }

    #[test]
    fn answers_are_lines() {
        let answers = [
            (Answer::Ok(json!({ "b": 1, "a": 0.1 })), r#"{"ok":{"a":0.1,"b":1}}"#),
            (Answer::Error("no".into()), r#"{"error":"no"}"#),
            (Answer::Failed("gone".into()), r#"{"failed":"gone"}"#),
        ];
        for (answer, line) in answers {
            assert_eq!(answer.line(), format!("{line}\n"));
            assert_eq!(Answer::parse(line).expect("an answer"), answer);
        }
        assert!(Answer::parse(r#"{"ok":1,"error":"both"}"#).is_err());
    }

    #[test]
    fn seconds_are_the_same_after_a_line() {
        // A fast float parser returns another number for this one.
        let request = Request::Activate { generation: 1, confirm_s: Some(f64::from_bits(0x3fb9_9999_9999_999b)) };
        for bits in (0..5000).map(|n: u64| 0x3ff0_0000_0000_0000 + n * 0x0001_2345_6789_abcd) {
            let one = Request::Activate { generation: 1, confirm_s: Some(f64::from_bits(bits)) };
            assert_eq!(Request::parse(one.line().expect("UTF-8").as_bytes()).expect("a request"), one);
        }
        assert_eq!(Request::parse(request.line().expect("UTF-8").as_bytes()).expect("a request"), request);
    }
}
