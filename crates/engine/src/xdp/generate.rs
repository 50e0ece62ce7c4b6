//! Packets made in the kernel, for measuring what receives them.
//!
//! BPF_PROG_TEST_RUN in live frames mode runs a program of ours (datapath/engine/generate.h) on frames from a small pool, 64 at a time, and
//! sends them out of an interface. A veth peer that polls (it has an XDP program, or GRO switched on) takes them before the next 64 are
//! made, in the same thread: so nothing waits, nothing is lost, and the thread's processor time is what making *and* judging them took.

use std::time::Duration;

use libbpf_rs::ProgramInput;
use libbpf_rs::libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;
use weir_abi::kernel::XdpContext;
use weir_tables::limit_image::Logged;

use super::failed;
use super::plain::PlainPrograms;
use super::stream::SOURCES_MAX;
use crate::EngineError;
use crate::clang::{BpfObject, BpfShape, Clang};

/// The program.
const NAME: &str = "weir_generate";
/// The most bytes of a frame: more do not fit a page of the pool.
const FRAME_BYTES_MAX: usize = 2048;

/// Sends packets from changing sources out of one interface.
pub struct Generator {
    programs: PlainPrograms,
    frame: Vec<u8>,
    context: XdpContext,
}

impl Generator {
    /// Compiles the program.
    ///
    /// # Errors
    /// clang fails.
    pub fn compile(clang: &Clang) -> Result<BpfObject, EngineError> {
        let shape = BpfShape { table_bytes: vec![], counters: 1, limits: (0, 0), logged: Logged::Nothing };
        Ok(clang.bpf("generate", "#include \"generate.h\"\n", &shape)?.object)
    }

    /// A generator of `frame`, Ethernet and IPv4 without tags, that goes through `sources` (host byte order) again and again and sends out of
    /// the interface of that index. `object` is what [`Generator::compile`] made.
    ///
    /// # Errors
    /// The kernel refuses the program.
    ///
    /// # Panics
    /// If the frame is longer than 2048 bytes, or there is no source or more than [`SOURCES_MAX`].
    pub fn load(object: &BpfObject, interface: u32, frame: &[u8], sources: &[u32]) -> Result<Self, EngineError> {
        assert!(frame.len() <= FRAME_BYTES_MAX, "a frame has at most {FRAME_BYTES_MAX} bytes");
        assert!((1..=SOURCES_MAX).contains(&sources.len()), "1 to {SOURCES_MAX} sources");
        let programs = PlainPrograms::load("generate", object)?;
        programs.fill_stream(sources)?;
        let context = XdpContext { data_end: frame.len() as u32, ingress_ifindex: interface, ..XdpContext::default() };
        Ok(Generator { programs, frame: frame.to_owned(), context })
    }

    /// Sends so many packets. Returns when all were sent, and a veth peer that polls has received them; says what a packet took on the
    /// average, as the kernel measures it, in whole ns.
    ///
    /// # Errors
    /// The interface is gone, or takes no frames from XDP.
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
        let program = self.programs.find(NAME)?;
        let ran = program.test_run(input).map_err(|error| failed(NAME, format!("sending packets: {error}")))?;
        Ok(ran.duration)
    }
}
