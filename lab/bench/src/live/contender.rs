//! The programs that are compared: each decides the packets of an interface.

use super::wire::Port;
use crate::live::peers;
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_engine::live::programs::attach::Attached;
use weir_engine::xdp::plain::PlainPrograms;

/// Drops packets of blocked sources at an interface.
pub trait Contender {
    /// Its name in rows.
    fn name(&self) -> &'static str;

    /// Starts deciding the packets that the interface receives.
    ///
    /// # Errors
    /// It cannot be started.
    fn enter(&mut self, port: &Port) -> Result<(), Failure>;

    /// Stops. Returns the number of packets that it let pass since `enter`.
    ///
    /// # Errors
    /// It cannot be stopped, or its counter cannot be read.
    fn leave(&mut self) -> Result<u64, Failure>;
}

/// An XDP program of peers.c.
pub struct XdpPeer {
    name: &'static str,
    program: &'static str,
    programs: Arc<PlainPrograms>,
    passed: u64,
    attached: Option<Attached>,
}

impl XdpPeer {
    /// A program by its name in peers.c.
    pub fn new(name: &'static str, program: &'static str, programs: &Arc<PlainPrograms>) -> Self {
        XdpPeer { name, program, programs: programs.clone(), passed: 0, attached: None }
    }
}

impl Contender for XdpPeer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn enter(&mut self, port: &Port) -> Result<(), Failure> {
        self.passed = self.programs.number(peers::PASSED)?;
        self.attached = Some(self.programs.attach(self.program, port.name, port.index)?);
        Ok(())
    }

    fn leave(&mut self) -> Result<u64, Failure> {
        self.attached = None;
        Ok(self.programs.number(peers::PASSED)? - self.passed)
    }
}
