//! What a reader did with packets beyond handing them on.

use std::collections::BTreeMap;

/// Counts of the packets read so far that are not as the capture has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureNotes {
    /// Packets left out because their link type is not read, by LINKTYPE number.
    pub left_out: BTreeMap<u16, u64>,
    /// TCP segments without an IP length, which got the length of their frame.
    pub completed: u64,
    /// Completed segments that are longer than the field can say, 65,535 bytes.
    pub longer: u64,
}

impl CaptureNotes {
    /// Packets left out.
    pub fn left_out_packets(&self) -> u64 {
        self.left_out.values().sum()
    }
}
