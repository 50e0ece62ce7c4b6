//! A process that deletes the filters of a card when Weir ends for any reason.
//!
//! A driver keeps the filters of an ended process. Without Weir, filters of sources that are not blocked any more would
//! stay. So `weir run` starts this process, in the network namespace of the card, before its first filter. It waits
//! until the other end of its pipe, which Weir holds, is closed. It deletes filters of that Weir only: another one may
//! be running by then.

use crate::interfaces::guard::process::outlive_signals;
use crate::options::SweepOptions;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use weir_command::failure::Failure;
use weir_engine::live::card::flower::{Place, sweep};

/// The process, which deletes all filters when this is dropped.
pub struct Sweeper(Child);

impl Sweeper {
    /// Starts the process, in the network namespace of this thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(place: Place) -> Result<Self, Failure> {
        // As for the guard: the program itself, and no signals of the terminal.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weir").arg("sweep").current_dir("/").process_group(0);
        command.args(["--index", &place.index.to_string(), "--pref", &place.pref.to_string()]);
        command.args(["--owner", &place.owner.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().map(Sweeper).map_err(|error| Failure::system("sweeper of the card", error))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _gone = self.0.wait();
    }
}

/// Runs the command.
///
/// # Errors
/// The kernel refuses.
pub fn run(options: &SweepOptions) -> Result<(), Failure> {
    outlive_signals()?;
    // The name in `ps`. An error is ignored.
    let _unnamed = rustix::thread::set_name(c"weir-sweep");
    let _ended = std::io::stdin().lock().read_to_end(&mut Vec::new());
    let place = Place { index: options.index, pref: options.pref, owner: options.owner };
    sweep(place).map_err(|error| Failure::system("filters of the card", error))
}
