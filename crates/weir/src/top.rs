//! `weir top`: the screen is `weir-top`.

use crate::cli::TopOptions;
use crate::ctl_attacks;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::env;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_command::failure::Failure;
use weir_top::{Error, Once, Options, Picture};

/// Runs the command.
///
/// # Errors
/// The terminal or a recording cannot be used, or no Weir answers.
pub fn run(options: &TopOptions) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let registered = flag::register(signal, stop.clone());
        registered.map_err(|error| Failure::Runtime(format!("signal {signal}: {error}")))?;
    }
    let (columns, lines) = options.size;
    let once = options.once.then_some(if options.json { Once::Json } else { Once::Text(columns, lines) });
    let (size, captions) = (options.size, options.captions.clone());
    let picture = options.picture.clone().map(|file| Picture { file, captions, size });
    let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env::var_os("TERM").is_some_and(|term| term == "dumb");
    let shown = weir_top::run(&Options {
        control: options.control.clone(),
        from: options.from.clone(),
        record: options.record.clone(),
        once,
        picture,
        has_colour: !options.no_color && !is_plain,
        explain: ctl_attacks::shown,
        stop,
    });
    shown.map_err(|error| match error {
        Error::Control(error) => error.into(),
        Error::NoTerminal | Error::NotASnapshot { .. } | Error::NotACaption { .. } | Error::Empty { .. } => {
            Failure::Rejected(format!("weir: {error}"))
        }
        Error::File { .. } | Error::Terminal(_) => Failure::Runtime(error.to_string()),
    })
}
