//! How values of other crates are handed over to the next program, by name ([`crate::defence::Defence::continued`]).

use serde::{Deserialize, Serialize};
use weir_abi::PacketClass;
use weir_abi::packet::Fragment;

/// A [`PacketClass`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "PacketClass")]
pub enum StoredClass {
    Syn,
    SynAck,
    Rst,
    Tcp,
    UdpService,
    Udp,
    Icmp,
    Fragment,
    Other,
}

/// A [`Fragment`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Fragment")]
pub enum StoredFragment {
    None,
    First,
    Later,
}
