//! Measures the filter in the kernel and its stages.
//!
//! Five programs take turns: an empty one, one that parses, one that also has rules, the policy, and the policy with
//! bare accesses in place of lookups (`bare_lookup.h`). Their differences are the costs of the stages. The lookups of
//! the last program are the floor of all lookups in tables of these layouts. Each is measured in two ways:
//!
//! * As a *stream* (fields without a prefix): one system call for all packets, with changing sources, like the receive
//!   loop of a driver. The packet is in the cache, and the tables are where previous packets left them. All
//!   programs write the source into the packet (`lab/instruments/c/stream.h`).
//! * As `cold_`: one system call per packet. Before every burst, another program runs and displaces code, tables,
//!   translations and predictions from the caches. This is an upper bound for a filter that runs rarely.

use crate::row::Row;
use crate::stream;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use weir_abi::{BURST_MAX, Counter, Target, Verdict};
use weir_command::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::{Bound, Filter, Image, ProgramShape, XdpFilter};
use weir_instruments::sources::Sources;
use weir_loading::Policy;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of streams of all packets for each program.
    pub streams: usize,
    /// Number of frames that are timed individually.
    pub cold_frames: usize,
}

/// An empty program, three programs that each extend the previous one, and the bare accesses.
const PROGRAMS: usize = 5;
/// The number of the policy among them.
const POLICY: usize = 3;

/// Lookups that only read, of IPv4 and of IPv6.
const BARE_C: &str = include_str!("bare_lookup.h");
const BARE6_C: &str = include_str!("bare_lookup6.h");
/// What generated code has between the layouts of its tables and its lookups.
const HOOK: &str = "#include \"kernel/hook.h\"\n";

/// A program that does nothing: the cost of the kernel and its clock.
const EMPTY_C: &str = r#"
#include "core/env.h"
#include "core/verdict.h"
#include "core/packet.h"
#include "kernel/hook.h"

WEIR_INLINE uint32_t upstream_frame(const struct env *env, const struct frame *frame, struct packet *packet)
{
	(void)env;
	(void)frame;
	(void)packet;
	return ACTION_ACCEPT;
}

WEIR_CHAIN(upstream)
"#;

/// A policy that parses and has one counted rule.
pub(super) const PARSE: &str = "upstream { accept }\ndownstream { accept }\n";

/// The rules of the policy, but with comparisons in place of table lookups.
const RULES: &str = r#"
upstream {
  ip saddr 10.0.0.0/8 counter
  ip saddr 192.0.2.0/24 counter
  ip saddr 198.51.100.0/24 counter drop
  accept
}
downstream { accept }
"#;

/// These rules for IPv6.
const RULES6: &str = r#"
upstream {
  ip6 saddr fc00::/7 counter
  ip6 saddr 2001:db8::/32 counter
  ip6 saddr 3fff::/20 counter drop
  accept
}
downstream { accept }
"#;

/// Runs `frames`, whose sources are `sources`, in the kernel.
///
/// # Errors
/// clang or the kernel rejects a program, or the kernel and native code count different packets.
pub fn run(
    policy: &Policy,
    sources: Sources<'_>,
    frames: &FrameSet,
    Effort { streams, cold_frames }: Effort,
    row: Row,
) -> Result<Row, Failure> {
    let (rules, bare_c) = match sources {
        Sources::V4(_) => (RULES, BARE_C),
        Sources::V6(_) => (RULES6, BARE6_C),
    };
    let bare = bare(policy, bare_c)?;
    let mut programs = [empty()?, filter(&plain(PARSE)?)?, filter(&plain(rules)?)?, filter(policy)?, bare];
    let row = stream_all(&mut programs, sources, frames, streams, row)?;
    compare(&programs[POLICY].counters(), &native_counters(policy, frames)?, streams as u64)?;
    cold(&mut programs, frames, cold_frames, row)
}

/// Streams all packets through each program, as often as `streams` says.
fn stream_all(
    programs: &mut [XdpFilter; PROGRAMS],
    sources: Sources<'_>,
    frames: &FrameSet,
    streams: usize,
    row: Row,
) -> Result<Row, Failure> {
    let first = frames.bursts().next().expect("there are frames");
    let mut samples: [Vec<f64>; PROGRAMS] = Default::default();
    for _ in 0..streams {
        for (program, samples) in programs.iter_mut().zip(&mut samples) {
            samples.push(stream::decide(program, 0, &first, 0, sources)?);
        }
    }
    Ok(figures("", samples, row))
}

fn cold(programs: &mut [XdpFilter; PROGRAMS], frames: &FrameSet, count: usize, row: Row) -> Result<Row, Failure> {
    let mut samples: [Vec<f64>; PROGRAMS] = Default::default();
    for burst in frames.bursts().take(count / BURST_MAX) {
        for (program, samples) in programs.iter_mut().zip(&mut samples) {
            let mut took = Duration::ZERO;
            for index in 0..burst.len() {
                took += program.time_frame(0, &burst, index, 1)?;
            }
            samples.push(took.as_secs_f64() * 1e9 / burst.len() as f64);
        }
    }
    Ok(figures("cold_", samples, row))
}

/// Adds the figures of one kind of measurement. Their names start with the prefix.
fn figures(prefix: &str, samples: [Vec<f64>; PROGRAMS], row: Row) -> Row {
    let [empty, parse, rules, all, bare] = samples.map(|samples| Spread::of(samples).expect("there are samples"));
    row.spread(&format!("{prefix}ns_per_packet"), all)
        .number(&format!("{prefix}empty_program_ns_per_packet"), empty.median)
        .number(&format!("{prefix}ns_per_packet_beyond_empty"), all.median - empty.median)
        .number(&format!("{prefix}parse_ns_per_packet"), parse.median - empty.median)
        .number(&format!("{prefix}rules_ns_per_packet"), rules.median - parse.median)
        .number(&format!("{prefix}lookup_ns_per_packet"), all.median - rules.median)
        .number(&format!("{prefix}bare_lookup_ns_per_packet"), bare.median - rules.median)
}

/// The counters of native code for the frames.
fn native_counters(policy: &Policy, frames: &FrameSet) -> Result<Vec<Counter>, Failure> {
    let mut native = policy.native()?;
    let mut verdicts = [Verdict(0); BURST_MAX];
    for burst in frames.bursts() {
        native.decide(0, &burst, &mut verdicts)?;
    }
    Ok(native.counters())
}

/// Refuses the figures of a program that decides differently from native code.
fn compare(streamed: &[Counter], once: &[Counter], streams: u64) -> Result<(), Failure> {
    for (index, (streamed, once)) in streamed.iter().zip(once).enumerate() {
        let expected = Counter { packets: once.packets * streams, bytes: once.bytes * streams };
        if *streamed != expected {
            let problem = format!("reason {index}: the kernel counted {streamed:?}, native code {expected:?}");
            return Err(Failure::Runtime(problem));
        }
    }
    Ok(())
}

fn load(c: &str, program: &ProgramShape, images: &[Arc<Image>]) -> Result<XdpFilter, Failure> {
    stream::load(c, program, &Bound::of_images(images.to_vec()))
}

fn filter(policy: &Policy) -> Result<XdpFilter, Failure> {
    let artifact = policy.artifact()?;
    load(artifact.source(Target::Bpf), &artifact.shape, &policy.images()?)
}

/// The policy with the bare accesses of `lookups` in place of its own. Its packets are decided wrongly.
fn bare(policy: &Policy, lookups: &str) -> Result<XdpFilter, Failure> {
    let artifact = policy.artifact()?;
    let whole = artifact.source(Target::Bpf);
    let c = whole.replacen(HOOK, &format!("{HOOK}{lookups}"), 1);
    assert!(c.len() > whole.len(), "compiler bug: generated code does not include the hook");
    load(&c, &artifact.shape, &policy.images()?)
}

/// Loads a policy without tables.
pub(super) fn plain(text: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let path = directory.path().join("plain.weir");
    fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    Ok(weir_loading::load(&path)?)
}

fn empty() -> Result<XdpFilter, Failure> {
    load(EMPTY_C, &ProgramShape { chains: vec!["upstream".to_owned()], rules: 0, ..ProgramShape::default() }, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_count_is_refused() {
        let once = [Counter { packets: 2, bytes: 128 }, Counter::default()];
        let mut streamed = [Counter { packets: 2 * 15, bytes: 128 * 15 }, Counter::default()];
        assert!(compare(&streamed, &once, 15).is_ok());
        streamed[1].packets = 1;
        assert!(compare(&streamed, &once, 15).is_err());
    }
}
