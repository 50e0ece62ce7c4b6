//! What a report says of packets that are not judged as the capture has them.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_command::figures;
use weir_engine::capture::{self, link_type_name};

/// Counts of such packets. They are a part of the reports of all commands that read captures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CaptureNotes {
    /// Packets left out, by the name of their link type, which is not read. No other figure includes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, u64>,
    /// TCP segments without an IP length. They are judged with the length of their frame.
    #[serde(skip_serializing_if = "is_zero")]
    pub segments_completed: u64,
    /// Such segments that are longer than 65,535 bytes. They are judged as if they had this length.
    #[serde(skip_serializing_if = "is_zero")]
    pub segments_longer: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl CaptureNotes {
    /// The notes of a reader.
    pub fn of(notes: &capture::CaptureNotes) -> Self {
        let mut all = CaptureNotes::default();
        all.add(notes);
        all
    }

    /// Adds the notes of another capture of the same recording.
    pub fn add(&mut self, notes: &capture::CaptureNotes) {
        let capture::CaptureNotes { left_out, completed, longer } = notes;
        for (number, packets) in left_out {
            let name = match link_type_name(*number) {
                "unknown" => number.to_string(),
                name => name.to_owned(),
            };
            *self.left_out.entry(name).or_insert(0) += packets;
        }
        self.segments_completed += completed;
        self.segments_longer += longer;
    }

    /// The notes for a report: nothing, or lines.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (name, packets) in &self.left_out {
            let packets = figures::grouped(*packets);
            let _ = writeln!(text, "\n  Packets left out, because the link type {name} is not read: {packets}.");
        }
        if self.segments_completed > 0 {
            let segments = figures::grouped(self.segments_completed);
            let _ = writeln!(
                text,
                "\n  TCP segments without an IP length, because a host captured them before its card cut them up: {segments}.\n  \
                 They are judged with the length of their frame. On a wire Weir drops such packets as malformed."
            );
        }
        if self.segments_longer > 0 {
            let segments = figures::grouped(self.segments_longer);
            let _ = writeln!(text, "  Those longer than 65,535 bytes, which are judged with that length: {segments}.");
        }
        text
    }
}
