//! Streams of packets through a hand-written chain in the kernel. Needs clang and root.

#![allow(clippy::unwrap_used)] // helpers of tests are tests
use weir_abi::{Link, Reason};
use weir_engine::clang::{BpfShape, Clang};
use weir_engine::frame_set::FrameSet;
use weir_engine::{Bound, Filter, ProgramShape, XdpFilter};
use weir_instruments::sources::{HEADERS, Sources};
use weir_instruments::stream;

/// Counts each packet for rule 0 or 1, by the lowest bit of its source.
const ODD_AND_EVEN: &str = r#"
#include "core/env.h"
#include "core/verdict.h"
#include "core/packet.h"
#include "kernel/hook.h"

WEIR_INLINE uint32_t odd_upstream_frame(const struct env *env, const struct frame *frame, struct packet *packet)
{
	enum reason reason = parse_packet(frame, packet);

	if (reason != REASON_NONE)
		return decide(env, ACTION_DROP, reason, frame->len);
	if (forget(packet->saddr) & 1) {
		count(env, REASON_RULE + 1, frame->len);
		return rule_verdict(ACTION_DROP, 1, 0);
	}
	count(env, REASON_RULE + 0, frame->len);
	return rule_verdict(ACTION_ACCEPT, 0, 0);
}

WEIR_CHAIN(odd_upstream)
"#;

fn odd_and_even(extra: &str) -> XdpFilter {
    let program = ProgramShape { chains: vec!["odd_upstream".to_owned()], rules: 2, ..ProgramShape::default() };
    let shape = BpfShape::new(&program, &Bound::default());
    let object =
        Clang::find().unwrap().bpf_with("odd", &format!("{ODD_AND_EVEN}{extra}"), &shape, HEADERS).unwrap().object;
    XdpFilter::load("odd", &object, &program, &Bound::default()).unwrap()
}

#[test]
fn a_stream_has_sources_of_ipv6() {
    let mut filter = odd_and_even("#include \"stream.h\"\nWEIR_XDP_STREAM(odd_upstream)\n");
    let mut bytes = [0u8; 62];
    bytes[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
    bytes[58..60].copy_from_slice(&[0, 8]);
    let frames = FrameSet::new(Link::Ethernet, [(&bytes[..], 62)]);
    // The lowest bit of the upper half, as the chain reads it, is the last bit of the eighth byte.
    let sources: Vec<u128> = (0..1000).map(|n| 0x2001_0db8 << 96 | u128::from(n % 4 == 0) << 64 | n).collect();
    stream::decide(&mut filter, 0, &frames.burst(0), 0, Sources::V6(&sources)).unwrap();
    let counters = filter.counters();
    assert_eq!([0, 1].map(|rule| counters[usize::from(Reason::rule(rule).0)].packets), [750, 250]);
}

/// A UDP packet from 0.0.0.0.
fn udp() -> FrameSet {
    let mut bytes = [0u8; 60];
    bytes[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    bytes[38..40].copy_from_slice(&[0, 26]);
    FrameSet::new(Link::Ethernet, [(&bytes[..], 64)])
}

#[test]
fn a_stream_has_every_source_once() {
    let mut filter = odd_and_even("#include \"stream.h\"\nWEIR_XDP_STREAM(odd_upstream)\n");
    let frames = udp();
    let burst = frames.bursts().next().unwrap();
    let counted = |filter: &XdpFilter| {
        let counters = filter.counters();
        let rule = |rule| counters[usize::from(Reason::rule(rule).0)];
        assert_eq!(counters.iter().map(|counter| counter.packets).sum::<u64>(), rule(0).packets + rule(1).packets);
        assert_eq!(rule(1).bytes, rule(1).packets * 64);
        (rule(0).packets, rule(1).packets)
    };
    stream::decide(&mut filter, 0, &burst, 0, &[1]).unwrap();
    assert_eq!(counted(&filter), (0, 1));
    let sources: Vec<u32> = (0..1000).map(|n| if n % 10 == 0 { 0xffff_ff01 } else { 0x0100_0000 }).collect();
    stream::decide(&mut filter, 0, &burst, 0, &sources).unwrap();
    assert_eq!(counted(&filter), (900, 101));
    // The next stream starts with the first source again.
    stream::decide(&mut filter, 0, &burst, 0, &sources[..1]).unwrap();
    assert_eq!(counted(&filter), (900, 102));
}

#[test]
fn a_program_without_a_stream_says_so() {
    let frames = udp();
    let burst = frames.bursts().next().unwrap();
    let error = stream::decide(&mut odd_and_even(""), 0, &burst, 0, &[1]).unwrap_err().to_string();
    assert!(error.contains(".bss.stream"), "{error}");
}
