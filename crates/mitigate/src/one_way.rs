//! What UDP may do where only one direction is seen.
//!
//! There nobody is seen to answer, so that nobody answered says nothing: a page over QUIC, a download and a peer-to-peer
//! client look as unanswered as a flood does. Other evidence is needed before datagrams count as packets without proof:
//!
//! - Ports of services and later fragments, of many sources: they are reflected. This is judged as everywhere.
//! - Datagrams that do not continue, at a rate that is high for a host, or to many ports of it: they are made up.
//! - Streams at a rate that is much even for a download.
//!
//! The rest is not judged, and counted.

use crate::baseline::floor_pps;
use crate::class;
use crate::header::Header;
use crate::measure::Window;
use crate::measure::counts::Counts;
use crate::peace::ANSWERERS_MIN;
use crate::prefix::Prefix;
use std::borrow::Cow;
use std::collections::HashSet;
use weir_abi::PacketClass;

/// Datagrams a second that do not continue, to a host or a net: the first ones of streams, and single answers. Peers of
/// a network without servers send some hundreds.
const ALONE_PPS: f64 = 1000.0;
/// Streams of a few senders, as a multiple of the floor: 100,000 packets/s to a host, a download at 1 Gbit/s.
const FEW: f64 = 1000.0;
/// Streams of many senders: 10,000 packets/s to a host, 100 Mbit/s.
const MANY: f64 = 100.0;
/// Headers to a host that say how many ports they have. Half of them differ: made-up packets are sent to any port.
const SPREAD_MIN: usize = 64;
/// Ports of services that also serve in streams: IPsec, OpenVPN, remote desktops, relays of calls.
const STREAMED_PORTS: [u16; 5] = [500, 1194, 3389, 3478, 4500];

/// The window, in which datagrams that do not continue count as streams if they may be a client's. Then their rate is
/// judged together with the rate of streams.
pub fn spare(window: &Window) -> Cow<'_, Window> {
    let udp = PacketClass::Udp as usize;
    if window.is_two_way || window.counts.iter().all(|one| one.unproven[udp] == 0) {
        return Cow::Borrowed(window);
    }
    let suspicious: HashSet<Prefix> =
        window.counts.iter().filter(|one| !are_few(one, window)).map(|one| one.prefix).collect();
    let mut spared = window.clone();
    for counts in spared.counts.iter_mut().filter(|one| !suspicious.contains(&one.prefix)) {
        let alone = std::mem::take(&mut counts.unproven[udp]);
        counts.streamed[udp] += alone;
        counts.alone = alone;
    }
    let is_spared = |header: &mut Header| {
        let is_suspicious = || suspicious.iter().any(|prefix| prefix.contains(header.is_ipv6, header.daddr));
        class::of(header) == PacketClass::Udp && !is_suspicious()
    };
    spared.streamed.extend(spared.unproven.extract_if(.., is_spared));
    spared.streamed_strata.extend(spared.strata.extract_if(.., is_spared));
    Cow::Owned(spared)
}

/// Whether datagrams without proof that do not continue are few, and to few ports of a host.
fn are_few(counts: &Counts, window: &Window) -> bool {
    let alone_pps = counts.unproven[PacketClass::Udp as usize] as f64 / window.seconds();
    alone_pps <= ALONE_PPS && !are_spread(&counts.prefix, window)
}

fn are_spread(prefix: &Prefix, window: &Window) -> bool {
    if !prefix.is_host() {
        return false;
    }
    let is_here =
        |header: &&Header| class::of(header) == PacketClass::Udp && prefix.contains(header.is_ipv6, header.daddr);
    let ports: Vec<u16> = window.unproven.iter().filter(is_here).map(|header| header.dport).collect();
    let distinct: HashSet<u16> = ports.iter().copied().collect();
    ports.len() >= SPREAD_MIN && distinct.len() * 2 >= ports.len()
}

/// Whether streams without proof to a prefix may be what clients ask for: few senders, or not much more than a client
/// takes, and not from ports of services that only reflect.
pub fn may_be_asked_for(counts: &Counts, window: &Window) -> bool {
    let most = if counts.streams < ANSWERERS_MIN as u64 { FEW } else { MANY };
    let pps = counts.streamed_total() as f64 / window.seconds();
    !window.is_two_way && pps <= floor_pps(&counts.prefix) * most && are_of_streams(counts, window)
}

/// Whether the datagrams among streams that come from ports of services come from ports that also serve in streams.
fn are_of_streams(counts: &Counts, window: &Window) -> bool {
    let services = PacketClass::UdpService as usize;
    let mut ports = service_headers(&counts.prefix, window).map(|header| header.sport).peekable();
    let fragments = counts.streamed[PacketClass::Fragment as usize];
    fragments == 0
        && (counts.streamed[services] == 0
            || ports.peek().is_some() && ports.all(|port| STREAMED_PORTS.contains(&port)))
}

/// Headers of streams to a prefix that come from ports of services.
fn service_headers<'a>(prefix: &'a Prefix, window: &'a Window) -> impl Iterator<Item = &'a Header> {
    let streamed = window.streamed.iter().chain(&window.streamed_strata);
    let is_here = |header: &&Header| prefix.contains(header.is_ipv6, header.daddr);
    streamed.filter(is_here).filter(|header| class::of(header) == PacketClass::UdpService)
}

/// The senders of streams from ports of services, in the sample; all senders of streams if the sample has none.
pub fn service_senders(counts: &Counts, window: &Window) -> u64 {
    let senders: HashSet<u128> = service_headers(&counts.prefix, window).map(|header| header.saddr).collect();
    if senders.is_empty() { counts.streams } else { senders.len() as u64 }
}
