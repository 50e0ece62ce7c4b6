//! What the report says of a recording that is shorter than an attack must be seen.

use serde::Serialize;
use std::fmt::Write;
use weir_command::figures::grouped;
use weir_mitigate::class;
use weir_mitigate::recording::TooShort;

/// What is missing in a recording that is too short, and what it has.
#[derive(Debug, Serialize)]
pub struct ShortReport {
    /// How long an attack must be seen, seconds.
    needed_s: f64,
    /// More packets without proof of one class are an attack in any case.
    needed_packets: u64,
    /// Who receives the most packets without proof, their class and their number.
    victim: Option<String>,
    class: Option<&'static str>,
    packets: u64,
}

impl ShortReport {
    /// What is said of a recording.
    pub fn new(short: &TooShort) -> Self {
        let TooShort { needed_ns, needed_packets, ref busiest } = *short;
        ShortReport {
            needed_s: needed_ns as f64 / 1e9,
            needed_packets,
            victim: busiest.map(|(prefix, ..)| prefix.to_string()),
            class: busiest.map(|(_, class, _)| class::title(class)),
            packets: busiest.map_or(0, |(_, _, packets)| packets),
        }
    }

    /// The report as text. The recording has `seconds`, and `attacks` were found in it.
    pub fn describe(&self, seconds: f64, attacks: usize, text: &mut String) {
        let ShortReport { needed_s, needed_packets, victim, class, packets } = self;
        let _ = writeln!(
            text,
            "  short: {seconds:.3} s; an attack shows in {needed_s} s, or at once in more than {} packets without proof",
            grouped(*needed_packets)
        );
        if attacks > 0 {
            *text += "  rates: as if nothing else came for 10 s\n";
        }
        if let (Some(victim), Some(class)) = (victim, class) {
            let _ = writeln!(text, "  seen: {} packets to {victim} without proof: {class}", grouped(*packets));
        }
    }
}
