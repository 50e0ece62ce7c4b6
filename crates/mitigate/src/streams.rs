//! Streams without proof that are spared: new services that send in one direction, such as logs, monitoring or video.
//!
//! A stream is one sender: packets from one port of one source to one port, again and again. Made-up sources do not
//! make streams, and a few senders of an ordinary rate are no load. So streams of a prefix do not count as packets
//! without proof as long as all of them together are below a harmless rate. Above it, each counts.
//!
//! This also holds for datagrams that few answers vouch for, because an attacker can forge their conversations.

use crate::baseline::{Baselines, FACTOR, Growth, floor_pps};
use crate::header::Header;
use crate::measure::Window;
use crate::measure::counts::Counts;
use crate::one_way;
use crate::peace::ANSWERERS_MIN;
use crate::prefix::{Level, Prefix};
use std::borrow::Cow;
use weir_abi::PacketClass;

/// Streams of a prefix are spared up to this multiple of the floor, from which also served questions are reported.
const EXCESS: f64 = 10.0;
/// Or up to this share of all packets that the network around usually receives: it carries a tenth more.
const NETWORK_SHARE: f64 = 0.1;

/// The window, in which the streams and datagrams that are not spared count as packets without proof.
pub fn judge<'a>(window: &'a Window, baselines: &Baselines, growth: &Growth) -> Cow<'a, Window> {
    let seconds = window.seconds();
    let window = one_way::spare(window);
    let guilty = |is_guilty: &dyn Fn(&Counts) -> bool| -> Vec<Prefix> {
        window.counts.iter().filter(|one| is_guilty(one)).map(|one| one.prefix).collect()
    };
    let streamed = guilty(&|one| one.streamed_total() > 0 && !is_spared(one, &window, baselines));
    let vouched = guilty(&|one| !is_usually_vouched(one, seconds, baselines, growth));
    let unjudged = unjudged(&window, &streamed, baselines);
    if streamed.is_empty() && vouched.is_empty() && unjudged == 0 {
        return window;
    }
    let mut judged = window.into_owned();
    judged.unjudged = unjudged;
    for counts in &mut judged.counts {
        if streamed.contains(&counts.prefix) {
            let streamed = std::mem::take(&mut counts.streamed);
            counts.unproven.iter_mut().zip(streamed).for_each(|(unproven, streamed)| *unproven += streamed);
        }
        if vouched.contains(&counts.prefix) {
            for (class, briefly) in std::mem::take(&mut counts.briefly_vouched).into_iter().enumerate() {
                counts.vouched[class] -= briefly;
                counts.unproven[class] += briefly;
            }
        }
    }
    let is_of =
        |guilty: &[Prefix], header: &Header| guilty.iter().any(|prefix| prefix.contains(header.is_ipv6, header.daddr));
    judged.unproven.extend(judged.streamed.extract_if(.., |header| is_of(&streamed, header)));
    judged.strata.extend(judged.streamed_strata.extract_if(.., |header| is_of(&streamed, header)));
    judged.unproven.extend(judged.vouched.extract_if(.., |header| is_of(&vouched, header)));
    Cow::Owned(judged)
}

/// Whether datagrams to a prefix that few answers vouch for are few for any host, little of what the network around
/// receives, or usual.
fn is_usually_vouched(counts: &Counts, seconds: f64, baselines: &Baselines, growth: &Growth) -> bool {
    let prefix = &counts.prefix;
    let pps = counts.briefly_vouched.iter().sum::<u64>() as f64 / seconds;
    let wide = Prefix::at(Level::Wide, prefix.is_ipv6(), prefix.address());
    pps <= floor_pps(prefix) * EXCESS
        || pps <= baselines.of(&wide).total_pps() * NETWORK_SHARE
        || pps <= baselines.of(prefix).vouched_pps() * FACTOR * growth.of(prefix)
}

fn is_spared(counts: &Counts, window: &Window, baselines: &Baselines) -> bool {
    let pps = |packets: u64| packets as f64 / window.seconds();
    // Many senders from ports of services are reflectors, whatever their rate.
    let services = PacketClass::UdpService;
    let usual_pps = baselines.of(&counts.prefix).streamed_pps(services) * FACTOR;
    let is_reflected = counts.streams >= ANSWERERS_MIN as u64
        && pps(counts.streamed[services as usize]) > usual_pps
        && one_way::service_senders(counts, window) >= ANSWERERS_MIN as u64;
    let is_harmless = || is_harmless(&counts.prefix, pps(counts.streamed_total()), baselines);
    !is_reflected && (is_harmless() || one_way::may_be_asked_for(counts, window))
}

/// Datagrams to hosts that are not judged, because only one direction is seen: those that do not continue, and streams
/// that would not be harmless. `guilty` are the prefixes whose streams are judged.
fn unjudged(window: &Window, guilty: &[Prefix], baselines: &Baselines) -> u64 {
    if window.is_two_way {
        return 0;
    }
    let is_streamed = |one: &&Counts| one.prefix.is_host() && one.streamed_total() > 0 && !guilty.contains(&one.prefix);
    let hosts = window.counts.iter().filter(is_streamed);
    hosts.fold(0, |unjudged, one| {
        let is_harmless = is_harmless(&one.prefix, one.streamed_total() as f64 / window.seconds(), baselines);
        unjudged + if is_harmless { one.alone } else { one.streamed_total() }
    })
}

/// Whether streams of this rate to a prefix, all together, are no load: they are few packets for any host, little of
/// what the network around receives, or usual.
pub fn is_harmless(prefix: &Prefix, pps: f64, baselines: &Baselines) -> bool {
    pps <= harmless_pps(prefix, baselines)
}

/// The highest rate of all streams to a prefix together that is no load, packets a second.
pub fn harmless_pps(prefix: &Prefix, baselines: &Baselines) -> f64 {
    let wide = Prefix::at(Level::Wide, prefix.is_ipv6(), prefix.address());
    let (usual, network) = (baselines.of(prefix), baselines.of(&wide));
    let floor_pps = floor_pps(prefix) * EXCESS;
    floor_pps.max(network.total_pps() * NETWORK_SHARE).max(usual.streamed_total_pps() * FACTOR)
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::baseline::{Baselines, Growth};
    use crate::measure::counts::Counts;
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::prefix::Prefix;
    use weir_abi::PacketClass;

    #[test]
    fn datagrams_that_few_answers_vouch_for_are_without_proof_above_what_is_usual() {
        let udp = PacketClass::Udp as usize;
        let mut counts = Counts::new(Prefix::of(false, 0xc000_0201, 32));
        (counts.packets[udp], counts.vouched[udp], counts.briefly_vouched[udp]) = (10_000, 9_000, 8_000);
        let mut window = Extractor::new(Vec::new(), 1, 0).close(WINDOW_NS);
        window.counts = vec![counts];
        let judged = judge(&window, &Baselines::default(), &Growth::default());
        let [counts] = judged.counts[..] else { panic!("one prefix") };
        let of_udp = (counts.unproven[udp], counts.vouched[udp], counts.briefly_vouched[udp]);
        assert_eq!(of_udp, (8_000, 1_000, 0));
        assert_eq!(counts.certain_total(), 1_000);
    }
}
