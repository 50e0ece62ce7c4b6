//! `weir diff`: the packets whose verdict differs between two policies, by rule and by source.

use crate::cli::DiffOptions;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::packet::L3;
use weir_abi::{BURST_MAX, Verdict};
use weir_command::comparison::{self, Compared, Comparing};
use weir_command::engine;
use weir_command::failure::{self, Failure};
use weir_command::report;
use weir_control::Comparison;
use weir_loading::{Policy, PolicyFile, eval};
use weir_policy::ir::eval::packet;
use weir_recording::capture_notes::CaptureNotes;
use weir_recording::captures::{self, Damage};
use weir_recording::directions::Directions;

/// Most sources that are counted separately. Further sources are counted together.
const SOURCES_MAX: usize = 1 << 20;
/// Most packets that are listed.
const LISTED_MAX: usize = 20;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// What differs.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Numbers of the first packets that change.
    pub first_packets: Vec<u64>,
    /// Packets that are not judged as the capture has them.
    #[serde(flatten)]
    pub notes: CaptureNotes,
    /// Whether the capture could not be read to its end. The figures then cover the packets before that point.
    pub truncated: bool,
    /// The position, if the capture is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_at: Option<Damage>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<failure::Error>,
}

/// Runs the command.
///
/// # Errors
/// A policy is rejected, or the capture fails.
pub fn run(options: &DiffOptions) -> Result<(), Failure> {
    let trust = options.trust.read()?;
    let mut old = PolicyFile::open(&options.old)?.read(&trust)?;
    let mut new = PolicyFile::open(&options.new)?.read(&trust)?;
    report::say_warnings(&old);
    report::say_warnings(&new);
    let (before, after) = (Directions::only(&mut old, &options.chain)?, Directions::only(&mut new, &options.chain)?);
    let engines = (engine::choose(&old, None)?, engine::choose(&new, None)?);
    let mut reader = captures::open(&options.input)?;
    let (mut old_filter, mut new_filter) = (old.filter(engines.0.into())?, new.filter(engines.1.into())?);
    let mut comparing = Comparing::new(SOURCES_MAX);
    let mut first_packets = Vec::new();
    let outcome = loop {
        let burst = match reader.next_burst() {
            Ok(Some(burst)) => burst,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let (mut olds, mut news) = ([Verdict(0); BURST_MAX], [Verdict(0); BURST_MAX]);
        before.decide(old_filter.as_mut(), burst.frames(), &mut olds)?;
        after.decide(new_filter.as_mut(), burst.frames(), &mut news)?;
        for index in 0..burst.frames().len() {
            let bytes = u64::from(burst.frames().wire_len(index));
            let packet = Compared { old: olds[index], new: news[index], bytes };
            if packet.is_changed() && first_packets.len() < LISTED_MAX {
                first_packets.push(burst.first_packet() + index as u64);
            }
            comparing.add(packet, || source(packet::parse(eval::frame(burst.frames(), index)).0));
        }
    };
    let damage = outcome.as_ref().err().and_then(Damage::of);
    // As in `replay`, the packets before the damage are reported.
    let failure = outcome.err().map(Failure::from);
    let name = |policy: &Policy, reason| report::reason_name(&policy.program, reason);
    comparing.name(|reason| name(&old, reason), |reason| name(&new, reason));
    let difference = Difference {
        comparison: comparing.comparison(),
        first_packets,
        notes: CaptureNotes::of(reader.notes()),
        truncated: failure.is_some(),
        truncated_at: damage,
        error: failure.as_ref().map(Failure::error),
    };
    if options.json {
        report::print_json(&difference)?;
        return failure.map_or(Ok(()), |failure| Err(failure.reported()));
    }
    report::print(&describe(&difference, &old, &new))?;
    failure.map_or(Ok(()), Err)
}

fn source(packet: packet::Packet) -> Option<IpAddr> {
    match packet.l3 {
        L3::Ipv4 => Some(Ipv4Addr::from(packet.saddr as u32).into()),
        L3::Ipv6 => Some(Ipv6Addr::from(packet.saddr).into()),
        L3::Arp | L3::None => None,
    }
}

/// The difference as text.
fn describe(difference: &Difference, old: &Policy, new: &Policy) -> String {
    let (names, summary) = ((&old.program.name, &new.program.name), comparison::summary(&difference.comparison));
    let mut text = format!("{} -> {}: {summary}\n", names.0, names.1);
    if let Some(damage) = &difference.truncated_at {
        text += &damage.describe();
    }
    text += &difference.notes.describe();
    if difference.comparison.changed == 0 {
        return text;
    }
    text += &comparison::tables(&difference.comparison);
    let first: Vec<String> = difference.first_packets.iter().map(u64::to_string).collect();
    text += &format!("\n  First packets: {}\n", first.join(", "));
    text
}
