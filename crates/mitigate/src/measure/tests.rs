//! Tests of counts and of their bounds.

use super::{Extractor, WINDOW_NS};
use crate::header::{Header, protocol};
use crate::prefix::Prefix;
use weir_abi::PacketClass;

fn datagram(saddr: u32, daddr: u32) -> Header {
    let header = Header::between(saddr, daddr);
    Header { protocol: protocol::UDP, has_ports: true, sport: 5000, dport: 6000, ..header }
}

#[test]
fn counts_add_up_at_every_level_and_windows_begin_anew() {
    let mut extractor = Extractor::new(vec![Prefix::of(false, 0xc000_0200, 24)], 1, 0);
    for source in 0..100 {
        extractor.see(&datagram(source, 0xc000_0200 + source % 4), u64::from(source));
    }
    extractor.see(&datagram(1, 0x0a00_0001), 100);
    let window = extractor.close(WINDOW_NS);
    assert_eq!((window.packets, window.counts.len()), (100, 4 + 1 + 1));
    let total: u64 = window.counts.iter().map(|counts| counts.packets[PacketClass::Udp as usize]).sum();
    assert_eq!(total, 300);
    assert_eq!(window.counts_of(Prefix::of(false, 0xc000_0203, 32)).map(|counts| counts.new_sources), Some(25));
    assert_eq!((window.unproven.len(), window.real.len()), (100, 0));
    let window = extractor.close(2 * WINDOW_NS);
    assert_eq!((window.packets, window.counts.len(), window.heavy.len()), (0, 0, 0));
}

#[test]
fn memory_is_bounded_whatever_arrives() {
    let mut extractor = Extractor::new(vec![], 1, 0);
    for at in 0..100_000u32 {
        extractor.see(&datagram(at.wrapping_mul(0x9e37_79b1), at.wrapping_mul(0x85eb_ca6b)), at.into());
    }
    let window = extractor.close(WINDOW_NS);
    assert!(window.counts.len() <= 4096 + 1024 + 256, "{}", window.counts.len());
    assert!(window.heavy.len() <= 1024 && window.unproven.len() <= 1024 && window.strata.len() <= 1024);
}
