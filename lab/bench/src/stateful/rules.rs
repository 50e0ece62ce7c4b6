//! The rules of forwarders between two veth pairs: any client may connect to one port of a server.

use std::fs;
use weir_command::failure::Failure;

/// A policy without tracking: one field of the packet decides.
pub const STATELESS: &str = "upstream { tcp dport 443 accept; drop }\ndownstream { tcp sport 443 accept; drop }\n";

/// A policy with tracking that has the same rules as [`CONNTRACK`].
pub fn tracking(connections: usize) -> String {
    format!(
        "tracking {{ size {}; pickup off }}
upstream {{ ct state established,related accept; ct state new tcp dport 443 accept; drop }}
downstream {{ ct state established,related accept; drop }}
",
        2 * connections
    )
}

/// The kernel's tracking.
pub const CONNTRACK: &str = "
add table ip weir
add chain ip weir forward { type filter hook forward priority 0; policy drop; }
add rule ip weir forward ct state established,related accept
add rule ip weir forward ct state new tcp dport 443 accept
";

/// Settings of the kernel's tracking. A card verifies checksums, which a veth pair leaves to conntrack; so it does not.
const CONNTRACK_SETTINGS: [(&str, &str); 2] = [("nf_conntrack_checksum", "0"), ("nf_conntrack_tcp_loose", "0")];

/// Sets the kernel's tracking in this thread's namespace.
///
/// # Errors
/// The kernel has none.
pub fn set_conntrack() -> Result<(), Failure> {
    for (name, value) in CONNTRACK_SETTINGS {
        let path = format!("/proc/sys/net/netfilter/{name}");
        fs::write(&path, value).map_err(|error| Failure::Runtime(format!("{path}: {error}")))?;
    }
    Ok(())
}
