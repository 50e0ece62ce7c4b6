//! The P4 backend: a program as a pipeline of headers, parser, controls and extern objects.
//!
//! One walk of the IR makes the pipeline (`control`, with the parser of `parser`). Three printers write it: as P4 for
//! the PSA, as a specification for SWX, and as C that the runner loads, with the same instructions and the datapath's own
//! code behind the extern objects.

mod c;
mod control;
mod expression;
mod externs;
mod fields;
mod lines;
mod lower;
mod model;
mod parser;
mod prune;
mod psa;
mod search;
mod sets;
mod shorten;
mod spec;
mod tables;
mod text;

pub(crate) use fields::METADATA_BYTES;

use crate::capability::{self, Engine};
use crate::ir::Program;
use crate::pass::{self, Placement};
use model::Pipeline;

/// The program as C for the runner of pipelines. The caller has checked that the engine supports the program
/// ([`capability::unsupported`]).
pub fn emit(program: &Program) -> String {
    c::print(program, &pipeline(program))
}

/// The program as P4_16 for the Portable Switch Architecture.
pub fn emit_p4(program: &Program) -> String {
    psa::print(&pipeline(program))
}

/// The program in the notation of DPDK's SWX pipeline.
pub fn emit_spec(program: &Program) -> String {
    spec::print(&pipeline(program))
}

fn pipeline(program: &Program) -> Pipeline {
    let unsupported = capability::unsupported(program, &[Engine::P4]);
    assert!(unsupported.is_empty(), "compiler bug: the caller refuses unsupported effects");
    let optimised = pass::optimise(program, Placement::Lazy);
    let mut pipeline = control::pipeline(&optimised);
    assert!(pipeline.objects.len() <= capability::OBJECTS_MAX, "compiler bug: objects that were not counted");
    prune::prune(&mut pipeline);
    pipeline
}
