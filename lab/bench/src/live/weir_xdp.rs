//! Weir's kernel engine with the list as a table, like `weir run --engine xdp`.

use super::contender::Contender;
use super::forwarder::KernelPolicy;
use super::wire::Port;
use std::fmt::Write;
use std::net::Ipv4Addr;
use weir_abi::Reason;
use weir_command::failure::Failure;

const POLICY: &str = r#"
table bad { type ipv4; file "bad.txt" }
upstream { ip saddr @bad counter drop; accept }
downstream { accept }
"#;

/// The rule that accepts packets that are not in the table.
const ACCEPT: Reason = Reason::rule(1);

/// A policy between two interfaces.
pub struct WeirXdp {
    name: &'static str,
    policy: KernelPolicy,
}

impl WeirXdp {
    /// Compiles and loads the policy for the interfaces. It decides packets after `enter`.
    ///
    /// # Errors
    /// A file cannot be written, or clang or the kernel rejects the program.
    pub fn load(name: &'static str, lower: &Port, upper: &Port, addresses: &[u32]) -> Result<Self, Failure> {
        let mut list = String::with_capacity(addresses.len() * 16);
        for &address in addresses {
            let _ = writeln!(list, "{}", Ipv4Addr::from(address));
        }
        let files = [("block.weir", POLICY), ("bad.txt", list.as_str())];
        Ok(WeirXdp { name, policy: KernelPolicy::load(lower, upper, &files)? })
    }
}

impl Contender for WeirXdp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn enter(&mut self, _: &Port) -> Result<(), Failure> {
        self.policy.enter()
    }

    fn leave(&mut self) -> Result<u64, Failure> {
        let counts = self.policy.leave()?;
        // Packets that the program could not parse pass too. The generator makes none.
        let built_in = usize::from(Reason::RULE_BASE);
        let not_listed = |counters: &[weir_abi::Counter]| -> u64 {
            let built_in: u64 = counters[..built_in].iter().map(|counter| counter.packets).sum();
            built_in + counters[usize::from(ACCEPT.0)].packets
        };
        Ok(counts.iter().map(|[upstream, _]| not_listed(upstream)).sum())
    }
}
