//! Programs in the kernel that decide a stream of packets from changing sources (`datapath/engine/stream.h`).

use weir::failure::Failure;
use weir_engine::clang::{BpfShape, Clang};
use weir_engine::{ProgramData, ProgramShape, XdpFilter};

/// C that is appended to the code of a policy.
const STREAM_C: &str = r#"
#include "stream.h"

WEIR_XDP_STREAM(upstream)
"#;

/// Compiles the C of a policy with the chain `upstream`, and loads it for [`XdpFilter::stream`].
///
/// # Errors
/// clang or the kernel rejects the program.
pub fn load(c: &str, program: &ProgramShape, data: &ProgramData<'_>) -> Result<XdpFilter, Failure> {
    let object = Clang::find()?.bpf("stream", &format!("{c}{STREAM_C}"), &BpfShape::new(program, data))?.object;
    Ok(XdpFilter::load("stream", &object, program, data)?)
}
