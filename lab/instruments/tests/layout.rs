//! Rust and C agree on the sources of made-up packets, and headers stand alone. Needs clang.

use std::fmt::Write;
use std::mem::offset_of;

use weir_engine::clang::{BpfShape, Clang, DataSizes, Extras, Hook};
use weir_engine::cpu::Cpu;
use weir_instruments::sources::{HEADERS, SOURCES_MAX, STREAM_PACKETS, Stream, WORDS6};
use weir_tables::limit_image::Logged;

#[test]
fn c_has_the_same_numbers() {
    let numbers = [
        ("STREAM_SOURCES_MAX", SOURCES_MAX),
        ("STREAM_PACKETS", STREAM_PACKETS),
        ("STREAM_WORDS6", WORDS6),
        ("sizeof(weir_stream)", size_of::<Stream>()),
        ("offsetof(struct stream, next)", offset_of!(Stream, next)),
        ("offsetof(struct stream, count)", offset_of!(Stream, count)),
        ("offsetof(struct stream, words)", offset_of!(Stream, words)),
        ("offsetof(struct stream, sources)", offset_of!(Stream, sources)),
    ];
    let mut c = "#include \"sources.h\"\n".to_owned();
    for (what, number) in numbers {
        writeln!(c, "_Static_assert({what} == {number}, \"{what}\");").expect("a string takes all text");
    }
    compile(&c);
}

/// Compiles C for the kernel.
#[track_caller]
fn compile(c: &str) {
    let sizes = DataSizes::Known { tables: vec![], limits: None };
    let shape = BpfShape { sizes, counters: 1, logged: Logged::Nothing, hook: Hook::Received };
    let compiled = Clang::find().and_then(|clang| clang.bpf_with("layout", c, &shape, HEADERS));
    compiled.unwrap_or_else(|error| panic!("{error}"));
}

/// The second inclusion tests the guard. Without a policy, functions of hook.h are unused.
fn twice(header: &str) -> String {
    let quiet = "#pragma clang diagnostic ignored \"-Wunused-function\"\n";
    format!("{quiet}#include \"{header}\"\n#include \"{header}\"\nextern int weir;\n")
}

#[test]
fn every_header_stands_alone() {
    HEADERS.headers.iter().for_each(|(header, _)| compile(&twice(header)));
    let clang = Clang::find().expect("there is clang");
    for (header, _) in weir_schemes::HEADERS {
        let extras = Extras { headers: &weir_schemes::HEADERS, flags: &[] };
        let compiled = clang.native_with("header", &twice(header), Cpu::Native, extras);
        compiled.unwrap_or_else(|error| panic!("{header}: {error}"));
    }
}
