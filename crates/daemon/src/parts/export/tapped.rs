//! Copies of decided packets from taps.

use crate::parts::export::packets::{DecidedPacket, DecidedPackets};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_abi::Action;
use weir_command::failure::Failure;
use weir_engine::live::tap::{Copied, TapFilter, TapReader, Taps};
use weir_export::ipfix::Now;
use weir_export::sflow::sample::HEADER_BYTES_MAX;

/// Samples of a second at most. More are counted as lost.
const SAMPLES_PPS: u32 = 50_000;
/// Nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;

/// The time now.
pub fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { clock_ms: weir_state::now_ns() / MS_NS, unix_ms: unix.as_millis() as u64 }
}

/// The copies of a tap.
pub struct Tapped {
    reader: TapReader,
    copied: Option<Copied>,
}

impl Tapped {
    /// One packet in so many, whatever becomes of it.
    ///
    /// # Errors
    /// All taps are in use.
    pub fn samples(taps: &Arc<Taps>, one_in: u32) -> Result<Self, Failure> {
        Self::open(taps, TapFilter { one_in, budget_pps: SAMPLES_PPS, ..TapFilter::default() })
    }

    /// Dropped packets, as many of a second as get notifications.
    ///
    /// # Errors
    /// All taps are in use.
    pub fn drops(taps: &Arc<Taps>, per_second: u32) -> Result<Self, Failure> {
        let actions = vec![Action::Drop];
        Self::open(taps, TapFilter { actions, budget_pps: per_second, ..TapFilter::default() })
    }

    fn open(taps: &Arc<Taps>, filter: TapFilter) -> Result<Self, Failure> {
        let filter = TapFilter { snap: HEADER_BYTES_MAX as u32, ..filter };
        let reader = taps.open(filter).map_err(|error| Failure::Runtime(format!("weir: export: {error}")))?;
        Ok(Tapped { reader, copied: None })
    }
}

impl DecidedPackets for Tapped {
    fn next(&mut self) -> Option<DecidedPacket<'_>> {
        self.copied = self.reader.read();
        let Copied { bytes, wire_len, link, from, verdict, names, at_ns, .. } = self.copied.as_ref()?;
        let Now { clock_ms, unix_ms } = now();
        Some(DecidedPacket {
            bytes,
            link: *link,
            wire_len: *wire_len,
            from: *from,
            verdict: *verdict,
            at: names.rule(verdict.reason()).map(|rule| &*rule.at),
            at_ms: clock_ms.saturating_sub(unix_ms.saturating_sub(at_ns / MS_NS)),
        })
    }

    fn lost(&self) -> u64 {
        let counts = self.reader.counts();
        counts.over + counts.lost
    }
}
