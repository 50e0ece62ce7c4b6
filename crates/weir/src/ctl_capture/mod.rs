//! `weir ctl capture`: writes decided packets to pcapng files, as the daemon sends them.

mod blocks;
mod files;

use crate::cli::{CaptureOptions, CtlOptions};
use blocks::{Blocks, Kind};
use clap::ValueEnum;
use files::Files;
use serde_json::json;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use weir_command::failure::Failure;
use weir_command::{report, signals};
use weir_control::{CaptureFilter, CaptureStarted, Client, Request};
use weir_engine::capture::packet_stream::InterfaceStatistics;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, it refuses the capture, or the output cannot be written.
pub fn run(options: &CtlOptions, capture: &CaptureOptions) -> Result<(), Failure> {
    let is_standard = capture.output.as_os_str() == "-";
    if is_standard && (options.json || capture.rotate.is_some()) {
        let problem = "weir: packets on standard output are one stream, without --json and --rotate";
        return Err(Failure::Rejected(problem.to_owned()));
    }
    let client = Client::connect(&options.control)?;
    let (started, stream) = client.stream(&Request::Capture(filter(capture)))?;
    let started: CaptureStarted = weir_control::read(started)?;
    let of = if started.rules.is_empty() { String::new() } else { format!(" of {}", started.rules.join(", ")) };
    // What is refused changes no file.
    let mut files = Files::of(capture)?;
    let end = Ending::of(stream.get_ref()).map_err(|error| Failure::file(&options.control, error))?;
    end.prepare(capture)?;
    report::say(&format!("weir: capturing packets{of}"));
    let statistics = receive(Blocks::new(stream), &mut files, &end)?;
    let Some((statistics, text)) = statistics else {
        return Err(Failure::Runtime("weir: the capture ended without its report: has `weir run` ended?".to_owned()));
    };
    files.finish()?;
    report::say(&format!("weir: {text}"));
    if options.json {
        let InterfaceStatistics { received, dropped, lost, delivered, .. } = statistics;
        let names: Vec<String> = files.names().iter().map(|name| name.display().to_string()).collect();
        return report::print_json(&json!({
            "packets": delivered, "selected": received, "not_copied": dropped - lost, "lost": lost, "files": names,
        }));
    }
    Ok(())
}

fn filter(capture: &CaptureOptions) -> CaptureFilter {
    let name = |value: clap::builder::PossibleValue| value.get_name().to_owned();
    CaptureFilter {
        rule: capture.rule.clone(),
        reason: capture.reason.clone(),
        matches: capture.matches.clone(),
        actions: capture.action.iter().filter_map(ValueEnum::to_possible_value).map(name).collect(),
        side: capture.side.as_ref().and_then(ValueEnum::to_possible_value).map(name),
        every: capture.every,
        snap: capture.snap,
        count: capture.count,
        budget_pps: Some(capture.budget),
    }
}

/// Writes blocks until the stream ends. Returns its statistics, which come last.
fn receive(
    mut blocks: Blocks,
    files: &mut Files,
    end: &Ending,
) -> Result<Option<(InterfaceStatistics, String)>, Failure> {
    let mut statistics = None;
    let mut is_read = true;
    while let Some(block) = blocks.next().map_err(|error| Failure::Runtime(format!("weir: the capture: {error}")))? {
        if block.kind() == Kind::Statistics {
            statistics = InterfaceStatistics::read(block.body());
        }
        if !is_read {
            continue;
        }
        match files.write(&block, blocks.is_last_that_waits()) {
            Ok(()) => {}
            // Who reads the pipe has seen enough. The statistics are still of interest.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                is_read = false;
                end.now();
            }
            Err(error) => return Err(Failure::file(files.current(), error)),
        }
    }
    Ok(statistics)
}

/// Ends a capture: the daemon then sends its statistics.
#[derive(Clone)]
struct Ending(Arc<UnixStream>);

impl Ending {
    fn of(stream: &UnixStream) -> io::Result<Self> {
        Ok(Ending(Arc::new(stream.try_clone()?)))
    }

    fn now(&self) {
        // The daemon may have gone.
        let _gone = self.0.shutdown(Shutdown::Write);
    }

    /// Ends the capture at a signal, and when its time is over.
    fn prepare(&self, capture: &CaptureOptions) -> Result<(), Failure> {
        let end = self.clone();
        signals::on_end(move || end.now())?;
        let (Some(time), end) = (capture.duration, self.clone()) else { return Ok(()) };
        let wait = move || {
            thread::sleep(time);
            end.now();
        };
        let started = thread::Builder::new().name("duration".to_owned()).spawn(wait);
        started.map(drop).map_err(|error| Failure::system("a thread", error))
    }
}
