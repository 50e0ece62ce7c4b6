//! Generates packets in the kernel, to measure their receivers.
//!
//! BPF_PROG_TEST_RUN in live frames mode runs a program (`lab/instruments/c/generate.h`) on frames from a small pool. It
//! sends them out of an interface, 64 at a time, with new headers, because a receiver that forwards changes them. The
//! receiver is a veth peer that polls, because it has an XDP program or GRO. It processes the 64 frames in the same
//! thread before the next ones are made. So no packet waits or is lost, and the CPU time of the thread covers both
//! generation *and* processing.

use std::time::Duration;

use libbpf_rs::ProgramInput;
use libbpf_rs::libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;
use weir_abi::kernel::XdpContext;
use weir_engine::EngineError;
use weir_engine::clang::{BpfObject, BpfShape, Clang, DataSizes, Hook};
use weir_engine::xdp::plain::PlainPrograms;
use weir_engine::xdp::{failed, find, map};
use weir_tables::limit_image::Logged;

use crate::sources::{self, HEADERS, SOURCES_MAX};

/// Name of the BPF program.
const NAME: &str = "weir_generate";
/// The section with the time of a group of frames, and the number of frames in a group.
const PACE: &str = ".bss.pace";
const GROUP: u64 = 16;
/// Highest pace: what the program waits for a group ends with its looks at the clock.
const PACE_NS_MAX: u64 = 10_000;
/// Maximum size of a frame in bytes. Larger frames do not fit a page of the pool.
const FRAME_BYTES_MAX: usize = 2048;

/// Sends packets with changing sources out of one interface.
pub struct Generator {
    programs: PlainPrograms,
    frame: Vec<u8>,
    context: XdpContext,
}

impl Generator {
    /// Compiles the BPF program.
    ///
    /// # Errors
    /// clang fails.
    pub fn compile(clang: &Clang) -> Result<BpfObject, EngineError> {
        let sizes = DataSizes::Known { tables: vec![], limits: None };
        let shape = BpfShape { sizes, counters: 1, logged: Logged::Nothing, hook: Hook::Received };
        Ok(clang.bpf_with("generate", "#include \"generate.h\"\n", &shape, HEADERS)?.object)
    }

    /// A generator for the interface with the given index. `frame` is Ethernet and IPv4 without VLAN tags. Its source
    /// cycles through `sources` (host byte order). `object` is the result of [`Generator::compile`].
    ///
    /// # Errors
    /// The kernel rejects the program.
    ///
    /// # Panics
    /// If the frame is longer than 2048 bytes, or if there are no sources or more than [`SOURCES_MAX`].
    pub fn load(object: &BpfObject, interface: u32, frame: &[u8], sources: &[u32]) -> Result<Self, EngineError> {
        assert!(frame.len() <= FRAME_BYTES_MAX, "a frame has at most {FRAME_BYTES_MAX} bytes");
        assert!((1..=SOURCES_MAX).contains(&sources.len()), "1 to {SOURCES_MAX} sources");
        let programs = PlainPrograms::load("generate", object)?;
        fill(&programs, sources)?;
        let context = XdpContext { data_end: frame.len() as u32, ingress_ifindex: interface, ..XdpContext::default() };
        Ok(Generator { programs, frame: frame.to_owned(), context })
    }

    /// Lets the next packets leave through another interface.
    pub fn leave_through(&mut self, interface: u32) {
        self.context.ingress_ifindex = interface;
    }

    /// Sets the sources (host byte order) of the next packets.
    ///
    /// # Errors
    /// The program has no list of sources.
    ///
    /// # Panics
    /// If there are none, or more than [`SOURCES_MAX`].
    pub fn set_sources(&mut self, sources: &[u32]) -> Result<(), EngineError> {
        assert!((1..=SOURCES_MAX).contains(&sources.len()), "1 to {SOURCES_MAX} sources");
        fill(&self.programs, sources)
    }

    /// Spreads the next packets in time: one in `ns` nanoseconds on average, at most 10 µs. 0 sends them as fast as
    /// possible. The thread never sleeps, but leaves its core to others when the kernel asks for it.
    ///
    /// # Errors
    /// The program has no pace.
    ///
    /// # Panics
    /// If the pace is above 10 µs.
    pub fn set_pace(&mut self, ns: u64) -> Result<(), EngineError> {
        assert!(ns <= PACE_NS_MAX, "the pace is at most {PACE_NS_MAX} ns");
        let memory = map(self.programs.object(), PACE, size_of::<u64>())?;
        // SAFETY: `map` checked that the mapping has at least one word, and it is aligned to a page. Only user space
        // writes the word, as a whole.
        unsafe { memory.as_mut_ptr().cast::<u64>().write_volatile(ns * GROUP) };
        Ok(())
    }

    /// Sends `packets` packets. Returns when all were sent, and received by a polling veth peer. The result is the
    /// kernel's average time per packet, in whole ns.
    ///
    /// # Errors
    /// The interface does not exist anymore, or does not accept frames from XDP.
    pub fn send(&mut self, packets: u32) -> Result<Duration, EngineError> {
        let mut context = [0; size_of::<XdpContext>()];
        for (field, word) in context.chunks_exact_mut(4).zip(self.context.words()) {
            field.copy_from_slice(&word.to_ne_bytes());
        }
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&self.frame),
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            repeat: packets,
            ..ProgramInput::default()
        };
        let program = find(self.programs.object(), NAME)?;
        let ran = program.test_run(input).map_err(|error| failed(NAME, format!("sending packets: {error}")))?;
        Ok(ran.duration)
    }
}

/// Sets the sources of the next packets, repeated until the list is full.
fn fill(programs: &PlainPrograms, sources: &[u32]) -> Result<(), EngineError> {
    let all: Vec<u32> = sources.iter().copied().cycle().take(SOURCES_MAX).collect();
    sources::fill(programs.object(), all.as_slice().into())
}
