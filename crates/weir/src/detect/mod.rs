//! `weir detect`: what mitigation would do about the attacks in recordings.

mod headers;
mod labels;
mod report;

use crate::captures::{self, Damage};
use crate::cli::DetectOptions;
use crate::failure::Failure;
use crate::report as output;
use labels::Labels;
use report::{Figures, Report};
use weir_loading::eval;
use weir_mitigate::action::Mode;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::recording::Recording;

/// Runs the command.
///
/// # Errors
/// A capture or the labels cannot be read.
pub fn run(options: &DetectOptions) -> Result<(), Failure> {
    let labels = options.labels.as_deref().map(Labels::read).transpose()?;
    let inside = options.inside.iter().map(|inside| inside.prefix()).collect();
    let settings = Settings { mode: Mode::Act, protected: Vec::new(), posture: None };
    let mut recording = Recording::new(inside, settings);
    let mut figures = Figures::new(labels.is_some());
    let mut damage = None;
    for capture in &options.captures {
        if let Some(found) = read(capture, &mut recording, &mut figures, labels.as_ref())? {
            damage = Some(found);
            break;
        }
    }
    let report = Report::new(&figures, recording.mitigator(), damage);
    if options.json { output::print_json(&report) } else { output::print(&report.describe(&options.captures)) }
}

/// Reads one capture. Captures are parts of one recording: one that begins before the end of the previous begins at
/// its end.
fn read(
    capture: &std::path::Path,
    recording: &mut Recording,
    figures: &mut Figures,
    labels: Option<&Labels>,
) -> Result<Option<Damage>, Failure> {
    let mut reader = captures::open(capture)?;
    let end_ns = figures.last_ns();
    let mut shift_ns = None;
    loop {
        let burst = match reader.next_burst() {
            Ok(Some(burst)) => burst,
            Ok(None) => return Ok(None),
            Err(error) => return Damage::of(&error).map(Some).ok_or_else(|| error.into()),
        };
        for index in 0..burst.frames().len() {
            let frame = eval::frame(burst.frames(), index);
            let shift_ns = *shift_ns.get_or_insert_with(|| end_ns.map_or(0, |end| end.saturating_sub(frame.time_ns)));
            let now_ns = frame.time_ns + shift_ns;
            let is_attack = labels.map(|labels| labels.is_attack(figures.next_packet()));
            let is_dropped = headers::of(frame).is_some_and(|header| recording.take(&header, now_ns));
            figures.count(now_ns, frame.wire_len, is_dropped, is_attack);
        }
    }
}
