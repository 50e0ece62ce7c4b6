//! How a running Weir is talked to: a Unix socket, a request a line, an answer a line, both JSON.
//!
//! ```text
//! {"load":{"policy":"/etc/weir/new.weir"}}        {"ok":{"generation":2}}
//! {"activate":{"generation":2,"confirm_s":60}}    {"ok":{...status...}}
//! {"activate":{"generation":9}}                   {"error":"weir: no generation 9; ready are 1, 2"}
//! ```
//! Only the owner of the process and root may connect: the socket has mode 0600, and each client's credentials are looked at.

pub mod client;
pub mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// Where the socket is unless `--control` says otherwise.
pub const DEFAULT_PATH: &str = "/run/weir.sock";
/// Bytes of a request at most.
pub const REQUEST_BYTES_MAX: u64 = 64 << 10;

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
    /// The last activation stays.
    Confirm,
    /// Goes back to who decided before.
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
