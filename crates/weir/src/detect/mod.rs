//! `weir detect`: what mitigation would do about the attacks in recordings.

mod exporting;
mod report;
mod short;

use crate::cli::DetectOptions;
use exporting::Exporter;
use report::{Figures, Report};
use std::path::Path;
use weir_abi::Action;
use weir_command::engine::action;
use weir_command::failure::Failure;
use weir_command::inside::Inside;
use weir_command::options::{ChainOptions, DirectionName};
use weir_command::report as output;
use weir_engine::EngineError;
use weir_engine::bundle::trust::Trust;
use weir_engine::capture::CaptureReader;
use weir_loading::eval::{self, SlotAnswers};
use weir_loading::{Policy, PolicyFile};
use weir_mitigate::action::{Mode, Prepared};
use weir_mitigate::defence::Fate;
use weir_mitigate::excerpt;
use weir_mitigate::header::Header;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::recording::Recording;
use weir_policy::capability::Engine;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;
use weir_recording::captures::{self, Damage};
use weir_recording::clock::Clock;
use weir_recording::directions::Directions;
use weir_recording::labels::Labels;
use weir_recording::sides::Sides;

/// Runs the command.
///
/// # Errors
/// A capture or the labels cannot be read, or a capture is damaged. The packets before the damage are reported.
pub fn run(options: &DetectOptions) -> Result<(), Failure> {
    let labels = options.labels.as_deref().map(Labels::read).transpose()?;
    let policy = options.policy.as_deref().map(|path| PolicyFile::open(path)?.read(&Trust::default())).transpose()?;
    let inside = match &policy {
        Some(policy) if options.inside.is_empty() => Inside::of_sets(&policy.program.inside),
        _ => options.inside.clone(),
    };
    let prepared = if options.no_synproxy { Prepared::Nothing } else { Prepared::SynProxy };
    let settings = Settings { mode: Mode::Act, prepared, ..Settings::default() };
    let mut recording = Recording::new(inside.iter().map(Inside::prefix).collect(), settings);
    let exporter = options.export.as_deref().map(|folder| Exporter::new(folder, options, inside.clone()));
    if exporter.is_some() {
        recording.keep_excerpts();
    }
    let rules = policy.as_ref().map(|policy| Rules::new(policy, inside.clone())).transpose()?;
    let figures = Figures::new(labels.is_some());
    let (inside, clock) = (inside.as_slice(), Clock::default());
    let sides = Sides::default();
    let mut detection = Detection { exporter, recording, figures, labels, rules, inside, clock, sides };
    let failed = options.captures.iter().try_for_each(|capture| detection.read(capture)).err();
    let damage = failed.as_ref().and_then(Unread::damage);
    let failure = match failed {
        Some(Unread::Rest(error)) => Some(Failure::from(error)),
        Some(Unread::All(failure)) => return Err(failure),
        None => None,
    };
    detection.recording.finish();
    detection.export()?;
    let sides = (!inside.is_empty()).then_some(&detection.sides);
    detection.figures.finish(&detection.clock, detection.labels.as_ref(), sides, &detection.recording);
    let Detection { recording, figures, exporter, .. } = detection;
    let exports = exporter.map(|exporter| exporter.finish(recording.excerpts_left_out()));
    let report = Report::new(&figures, &recording, (damage, failure.as_ref()), exports);
    if options.json {
        output::print_json(&report)?;
        return failure.map_or(Ok(()), |failure| Err(failure.reported()));
    }
    output::print(&report.describe(&options.captures))?;
    failure.map_or(Ok(()), Err)
}

/// Why captures were not read to the end.
enum Unread {
    /// One is damaged. The packets before the damage are reported.
    Rest(EngineError),
    /// Nothing is reported.
    All(Failure),
}

impl Unread {
    fn damage(&self) -> Option<Damage> {
        match self {
            Unread::Rest(error) => Damage::of(error),
            Unread::All(_) => None,
        }
    }
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Self {
        Unread::All(failure)
    }
}

/// The policy in front of detection.
struct Rules<'a> {
    policy: &'a Policy,
    evaluator: Evaluator<'a, SlotAnswers>,
    directions: Directions,
}

impl<'a> Rules<'a> {
    fn new(policy: &'a Policy, inside: Vec<Inside>) -> Result<Self, Failure> {
        output::say_warnings(policy);
        policy.refuse_unsupported(&[Engine::Eval])?;
        let direction = inside.is_empty().then_some(DirectionName::Upstream);
        let chain = ChainOptions { direction, inside, posture: None };
        let directions = Directions::among_all(policy, &chain)?;
        Ok(Rules { policy, evaluator: Evaluator::new(&policy.program, policy.answers()), directions })
    }

    fn drops(&mut self, frame: Frame<'_>) -> bool {
        action(self.evaluator.decide(self.directions.chain(frame), frame, &mut ())) == Action::Drop
    }
}

struct Detection<'a> {
    exporter: Option<Exporter>,
    recording: Recording,
    figures: Figures,
    labels: Option<Labels>,
    rules: Option<Rules<'a>>,
    inside: &'a [Inside],
    clock: Clock,
    sides: Sides,
}

impl Detection<'_> {
    /// Reads one capture. Captures are parts of one recording.
    fn read(&mut self, capture: &Path) -> Result<(), Unread> {
        let mut reader = captures::open(capture)?;
        self.clock.begin_capture();
        let outcome = self.take_all(&mut reader);
        self.figures.add_notes(reader.notes());
        outcome
    }

    fn take_all(&mut self, reader: &mut CaptureReader) -> Result<(), Unread> {
        loop {
            let burst = match reader.next_burst() {
                Ok(Some(burst)) => burst,
                Ok(None) => return Ok(()),
                Err(error) if Damage::of(&error).is_some() => return Err(Unread::Rest(error)),
                Err(error) => return Err(Unread::All(error.into())),
            };
            for index in 0..burst.frames().len() {
                let time_ns = self.clock.follow(burst.stamp_ns(index));
                self.take(Frame { time_ns, ..eval::frame(burst.frames(), index) }, burst.interface_id(index));
            }
            self.export()?;
        }
    }

    fn take(&mut self, frame: Frame<'_>, interface: u32) {
        let is_attack = self.labels.as_ref().map(|labels| labels.is_attack(self.figures.next_packet()));
        let is_rejected = self.rules.as_mut().is_some_and(|rules| rules.drops(frame));
        let fate = match weir_recording::headers::of(frame) {
            Err(unseen) => {
                self.figures.count_unseen(unseen);
                if is_rejected { Fate::Drops } else { Fate::Passes }
            }
            Ok(_) if is_rejected => Fate::Drops,
            Ok(header) => {
                let ends = (self.is_inside(&header, header.saddr), self.is_inside(&header, header.daddr));
                let header = Header { arrival: self.sides.of(&frame, interface, ends), ..header };
                self.figures.count_seen(self.recording.way(&header));
                let excerpt = excerpt::Frame { bytes: frame.bytes, wire_len: frame.wire_len, link: frame.link };
                self.recording.take_frame(&header, Some(excerpt), frame.time_ns)
            }
        };
        self.figures.count(frame.time_ns, frame.wire_len, fate, is_attack);
    }

    fn is_inside(&self, header: &Header, address: u128) -> bool {
        self.inside.iter().any(|inside| inside.contains(header.is_ipv6, address))
    }

    /// Exports the attacks whose excerpts are complete.
    fn export(&mut self) -> Result<(), Failure> {
        let Some(exporter) = &mut self.exporter else { return Ok(()) };
        let policy = self.rules.as_ref().map(|rules| rules.policy);
        let excerpts = self.recording.take_excerpts();
        let mitigator = self.recording.mitigator();
        excerpts.into_iter().try_for_each(|excerpt| exporter.export(excerpt, mitigator, policy))
    }
}
