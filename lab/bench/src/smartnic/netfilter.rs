//! What an operator has without Weir: iptables with a rule for each source, ipset, and sets of nftables.

use super::blocker::Blocker;
use super::door::Door;
use crate::live::nft::elements;
use crate::live::wire::Port;
use std::borrow::Cow;
use std::fmt::Write;
use std::net::Ipv4Addr;
use weir_command::failure::Failure;

/// Number of addresses for each run of nft.
const ADDRESSES_A_RUN: usize = 1 << 16;
/// Most addresses of an ipset.
const SET_SIZE: u32 = 1 << 18;

/// A rule for each source in the chain PREROUTING of the table `raw`, the first that an IPv4 packet meets.
pub struct IpTables {
    restore: &'static str,
}

impl IpTables {
    /// The kernel's old engine, which the paper measures.
    pub const LEGACY: IpTables = IpTables { restore: "iptables-legacy-restore" };
    /// The rules of iptables on nftables, as distributions have them today.
    pub const ON_NFTABLES: IpTables = IpTables { restore: "iptables-nft-restore" };
}

impl Blocker for IpTables {
    fn block(&mut self, door: &Door, sources: &[u32]) -> Result<(), Failure> {
        door.host.call(self.restore, "", &linear_rules(sources)).map(drop)
    }
}

/// The rules as text.
fn linear_rules(sources: &[u32]) -> String {
    let mut text = "*raw\n:PREROUTING ACCEPT [0:0]\n".to_owned();
    for &source in sources {
        let _ = writeln!(text, "-A PREROUTING -s {} -j DROP", Ipv4Addr::from(source));
    }
    text + "COMMIT\n"
}

/// One such rule with a set of addresses (`hash:ip`).
pub struct IpSet;

impl Blocker for IpSet {
    fn block(&mut self, door: &Door, sources: &[u32]) -> Result<(), Failure> {
        let mut text = format!("create bad hash:ip maxelem {SET_SIZE} -exist\nflush bad\n");
        for &source in sources {
            let _ = writeln!(text, "add bad {}", Ipv4Addr::from(source));
        }
        door.host.call("ipset", "restore", &text)?;
        let rule = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m set --match-set bad src -j DROP\nCOMMIT\n";
        door.host.call("iptables-legacy-restore", "", rule).map(drop)
    }
}

/// A named set and one rule.
pub struct Nft {
    family: &'static str,
    hook: Cow<'static, str>,
}

impl Nft {
    /// In front of conntrack and routing, where `raw` is.
    pub const AT_PREROUTING: Nft =
        Nft { family: "ip", hook: Cow::Borrowed("type filter hook prerouting priority -300") };

    /// At the ingress hook of the interface, in front of everything else of the kernel.
    pub fn at_device(far: &Port) -> Self {
        let hook = format!("type filter hook ingress device {} priority 0", far.name);
        Nft { family: "netdev", hook: hook.into() }
    }
}

impl Blocker for Nft {
    fn block(&mut self, door: &Door, sources: &[u32]) -> Result<(), Failure> {
        let Nft { family, hook } = self;
        // A table that is added first can be deleted without an error.
        let begin = format!(
            "add table {family} weir\ndelete table {family} weir\nadd table {family} weir\n\
             add set {family} weir bad {{ type ipv4_addr; }}\n"
        );
        door.host.call("nft", "-f -", &begin)?;
        for part in sources.chunks(ADDRESSES_A_RUN) {
            door.host.call("nft", "-f -", &elements(family, "weir", part))?;
        }
        let chain =
            format!("add chain {family} weir judge {{ {hook}; }}\nadd rule {family} weir judge ip saddr @bad drop\n");
        door.host.call("nft", "-f -", &chain).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::linear_rules;

    #[test]
    fn each_source_has_its_rule() {
        let text = linear_rules(&[0x0102_0304, 0x0506_0708]);
        assert_eq!(
            text,
            "*raw\n:PREROUTING ACCEPT [0:0]\n\
             -A PREROUTING -s 1.2.3.4 -j DROP\n-A PREROUTING -s 5.6.7.8 -j DROP\nCOMMIT\n"
        );
    }
}
