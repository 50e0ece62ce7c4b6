//! Streams without proof that are spared: new services that send in one direction, such as logs, monitoring or video.
//!
//! A stream is one sender: packets from one port of one source to one port, again and again. Made-up sources do not make
//! streams, and a few senders of an ordinary rate are no load. So streams of a prefix do not count as packets without
//! proof as long as all of them together are below what harms nobody. Above, each counts.

use crate::baseline::{Baselines, FACTOR, floor_pps};
use crate::measure::Window;
use crate::measure::counts::Counts;
use crate::peace::ANSWERERS_MIN;
use crate::prefix::{Level, Prefix};
use std::borrow::Cow;
use weir_abi::PacketClass;

/// Streams of a prefix are spared up to this multiple of the floor, from which also served questions are reported.
const EXCESS: f64 = 10.0;
/// Or up to this share of all packets that the network around usually receives: it carries a tenth more.
const NETWORK_SHARE: f64 = 0.1;

/// The window, in which the streams that are not spared count as packets without proof.
pub fn judge<'a>(window: &'a Window, baselines: &Baselines) -> Cow<'a, Window> {
    let is_guilty = |counts: &Counts| counts.streamed_total() > 0 && !is_spared(counts, window.seconds(), baselines);
    let guilty: Vec<Prefix> = window.counts.iter().filter(|one| is_guilty(one)).map(|one| one.prefix).collect();
    if guilty.is_empty() {
        return Cow::Borrowed(window);
    }
    let mut judged = window.clone();
    for counts in judged.counts.iter_mut().filter(|counts| guilty.contains(&counts.prefix)) {
        let streamed = std::mem::take(&mut counts.streamed);
        counts.unproven.iter_mut().zip(streamed).for_each(|(unproven, streamed)| *unproven += streamed);
    }
    for (streamed, unproven) in
        [(&mut judged.streamed, &mut judged.unproven), (&mut judged.streamed_strata, &mut judged.strata)]
    {
        let is_guilty = |prefix: &Prefix, (is_ipv6, daddr)| prefix.contains(is_ipv6, daddr);
        unproven.extend(streamed.extract_if(.., |header| {
            guilty.iter().any(|prefix| is_guilty(prefix, (header.is_ipv6, header.daddr)))
        }));
    }
    Cow::Owned(judged)
}

fn is_spared(counts: &Counts, seconds: f64, baselines: &Baselines) -> bool {
    let usual = baselines.of(&counts.prefix);
    let is_usual = |packets: u64, usual_pps: f64| packets as f64 / seconds <= usual_pps * FACTOR;
    // Many senders from ports of services are reflectors, whatever their rate.
    let services = PacketClass::UdpService;
    let is_reflected = counts.streams >= ANSWERERS_MIN as u64
        && !is_usual(counts.streamed[services as usize], usual.streamed_pps(services));
    let wide = Prefix::at(Level::Wide, counts.prefix.is_ipv6(), counts.prefix.address());
    let harmless_pps =
        (floor_pps(&counts.prefix) * EXCESS).max(baselines.of(&wide).total_pps() * NETWORK_SHARE);
    let total = counts.streamed_total();
    !is_reflected && (total as f64 / seconds <= harmless_pps || is_usual(total, usual.streamed_total_pps()))
}
