//! The captures that commands read and write: files, pipes, and `-` for standard input and output.

use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use weir_abi::{Action, Verdict};
use weir_command::engine::action;
use weir_command::failure::Failure;
use weir_engine::EngineError;
use weir_engine::capture::{CaptureBurst, CaptureFault, CaptureForm, CaptureReader, CaptureWriter};
use weir_engine::output::{OutputFile, is_same_file, is_stream};
use weir_loading::{Policy, eval};
use weir_policy::ir::eval::packet::{self, Frame};
use weir_policy::ir::eval::rewrite::Leaving;

/// The name of standard input and output on the command line. A file with this name is `./-`.
const STREAM: &str = "-";

/// The position at which a capture is damaged. Reports cover the packets before it.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// Number of the damaged packet, from 1.
    pub packet: u64,
    /// Offset of its record in the capture, bytes.
    pub byte: u64,
    /// The problem.
    pub problem: String,
}

impl Damage {
    /// The damage that an error reports, if it is one of a capture.
    pub fn of(error: &EngineError) -> Option<Self> {
        match error {
            // The file is whole, but nothing in it is read.
            EngineError::Capture { fault: CaptureFault::LinkType { .. }, .. } => None,
            EngineError::Capture { packet, offset, fault, .. } => {
                Some(Damage { packet: *packet, byte: *offset, problem: fault.to_string() })
            }
            _ => None,
        }
    }

    /// A note for reports.
    pub fn describe(&self) -> String {
        let Damage { packet, byte, problem } = self;
        format!(
            "\n  The capture is damaged: at packet {packet}, byte {byte}, {problem}. All figures are for the packets before it.\n"
        )
    }
}

/// Opens a capture. TCP segments that a host left to its card have the length of their frame.
///
/// # Errors
/// It cannot be read, or it is a terminal.
pub fn open(input: &Path) -> Result<CaptureReader, Failure> {
    if input.as_os_str() != STREAM {
        return Ok(CaptureReader::open(input)?.completing_segments());
    }
    if io::stdin().is_terminal() {
        return Err(Failure::Rejected("weir: --in -: standard input is a terminal, not a capture".to_owned()));
    }
    Ok(CaptureReader::from_stream(&name(input), Box::new(io::stdin()))?.completing_segments())
}

/// The name of an input capture in messages.
pub fn name(input: &Path) -> PathBuf {
    if input.as_os_str() == STREAM { PathBuf::from("standard input") } else { input.to_owned() }
}

/// Refuses to write to a file that is read: the policy, its lists and included files, or the capture.
///
/// # Errors
/// `output` is one of them.
pub fn refuse_input(output: &Path, policy: &Policy, inputs: &[&Path]) -> Result<(), Failure> {
    let files = policy.files().iter().map(PathBuf::as_path);
    match files.chain(inputs.iter().copied()).find(|input| is_same_file(output, input)) {
        Some(input) => {
            let (output, input) = (output.display(), input.display());
            Err(Failure::Rejected(format!(
                "weir: {output} is also an input ({input}): outputs and inputs must be different files"
            )))
        }
        None => Ok(()),
    }
}

/// The output captures.
pub struct Sinks {
    passed: Option<CaptureWriter>,
    dropped: Option<CaptureWriter>,
    replies: Option<CaptureWriter>,
}

impl Sinks {
    /// Whether a capture is written to standard output, so that the report cannot be. `/dev/stdout` is recognised too.
    pub fn take_standard_output(outputs: [Option<&Path>; 3]) -> bool {
        outputs.into_iter().flatten().any(is_standard_output)
    }

    /// Creates the outputs for packets that pass, that are dropped, and that Weir itself sends, in the format `form`.
    ///
    /// # Errors
    /// Two of the files are the same, or an output cannot be written or is a terminal.
    pub fn create(
        outputs: [Option<&Path>; 3],
        policy: &Policy,
        inputs: &[&Path],
        form: CaptureForm,
    ) -> Result<Self, Failure> {
        for output in outputs.into_iter().flatten().filter(|output| output.as_os_str() != STREAM) {
            refuse_input(output, policy, inputs)?;
            if inputs.iter().any(|input| input.as_os_str() == STREAM) && is_stream(output, io::stdin()) {
                let message =
                    format!("weir: {} is standard input: --in and outputs must be different files", output.display());
                return Err(Failure::Rejected(message));
            }
        }
        let named = [("--out", outputs[0]), ("--dropped", outputs[1]), ("--replies", outputs[2])];
        let named: Vec<_> = named.into_iter().filter_map(|(name, output)| Some((name, output?))).collect();
        for (index, (name, one)) in named.iter().enumerate() {
            let same = |other: &Path| is_same_file(one, other) || is_standard_output(one) && is_standard_output(other);
            if let Some((other, _)) = named[index + 1..].iter().find(|(_, other)| same(other)) {
                return Err(Failure::Rejected(format!("weir: {name} and {other} must be different files")));
            }
        }
        let create = |output: Option<&Path>| output.map(|output| create(output, form)).transpose();
        let [passed, dropped, replies] = outputs;
        Ok(Sinks { passed: create(passed)?, dropped: create(dropped)?, replies: create(replies)? })
    }

    /// Writes the frames of a burst to the outputs of their verdicts, those that were rewritten as they leave.
    ///
    /// # Errors
    /// An output cannot be written.
    pub fn write(
        &mut self,
        burst: &CaptureBurst<'_>,
        verdicts: &[Verdict],
        rewritten: &BTreeMap<usize, Leaving>,
    ) -> Result<(), Failure> {
        if self.passed.is_none() && self.dropped.is_none() && self.replies.is_none() {
            return Ok(());
        }
        for (index, verdict) in verdicts.iter().enumerate().take(burst.frames().len()) {
            let sink = match action(*verdict) {
                Action::Accept => &mut self.passed,
                Action::Drop => &mut self.dropped,
                Action::Divert | Action::Reply => &mut None,
            };
            let leaving = rewritten.get(&index);
            if let Some(writer) = sink {
                match leaving {
                    Some(leaving) => writer.write_changed(burst, index, &leaving.bytes, leaving.wire_len)?,
                    None => writer.write(burst, index)?,
                }
            }
            if let (Some(writer), Some(leaving)) = (&mut self.replies, leaving)
                && is_own(eval::frame(burst.frames(), index), *verdict, leaving)
            {
                writer.write_changed(burst, index, &leaving.bytes, leaving.wire_len)?;
            }
        }
        Ok(())
    }

    /// Completes the outputs. The files appear only after both are written.
    ///
    /// # Errors
    /// An output cannot be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        for writer in [&mut self.passed, &mut self.dropped, &mut self.replies].into_iter().flatten() {
            writer.flush()?;
        }
        for writer in [self.passed, self.dropped, self.replies].into_iter().flatten() {
            writer.finish()?;
        }
        Ok(())
    }
}

/// Whether a packet that leaves is one of Weir's own: a reply, a SYN, or the ACK in place of a SYN-ACK. A SYN that only
/// passes leaves as it came, or is a server's SYN with another number.
fn is_own(received: Frame<'_>, verdict: Verdict, leaving: &Leaving) -> bool {
    const SYN: u8 = 2;
    const SYN_ACK: u8 = 18;
    const ACK: u8 = 16;
    let sent = Frame { bytes: &leaving.bytes, wire_len: leaving.wire_len, ..received };
    let [before, after] = [received, sent].map(|frame| packet::parse(frame).0);
    let is_new_syn = || before.seq == after.seq && received.bytes != leaving.bytes;
    match [before.tcp_flags, after.tcp_flags].map(|flags| flags & SYN_ACK) {
        _ if action(verdict) == Action::Reply => true,
        [ACK, SYN] | [SYN_ACK, ACK] => true,
        [SYN, SYN] => is_new_syn(),
        _ => false,
    }
}

fn is_standard_output(output: &Path) -> bool {
    output.as_os_str() == STREAM || is_stream(output, io::stdout())
}

fn create(output: &Path, form: CaptureForm) -> Result<CaptureWriter, Failure> {
    let (name, opened) = match is_standard_output(output) {
        true => (Path::new("standard output"), OutputFile::standard_output()),
        false => (output, OutputFile::create(output)),
    };
    let opened = opened.map_err(|error| Failure::file(name, error))?;
    if opened.is_terminal() {
        return Err(Failure::Rejected(format!("weir: {}: a capture is not written to a terminal", name.display())));
    }
    Ok(CaptureWriter::to_output(name, opened, form)?)
}
