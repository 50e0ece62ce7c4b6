//! The guard process: `weir guard`, which `weir run` starts.

use super::final_state::{FinalState, PATIENCE};
use super::message::{Message, READY};
use crate::interfaces::claim::{Claimant, Claims};
use crate::options::GuardOptions;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_engine::live::Interfaces;

/// Longest wait for the guard of a killed Weir to release its claims.
const CLAIM_PATIENCE: Duration = PATIENCE.saturating_add(Duration::from_secs(1));

/// Runs the command.
///
/// # Errors
/// The link cannot be set as `on-exit` says.
pub fn run(options: &GuardOptions) -> Result<(), Failure> {
    outlive_signals()?;
    // The name in `ps`. An error is ignored.
    let _unnamed = rustix::thread::set_name(c"weir-guard");
    let (lower, upper) = (options.lower.clone(), options.upper.clone());
    let _claims = match Claims::take(&options.claims, Claimant::Guard, CLAIM_PATIENCE) {
        Ok(claims) => claims,
        // The parent process reports the failure.
        Err(failure) => {
            answer(failure.message());
            return Ok(());
        }
    };
    let mut final_state = FinalState::new(&Interfaces { lower, upper, divert: None });
    answer(READY);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Message::Goodbye) => return Ok(()),
            Ok(message) => _ = final_state.apply(&message),
            Err(error) => error!("weir: the guard received an invalid message: {error}"),
        }
    }
    error!("weir: ended unexpectedly; its guard sets the link as `on-exit` says");
    final_state.carry_out()
}

/// Ignores the signals that end Weir, because a terminal or a service manager sends them to the guard too. SIGABRT is
/// the signal of systemd's watchdog.
///
/// # Errors
/// The kernel refuses.
pub fn outlive_signals() -> Result<(), Failure> {
    use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGABRT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|error| Failure::system(format_args!("guard: signal {signal}"), error))?;
    }
    Ok(())
}

fn answer(line: &str) {
    let mut stdout = std::io::stdout();
    let _gone = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
