//! One frame through BPF_PROG_TEST_RUN.

use std::time::Duration;

use libbpf_rs::{ProgramInput, ProgramMut};
use weir_abi::{Verdict, WINDOW_BYTES};

use crate::FrameBurst;

/// `struct replay_header` in datapath/engine/xdp.h, as bytes: cap, len, link, padding, now_ns.
const HEADER_BYTES: usize = 24;

/// The shortest frame that the kernel's test run takes (`ETH_HLEN`, `REPLAY_BYTES_MIN` in xdp.h). Shorter ones
/// are padded in front: what proves a read to the verifier is where memory ends, so the frame ends there too.
const FRAME_BYTES_MIN: usize = 14;

/// `struct xdp_md` of the kernel: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
const CONTEXT_WORDS: usize = 6;

/// What xdp.h returns for a frame without header.
const REFUSED: u32 = 0xff;

/// The buffer that frames are laid out in: header, padding, frame.
pub(super) struct Replay {
    data: Box<[u8; HEADER_BYTES + WINDOW_BYTES]>,
}

/// What became of a frame.
pub(super) struct Ran {
    pub(super) verdict: Verdict,
    /// Mean of the repeats.
    pub(super) took: Duration,
}

impl Replay {
    pub(super) fn new() -> Self {
        Replay { data: Box::new([0; HEADER_BYTES + WINDOW_BYTES]) }
    }

    /// Lays frame `index` out and runs the program on it. Errors say what the kernel said.
    pub(super) fn run(
        &mut self,
        program: &ProgramMut<'_>,
        burst: &FrameBurst<'_>,
        index: usize,
        repeat: u32,
    ) -> Result<Ran, String> {
        let data_bytes = self.lay_out(burst, index);
        // The kernel takes `data` as the metadata's size and `data_end` as the end of the input.
        let words: [u32; CONTEXT_WORDS] = [HEADER_BYTES as u32, data_bytes as u32, 0, 0, 0, 0];
        let mut context = [0; CONTEXT_WORDS * 4];
        for (field, word) in context.chunks_exact_mut(4).zip(words) {
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

    /// Writes header, padding and frame; returns how many bytes that is.
    fn lay_out(&mut self, burst: &FrameBurst<'_>, index: usize) -> usize {
        let bytes = burst.bytes(index);
        let bytes = &bytes[..bytes.len().min(WINDOW_BYTES)];
        let padding = FRAME_BYTES_MIN.saturating_sub(bytes.len());
        let now_ns = burst.time_ns(index);
        let header = [bytes.len() as u32, burst.wire_len(index), burst.link() as u32, padding as u32];
        // The low half first, as this machine and the kernel's keep it.
        let header = header.into_iter().chain([now_ns as u32, (now_ns >> 32) as u32]);
        for (field, word) in self.data.chunks_exact_mut(4).zip(header) {
            field.copy_from_slice(&word.to_ne_bytes());
        }
        let start = HEADER_BYTES + padding;
        self.data[HEADER_BYTES..start].fill(0);
        self.data[start..start + bytes.len()].copy_from_slice(bytes);
        start + bytes.len()
    }
}
