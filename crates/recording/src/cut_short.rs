//! Truncated packets: a capture contains only their beginning.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_abi::{Reason, Verdict};
use weir_command::figures;
use weir_policy::ir::eval::packet::{self, Frame};

/// Packets that a capture has cut short, because it was taken with a snaplen.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Number of packets.
    pub packets: u64,
    /// The fewest bytes that were captured of such a packet.
    pub bytes_min: u32,
    /// Packets by reason that are malformed only because the capture ends inside a header. `reasons` of the report
    /// includes them.
    pub malformed: BTreeMap<&'static str, u64>,
}

impl Cut {
    /// Adds a packet, if it is cut short.
    pub fn add(this: &mut Option<Cut>, frame: Frame<'_>, verdict: Verdict) {
        let captured = frame.bytes.len() as u32;
        if captured >= frame.wire_len {
            return;
        }
        let cut = this.get_or_insert(Cut { bytes_min: captured, ..Cut::default() });
        cut.packets += 1;
        cut.bytes_min = cut.bytes_min.min(captured);
        if let Some(reason) = cut_short(frame, verdict) {
            *cut.malformed.entry(reason).or_insert(0) += 1;
        }
    }

    /// The note for the report.
    pub fn describe(&self) -> String {
        let Cut { packets, bytes_min, malformed } = self;
        let packets = figures::grouped(*packets);
        let mut text = format!(
            "\n  The capture has only the beginning of {packets} packets (snaplen), {bytes_min} bytes and more of each; matches on later bytes fail.\n"
        );
        for (reason, packets) in malformed {
            let packets = figures::grouped(*packets);
            let _ = writeln!(text, "  {packets:>13} of them are {reason} because the capture ends inside the header");
        }
        text
    }
}

/// The reason of a packet that is malformed only because its capture ends inside a header.
pub fn cut_short(frame: Frame<'_>, verdict: Verdict) -> Option<&'static str> {
    let reason = verdict.reason();
    let malformed = (Reason::MALFORMED_LINK..=Reason::MALFORMED_TRANSPORT).contains(&reason);
    if malformed && packet::is_cut_short(frame) { reason.builtin_name() } else { None }
}
