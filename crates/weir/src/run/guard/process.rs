//! The guard's own process: `weir guard`, which `weir run` starts.

use super::aftermath::{Aftermath, PATIENCE};
use super::{READY, Word};
use crate::cli::GuardOptions;
use crate::failure::Failure;
use crate::run::claim::{Claimant, Claims};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_engine::live::Interfaces;

/// How long the guard of a Weir that was killed may still have its claim.
const CLAIM_PATIENCE: Duration = PATIENCE.saturating_add(Duration::from_secs(1));

/// Runs the command.
///
/// # Errors
/// The link is not as it should be.
pub fn run(options: &GuardOptions) -> Result<(), Failure> {
    outlive_signals()?;
    // As which it is seen by `ps`; nothing hangs on it.
    let _unnamed = rustix::thread::set_name(c"weir-guard");
    let (lower, upper) = (options.lower.clone(), options.upper.clone());
    let _claims = match Claims::take(&options.claims, Claimant::Guard, CLAIM_PATIENCE) {
        Ok(claims) => claims,
        // Who started it says why.
        Err(failure) => {
            answer(failure.message());
            return Ok(());
        }
    };
    let mut aftermath = Aftermath::new(&Interfaces { lower, upper, divert: None });
    answer(READY);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Word::Goodbye) => return Ok(()),
            Ok(word) => _ = aftermath.heed(&word),
            Err(error) => eprintln!("weir: the guard was told what it does not understand: {error}"),
        }
    }
    eprintln!("weir: ended without a word; its guard leaves the link as `on-exit` says");
    aftermath.carry_out()
}

/// A signal that ends Weir and its guard alike must not end the guard first.
fn outlive_signals() -> Result<(), Failure> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|error| Failure::system(format_args!("guard: signal {signal}"), error))?;
    }
    Ok(())
}

fn answer(line: &str) {
    let mut stdout = std::io::stdout();
    let _gone = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
