//! Programs in the kernel that decide a stream of packets from changing sources (`datapath/engine/stream.h`).

use weir::failure::Failure;
use weir_engine::clang::{BpfShape, Clang};
use weir_engine::{ProgramData, ProgramShape, XdpFilter};

/// Compiles the C of a policy with the chain `upstream`, and loads it for [`XdpFilter::stream`].
///
/// # Errors
/// clang or the kernel rejects the program.
pub fn load(c: &str, program: &ProgramShape, data: &ProgramData<'_>) -> Result<XdpFilter, Failure> {
    load_chain("upstream", c, program, data)
}

/// The same for another chain.
///
/// # Errors
/// As for [`load`].
pub fn load_chain(chain: &str, c: &str, program: &ProgramShape, data: &ProgramData<'_>) -> Result<XdpFilter, Failure> {
    let c = format!("{c}\n#include \"stream.h\"\n\nWEIR_XDP_STREAM({chain})\n");
    let object = Clang::find()?.bpf("stream", &c, &BpfShape::new(program, data))?.object;
    Ok(XdpFilter::load("stream", &object, program, data)?)
}
