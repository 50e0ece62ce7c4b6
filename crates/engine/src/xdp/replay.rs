//! Runs one frame through BPF_PROG_TEST_RUN.

use std::time::Duration;

use libbpf_rs::{ProgramInput, ProgramMut};
use weir_abi::kernel::{REPLAY_BYTES_MIN, ReplayHeader, XdpContext};
use weir_abi::{Verdict, WINDOW_BYTES};

use crate::FrameBurst;

const HEADER_BYTES: usize = size_of::<ReplayHeader>();

/// The return value of datapath/kernel/xdp.h for a frame without its header.
const REFUSED: u32 = 0xff;

/// The input buffer of the program: header, padding, frame.
pub(super) struct Replay {
    data: Box<[u8; HEADER_BYTES + WINDOW_BYTES]>,
}

/// The result of a run.
pub(super) struct Ran {
    pub(super) verdict: Verdict,
    /// Mean time of the repeats.
    pub(super) took: Duration,
}

impl Replay {
    pub(super) fn new() -> Self {
        Replay { data: Box::new([0; HEADER_BYTES + WINDOW_BYTES]) }
    }

    /// Writes frame `index` to the buffer and runs the program on it. Errors contain the kernel's message.
    pub(super) fn run(
        &mut self,
        program: &ProgramMut<'_>,
        burst: &FrameBurst<'_>,
        index: usize,
        repeat: u32,
    ) -> Result<Ran, String> {
        let data_bytes = self.lay_out(burst, index);
        // The kernel interprets `data` as the size of the metadata and `data_end` as the end of the input.
        let fields = XdpContext { data: HEADER_BYTES as u32, data_end: data_bytes as u32, ..XdpContext::default() };
        let mut context = [0; size_of::<XdpContext>()];
        for (field, word) in context.chunks_exact_mut(4).zip(fields.words()) {
            field.copy_from_slice(&word.to_ne_bytes());
        }
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&self.data[..data_bytes]),
            repeat,
            ..ProgramInput::default()
        };
        let output = program.test_run(input).map_err(|error| format!("test run of a frame: {error}"))?;
        if output.return_value == REFUSED {
            return Err("the kernel ran it without the frame's metadata".to_owned());
        }
        Ok(Ran { verdict: Verdict(output.return_value), took: output.duration })
    }

    /// Writes header, padding and frame. Returns their size in bytes.
    fn lay_out(&mut self, burst: &FrameBurst<'_>, index: usize) -> usize {
        let bytes = burst.bytes(index);
        let bytes = &bytes[..bytes.len().min(WINDOW_BYTES)];
        // The kernel requires a minimum size, so padding precedes a short frame. The frame must end at the end of the
        // buffer, because the program compares its reads with that end.
        let padding = REPLAY_BYTES_MIN.saturating_sub(bytes.len());
        let now_ns = burst.time_ns(index);
        let header = ReplayHeader {
            cap: bytes.len() as u32,
            len: burst.wire_len(index),
            link: burst.link() as u32,
            padding: padding as u32,
            now_ns: [now_ns as u32, (now_ns >> 32) as u32],
        };
        for (field, word) in self.data.chunks_exact_mut(4).zip(header.words()) {
            field.copy_from_slice(&word.to_ne_bytes());
        }
        let start = HEADER_BYTES + padding;
        self.data[HEADER_BYTES..start].fill(0);
        self.data[start..start + bytes.len()].copy_from_slice(bytes);
        start + bytes.len()
    }
}
