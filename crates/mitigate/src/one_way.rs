//! What UDP may do where only one direction is seen.
//!
//! There Weir sees no answers, so a missing answer is no evidence: a page over QUIC, a download and a peer-to-peer
//! client look as unanswered as a flood does. Other evidence is needed before datagrams count as packets
//! without proof:
//!
//! - Ports of services and later fragments, of many sources: they are reflected. This is judged as everywhere, but for
//!   short answers of name and time servers, which a resolver or a clock asks for.
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
/// Ports of services that clients ask, and the longest packets of IPv4 with ordinary answers: of names, which seldom
/// have more than 300 bytes, and of time with a digest. What reflects well is longer.
const ASKED: [(u16, u32); 2] = [(53, 320), (123, 96)];
/// The header of IPv6 is longer by this.
const IPV6_MORE: u32 = 20;
/// Share of a sample that is of this kind.
const ASKED_SHARE: f64 = 0.9;
/// Fewest headers of such a sample.
const ASKED_MIN: usize = 8;
/// Ports of services that also serve in streams: IPsec, OpenVPN, remote desktops, relays of calls.
const STREAMED_PORTS: [u16; 5] = [500, 1194, 3389, 3478, 4500];

/// The window, in which datagrams that do not continue count as streams if they may be a client's. Then their rate is
/// judged together with the rate of streams.
pub fn spare(window: &Window) -> Cow<'_, Window> {
    let classes = [PacketClass::Udp, PacketClass::UdpService];
    let has_any = |one: &Counts| classes.iter().any(|&class| one.unproven[class as usize] > 0);
    if window.is_two_way || !window.counts.iter().any(has_any) {
        return Cow::Borrowed(window);
    }
    let suspicious = classes.map(|class| {
        let suspicious = window.counts.iter().filter(|one| !are_few(one, class, window));
        suspicious.map(|one| one.prefix).collect::<HashSet<Prefix>>()
    });
    let mut spared = window.clone();
    for (class, suspicious) in classes.into_iter().zip(&suspicious) {
        for counts in spared.counts.iter_mut().filter(|one| !suspicious.contains(&one.prefix)) {
            let alone = std::mem::take(&mut counts.unproven[class as usize]);
            counts.streamed[class as usize] += alone;
            counts.alone += alone;
        }
    }
    let is_spared = |header: &mut Header| {
        let is_in = |of: &HashSet<Prefix>| of.iter().any(|prefix| prefix.contains(header.is_ipv6, header.daddr));
        let of_class = classes.into_iter().zip(&suspicious).find(|(class, _)| class::of(header) == *class);
        of_class.is_some_and(|(_, suspicious)| !is_in(suspicious))
    };
    spared.streamed.extend(spared.unproven.extract_if(.., is_spared));
    spared.streamed_strata.extend(spared.strata.extract_if(.., is_spared));
    Cow::Owned(spared)
}

/// Whether datagrams of a class without proof that do not continue are few, and what a client may receive.
fn are_few(counts: &Counts, class: PacketClass, window: &Window) -> bool {
    let alone = counts.unproven[class as usize];
    let may_be_received = || match class {
        PacketClass::UdpService => alone == 0 || are_answers(counts, window),
        _ => !are_spread(&counts.prefix, window),
    };
    alone as f64 / window.seconds() <= ALONE_PPS && may_be_received()
}

/// Whether nearly all datagrams from ports of services are short answers of servers that clients ask.
fn are_answers(counts: &Counts, window: &Window) -> bool {
    let is_here = |header: &&Header| {
        class::of(header) == PacketClass::UdpService && counts.prefix.contains(header.is_ipv6, header.daddr)
    };
    let is_asked = |header: &&Header| {
        let more = if header.is_ipv6 { IPV6_MORE } else { 0 };
        ASKED.iter().any(|&(port, longest)| header.sport == port && header.length <= longest + more)
    };
    let headers: Vec<&Header> = window.unproven.iter().filter(is_here).collect();
    let asked = headers.iter().copied().filter(is_asked).count();
    let has_fragments = counts.unproven[PacketClass::Fragment as usize] > 0;
    !has_fragments && headers.len() >= ASKED_MIN && asked as f64 >= headers.len() as f64 * ASKED_SHARE
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
