//! How a running Weir is talked to: a Unix socket, a request a line, an answer a line, both JSON.
//!
//! ```text
//! {"load":{"policy":"/etc/weir/new.weir"}}        {"ok":{"generation":2}}
//! {"activate":{"generation":2,"confirm_s":60}}    {"ok":{...status...}}
//! {"activate":{"generation":9}}                   {"error":"weir: no generation 9; ready are 1, 2"}
//! ```
//! Only the owner of the process and root may connect: the socket has mode 0600, and each client's credentials are looked at. Another is told so.
//!
//! A client may stay and ask again. It is let go once it has said nothing for five minutes; for ten seconds, where others wait for its slot.

pub mod client;
pub mod requests;
pub mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Where the socket is unless `--control` says otherwise.
pub const DEFAULT_PATH: &str = "/run/weir.sock";
/// Bytes of a request at most.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Clients at a time.
pub const CLIENTS_MAX: usize = 32;
/// A client that says nothing for so long is let go.
pub const SILENCE_MAX: Duration = Duration::from_secs(300);
/// A client that says nothing for so long is let go if its slot is wanted.
pub const GIVE_WAY: Duration = Duration::from_secs(10);
/// A request's bytes come within this time from the first on.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// A client takes an answer within this time.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Who decides, who stands ready.
    Status,
    /// What was counted.
    Stats,
    /// What was counted for limits.
    Limits {
        /// So many at most, the most exceeded first.
        top: usize,
        /// Of this list only.
        #[serde(default)]
        list: Option<String>,
    },
    /// Prepares a policy or bundle.
    Load {
        /// Its absolute path.
        policy: PathBuf,
    },
    /// Lets a generation decide.
    Activate {
        /// Its number.
        generation: u64,
        /// Goes back after so many seconds unless confirmed.
        #[serde(default)]
        confirm_s: Option<f64>,
    },
    /// What is on trial stays.
    Confirm,
    /// Goes back: on trial to what was confirmed last, else to what was confirmed before.
    Rollback,
    /// Lets a posture decide.
    Posture {
        /// Its name; the base policy's if none.
        #[serde(default)]
        name: Option<String>,
    },
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Done; and what there is to say.
    Ok(Value),
    /// Not done; nothing was changed. The policy's mistakes, or what is wrong with the request.
    Error(String),
    /// Not done, because something outside failed.
    Failed(String),
}
