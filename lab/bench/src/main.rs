//! The program behind `weir bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use weir_bench::options::Options;
use weir_command::report::Format;
use weir_command::{entry, signals};

fn main() -> ExitCode {
    let format = |options: &Options| if options.json { Format::Json } else { Format::Text };
    entry::main(format, |options| {
        signals::clean_up_and_die()?;
        weir_bench::run(options)
    })
}
