//! Weir's kernel engine with the list as a table, like `weir run --engine xdp`.

use super::contender::Contender;
use super::wire::Port;
use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use weir::failure::Failure;
use weir::run::generation::{KernelLoader, Loader};
use weir_abi::Reason;
use weir_engine::bundle::trust::Trust;
use weir_engine::live::xdp::{KernelCode, KernelPath, Ports};
use weir_engine::live::{Datapath, Interfaces, Loaded};

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
    ports: Arc<Ports>,
    policy: Loaded<KernelCode>,
    path: Option<KernelPath>,
}

impl WeirXdp {
    /// Compiles and loads the policy for the interfaces. It decides packets after `enter`.
    ///
    /// # Errors
    /// A file cannot be written, or clang or the kernel rejects the program.
    pub fn load(name: &'static str, lower: &Port, upper: &Port, addresses: &[u32]) -> Result<Self, Failure> {
        let directory =
            tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        let mut list = String::with_capacity(addresses.len() * 16);
        for &address in addresses {
            let _ = writeln!(list, "{}", Ipv4Addr::from(address));
        }
        for (file, text) in [("bad.txt", list.as_str()), ("block.weir", POLICY)] {
            let path = directory.path().join(file);
            fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
        }
        let interfaces =
            Interfaces { lower: vec![lower.name.to_owned()], upper: vec![upper.name.to_owned()], divert: None };
        let ports = Arc::new(Ports::of(&interfaces)?);
        let policy = weir_loading::load(&directory.path().join("block.weir"))?;
        let prepared = KernelLoader::new(ports.clone(), None, Trust::default()).load(&policy)?;
        Ok(WeirXdp { name, ports, policy: Loaded { code: prepared.code, chains: [0, 1] }, path: None })
    }
}

impl Contender for WeirXdp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn enter(&mut self, _: &Port) -> Result<(), Failure> {
        self.path = Some(KernelPath::start(self.ports.clone(), &self.policy, None)?);
        Ok(())
    }

    fn leave(&mut self) -> Result<u64, Failure> {
        let path = self.path.take().expect("who leaves has entered");
        let counts = path.counts();
        path.stop()?;
        // Packets that the program could not parse pass too. The generator makes none.
        let built_in = usize::from(Reason::RULE_BASE);
        let not_listed = |counters: &[weir_abi::Counter]| -> u64 {
            let built_in: u64 = counters[..built_in].iter().map(|counter| counter.packets).sum();
            built_in + counters[usize::from(ACCEPT.0)].packets
        };
        Ok(counts.iter().map(|[upstream, _]| not_listed(upstream)).sum())
    }
}
