//! Programs in the kernel that decide a stream of packets from changing sources (`lab/instruments/c/stream.h`).

use weir_command::failure::Failure;
use weir_engine::clang::{BpfShape, Clang};
use weir_engine::traffic;
use weir_engine::{Bound, ProgramShape, XdpFilter};
use weir_instruments::quiet::Stretches;
use weir_instruments::sources::{HEADERS, SOURCES_MAX};
use weir_instruments::stream::decide_in;

pub use weir_instruments::stream::decide;

/// Compiles the C of a policy with the chain `upstream`, and loads it for [`decide`].
///
/// # Errors
/// clang or the kernel rejects the program.
pub fn load(c: &str, program: &ProgramShape, data: &Bound) -> Result<XdpFilter, Failure> {
    load_chain("upstream", c, program, data)
}

/// Like [`load`], for another chain.
///
/// # Errors
/// As for [`load`].
pub fn load_chain(chain: &str, c: &str, program: &ProgramShape, data: &Bound) -> Result<XdpFilter, Failure> {
    let c = format!("{c}\n#include \"stream.h\"\n\nWEIR_XDP_STREAM({chain})\n");
    let object = Clang::find()?.bpf_with("stream", &c, &BpfShape::new(program, data), HEADERS)?.object;
    Ok(XdpFilter::load("stream", &object, program, data)?)
}

/// Nanoseconds per packet of streams from all sources, which are repeated until enough of them are quiet.
///
/// # Errors
/// The kernel refuses to run the program.
pub fn cost(filter: &mut XdpFilter, chain: usize, sources: &[u32]) -> Result<f64, Failure> {
    let frames = traffic::packets_from(&[0]);
    let mut stretches = Stretches::begin(sources.len());
    let mut streams = sources.chunks(SOURCES_MAX).cycle();
    while !stretches.is_enough() {
        let some = streams.next().expect("there are sources");
        decide_in(&mut stretches, filter, chain, &frames.burst(0), 0, some.into())?;
    }
    Ok(stretches.cost_per_packet())
}
