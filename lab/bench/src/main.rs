//! The program behind `weir bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use weir::report::Format;
use weir::{entry, signals};
use weir_bench::options::Options;

fn main() -> ExitCode {
    let format = |options: &Options| if options.json { Format::Json } else { Format::Text };
    entry::main(format, |options| {
        signals::clean_up_and_die()?;
        weir_bench::run(options)
    })
}
