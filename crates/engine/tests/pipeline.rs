//! A P4 program written by hand: a pipeline of DPDK's SWX decides bursts in their order.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use weir_abi::{Action, BURST_MAX, Frame, Link, Verdict, WINDOW_BYTES};
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::{Bound, EngineError, Filter, FrameBurst, NativeFilter, ProgramShape};

const HEAD: &str = "
#include \"core/env.h\"
#include \"core/verdict.h\"
#include \"p4/program.h\"

const uint32_t weir_abi_version = WEIR_ABI_VERSION;

struct counter_mailbox {
	uint32_t reason;
	uint32_t length;
} __attribute__((packed));

static int counter_run(void *worker, void *mailbox)
{
	const struct counter_mailbox *mail = mailbox;

	count(&((struct p4_worker *)worker)->env, mail->reason, mail->length);
	return 1;
}

static const struct p4_field arrival_t[] = {
	{\"captured\", 32}, {\"length\", 32}, {\"time\", 64}, {\"packet\", 32}, {\"chain\", 16}, {\"link\", 8},
	{\"action\", 8}, {\"reason\", 16}, {\"flags\", 16}, {\"zero\", 32}, {\"zeros\", 64},
};
static const struct p4_field first_t[] = {{\"bytes\", 16}};
static const struct p4_field counter_mailbox_t[] = {{\"reason\", 32}, {\"length\", 32}};
static const struct p4_field metadata_t[] = {{\"in\", 32}, {\"out\", 32}, {\"captured\", 32}, {\"first\", 16}};
static const struct p4_struct structs[] = {
	{\"arrival_t\", arrival_t, 11, false},
	{\"first_t\", first_t, 1, false},
	{\"counter_mailbox_t\", counter_mailbox_t, 2, false},
	{\"metadata_t\", metadata_t, 4, false},
};
static const struct p4_header headers[] = {{\"arrival\", \"arrival_t\"}, {\"first\", \"first_t\"}};
static const struct p4_extern externs[] = {{\"counter\", \"counter_mailbox_t\", counter_run}};
";

const TAIL: &str = "
const struct p4_program weir_p4_program = {
	.structs = structs,
	.struct_count = sizeof(structs) / sizeof(structs[0]),
	.headers = headers,
	.header_count = sizeof(headers) / sizeof(headers[0]),
	.externs = externs,
	.extern_count = sizeof(externs) / sizeof(externs[0]),
	.instructions = instructions,
	.instruction_count = sizeof(instructions) / sizeof(instructions[0]),
	.metadata = \"metadata_t\",
};
";

/// No verdict of a packet.
const NOT_WRITTEN: u32 = u32::MAX;

/// Accepts all packets. Their reason is 32 plus the second byte, with which they are counted.
const BY_BYTE: &[&str] = &[
    "rx m.in",
    "extract h.arrival",
    "mov m.out 0",
    "mov m.first 0",
    "mov m.captured h.arrival.captured",
    "jmplt DECIDE m.captured 2",
    "extract h.first",
    "mov m.first h.first.bytes",
    "and m.first 0xff",
    "DECIDE : add m.first 32",
    "mov h.arrival.action 0",
    "mov h.arrival.reason m.first",
    "mov h.arrival.flags 256",
    "mov e.counter.reason m.first",
    "mov e.counter.length h.arrival.length",
    "extern e.counter.run",
    "emit h.arrival",
    "emit h.first",
    "tx m.out",
];

fn load(instructions: &[&str]) -> Result<NativeFilter, EngineError> {
    let lines: String = instructions.iter().map(|line| format!("\t{line:?},\n")).collect();
    let c = format!("{HEAD}\nstatic const char *const instructions[] = {{\n{lines}}};\n{TAIL}");
    let object =
        Clang::find().unwrap().native("by hand", &c, Cpu::Native).unwrap_or_else(|error| panic!("{error}")).object;
    let chains = vec!["upstream".to_owned(), "downstream".to_owned()];
    let shape = ProgramShape { chains, rules: 256, ..ProgramShape::default() };
    NativeFilter::load("by hand", &object, &shape, Bound::default())
}

fn frames(packets: &[Vec<u8>]) -> Vec<Frame> {
    let frame = |bytes: &Vec<u8>| Frame { data: bytes.as_ptr(), cap: bytes.len() as u32, len: bytes.len() as u32 + 7 };
    packets.iter().map(frame).collect()
}

#[test]
fn verdicts_come_back_in_order_for_bursts_and_frames_of_any_length() {
    let mut filter = load(BY_BYTE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(filter.name(), "p4");
    let mut expected = vec![(0, 0); 256];
    let lengths = [0, 1, 2, 3, 60, 1514, WINDOW_BYTES - 1, WINDOW_BYTES, WINDOW_BYTES + 1, 9000];
    let mut number = 0;
    for count in (0..=BURST_MAX).chain([1, 0, 64, 63]) {
        let mut packet = || {
            number += 1;
            let mut bytes = vec![0xee; lengths[number % lengths.len()]];
            if let Some(second) = bytes.get_mut(1) {
                *second = (number * 37 % 256) as u8;
            }
            bytes
        };
        let packets: Vec<Vec<u8>> = (0..count).map(|_| packet()).collect();
        let frames = frames(&packets);
        // SAFETY: the frames are the packets, which live until the end of this round.
        let burst = unsafe { FrameBurst::from_raw(&frames, Link::Ethernet, 5) };
        let mut verdicts = vec![Verdict(NOT_WRITTEN); count];
        filter.decide(count % 2, &burst, &mut verdicts).unwrap();
        for (bytes, verdict) in packets.iter().zip(&verdicts) {
            let second = bytes.get(1).copied().unwrap_or_default();
            assert_eq!(verdict.action(), Some(Action::Accept));
            assert!(verdict.sampled() && !verdict.rewritten());
            assert_eq!(verdict.reason().0, 32 + u16::from(second), "{count} packets");
            expected[usize::from(second)].0 += 1;
            expected[usize::from(second)].1 += bytes.len() as u64 + 7;
        }
    }
    let counters = filter.counters();
    let counted: Vec<(u64, u64)> = counters[32..].iter().map(|counter| (counter.packets, counter.bytes)).collect();
    assert_eq!(counted, expected);
}

#[test]
fn what_dpdk_refuses_is_named() {
    let refused = |number: usize, line: &'static str| {
        let mut lines = BY_BYTE.to_vec();
        lines[number] = line;
        load(&lines).err().unwrap_or_else(|| panic!("{line} is accepted")).to_string()
    };
    assert_eq!(
        refused(3, "mov m.nothing 0"),
        "native code of by hand: p4: instruction 4 `mov m.nothing 0`: Invalid argument"
    );
    assert_eq!(
        refused(9, "DECIDE : add m.first h.second.bytes"),
        "native code of by hand: p4: instruction 10 `DECIDE : add m.first h.second.bytes`: Invalid argument"
    );
    assert_eq!(
        refused(5, "jmplt NOWHERE m.captured 2"),
        "native code of by hand: p4: labels, first or last of the instructions `rx m.in`: Invalid argument"
    );
}
