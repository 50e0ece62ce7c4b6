//! A policy on Weir's kernel engine between two interfaces, like `weir run --engine xdp`.

use super::wire::Port;
use std::fs;
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_daemon::generations::generation::{KernelLoader, Loader};
use weir_engine::bundle::trust::Trust;
use weir_engine::live::xdp::{KernelCode, KernelPath, Ports};
use weir_engine::live::{Datapath, Interfaces, Loaded};

/// A loaded policy, which decides packets between `enter` and `leave`.
pub struct KernelPolicy {
    ports: Arc<Ports>,
    policy: Loaded<KernelCode>,
    path: Option<KernelPath>,
}

impl KernelPolicy {
    /// Compiles and loads a policy for two interfaces. `files` are names and contents of the policy and then its lists.
    ///
    /// # Errors
    /// A file cannot be written, or clang or the kernel rejects the program.
    pub fn load(lower: &Port, upper: &Port, files: &[(&str, &str)]) -> Result<Self, Failure> {
        let directory =
            tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        for (file, text) in files {
            let path = directory.path().join(file);
            fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
        }
        let interfaces =
            Interfaces { lower: vec![lower.name.to_owned()], upper: vec![upper.name.to_owned()], divert: None };
        let ports = Arc::new(Ports::of(&interfaces)?);
        let policy = weir_loading::load(&directory.path().join(files[0].0))?;
        let prepared = KernelLoader::new(ports.clone(), None, Trust::default()).load(&policy)?;
        Ok(KernelPolicy { ports, policy: Loaded::plain(prepared.code, [0, 1]), path: None })
    }

    /// Begins to decide packets.
    ///
    /// # Errors
    /// The programs cannot be attached.
    pub fn enter(&mut self) -> Result<(), Failure> {
        self.path = Some(KernelPath::start(self.ports.clone(), &self.policy, None)?);
        Ok(())
    }

    /// Ends. Returns the counters since `enter`: of each CPU, by direction and reason.
    ///
    /// # Errors
    /// The programs cannot be detached.
    ///
    /// # Panics
    /// If it has not begun.
    pub fn leave(&mut self) -> Result<Vec<[Vec<weir_abi::Counter>; 2]>, Failure> {
        let path = self.path.take().expect("who leaves has entered");
        let counts = path.counts();
        path.stop()?;
        Ok(counts)
    }
}
