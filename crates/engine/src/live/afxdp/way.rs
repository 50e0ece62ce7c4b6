//! How packets reach the lanes, in words for the user.

use std::fmt;

use super::options::{Buffers, Copying};
use crate::live::checksum;
use crate::live::programs::attach::{Attached, Mode};

/// How packets of an interface reach the lanes.
pub(super) struct Way<'a> {
    /// The program that redirects packets to the sockets.
    pub program: &'a Attached,
    pub copying: Copying,
    pub buffers: Buffers,
    /// Whether senders leave checksums to a card that does not exist.
    pub unfinished: bool,
    /// Whether both directions of a flow go to the same worker, if that matters and is known.
    pub symmetric: Option<bool>,
}

impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.program.mode {
            Mode::Native => "native XDP",
            Mode::Generic => "generic XDP (its driver does not support XDP, which is slow)",
        };
        let copying = match self.copying {
            Copying::Nobody => "zero-copy",
            Copying::Kernel => "copied",
        };
        let buffers = match self.buffers {
            Buffers::One => "",
            Buffers::Several => ", several buffers per packet",
        };
        let interface = self.program.interface();
        let finished = if self.unfinished { checksum::FINISHED } else { "" };
        write!(f, "{mode}, {copying}{buffers}{finished}")?;
        if self.symmetric == Some(false) {
            write!(
                f,
                "; a flow's two directions may come to different workers (`ethtool -X {interface} xfrm symmetric-xor`)"
            )?;
        }
        Ok(())
    }
}
