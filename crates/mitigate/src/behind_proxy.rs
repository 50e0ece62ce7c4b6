//! Connections behind a SYN proxy. The proxy changes their sequence numbers, and answers their SYNs, so samples may not
//! show that their sources are real.
//!
//! Segments of connections then count as packets without proof only above three times what the prefix usually receives
//! of them, with and without proof. Below that, a posture with a proxy would make a flood of its customers.

use crate::baseline::{Baselines, FACTOR};
use crate::class;
use crate::header::Header;
use crate::measure::Window;
use crate::prefix::Prefix;
use std::borrow::Cow;
use weir_abi::PacketClass;

/// Connections that a proxy has opened keep their numbers for longer than the proxy is there. Most are over after this
/// time.
pub const OPENED_NS: u64 = 60_000_000_000;

/// The window, in which usual segments of connections are not without proof.
pub fn judge<'a>(window: Cow<'a, Window>, baselines: &Baselines) -> Cow<'a, Window> {
    let tcp = PacketClass::Tcp as usize;
    if window.counts.iter().all(|counts| counts.unproven[tcp] == 0) {
        return window;
    }
    let mut judged = window.into_owned();
    let mut strange: Vec<Prefix> = Vec::new();
    let seconds = judged.seconds();
    for counts in &mut judged.counts {
        let usual = baselines.of(&counts.prefix).packets_pps(PacketClass::Tcp) * FACTOR * seconds;
        if counts.unproven[tcp] as f64 > usual {
            strange.push(counts.prefix);
        } else {
            counts.unproven[tcp] = 0;
        }
    }
    let is_left = |header: &Header| {
        let is_strange = |prefix: &Prefix| prefix.contains(header.is_ipv6, header.daddr);
        class::of(header) != PacketClass::Tcp || strange.iter().any(is_strange)
    };
    judged.unproven.retain(&is_left);
    judged.strata.retain(&is_left);
    Cow::Owned(judged)
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::baseline::{Baselines, Rate};
    use crate::header::{Header, protocol, tcp};
    use crate::measure::counts::Counts;
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::prefix::Prefix;
    use std::borrow::Cow;
    use weir_abi::PacketClass;

    #[test]
    fn usual_segments_are_not_without_proof_and_a_flood_of_them_is() {
        let victim = Prefix::of(false, 0xc000_0201, 32);
        let mut baselines = Baselines::default();
        baselines.set(victim, Rate::Packets(PacketClass::Tcp), 100.0);
        let header = Header::between(1, 0xc000_0201);
        let segment = Header { protocol: protocol::TCP, has_ports: true, flags: tcp::ACK, ..header };
        let mut window = Extractor::new(Vec::new(), 1, 0).close(WINDOW_NS);
        window.unproven = vec![segment, Header { flags: tcp::SYN, ..segment }];
        // Of a quarter of a second.
        let mut left = |segments: u64| {
            let mut counts = Counts::new(victim);
            counts.unproven[PacketClass::Tcp as usize] = segments;
            counts.unproven[PacketClass::Syn as usize] = 7;
            window.counts = vec![counts];
            let judged = judge(Cow::Borrowed(&window), &baselines);
            (judged.counts[0].unproven_total(), judged.unproven.len())
        };
        assert_eq!([left(75), left(76)], [(7, 1), (83, 2)]);
    }
}
