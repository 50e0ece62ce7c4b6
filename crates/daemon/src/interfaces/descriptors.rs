//! The limit of open files. Sockets, rings, maps and programs of the kernel count as files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use std::{fs, thread};
use weir_command::failure::Failure;

/// The limit that Weir requests; no engine needs more.
const WANTED: u64 = 1 << 16;
/// Descriptors that are needed to run a policy between two interfaces, load others and answer clients.
const NEEDED: u64 = 64;
/// Descriptors that a new generation must leave free for clients and for the next change.
const SPARE: usize = 16;
const SPARE_TRIES: u32 = 10;
const SPARE_PAUSE: Duration = Duration::from_millis(100);
const REMEDY: &str = "`ulimit -n`, `LimitNOFILE=` of systemd";

/// Raises the limit as far as allowed. Usual soft limits suit programs that use select(2).
///
/// # Errors
/// The limit is below the minimum.
pub fn raise() -> Result<(), Failure> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if current.is_some_and(|current| current < wanted) {
        // The current limit may be enough. If it is not, a later failure reports it.
        let _stays = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < NEEDED => Err(Failure::Runtime(format!(
            "this process may have {limit} files open and needs at least {NEEDED} ({REMEDY})"
        ))),
        _ => Ok(()),
    }
}

/// Adds the limit to the message of a failure that it caused.
pub fn explain(failure: Failure) -> Failure {
    match (failure, getrlimit(Resource::Nofile).current) {
        (Failure::NoDescriptors(text), Some(limit)) => Failure::NoDescriptors(format!(
            "{text}: this process may have {limit} files open, which is too few ({REMEDY})"
        )),
        (failure, _) => failure,
    }
}

/// Checks that [`SPARE`] more files can be opened. Tries repeatedly, because clients may be closing theirs.
///
/// # Errors
/// They cannot be opened.
pub fn check_left() -> Result<(), Failure> {
    let spare = || (0..SPARE).map(|_| fs::File::open("/dev/null")).collect::<Result<Vec<_>, _>>();
    for _ in 0..SPARE_TRIES {
        if spare().is_ok() {
            return Ok(());
        }
        thread::sleep(SPARE_PAUSE);
    }
    spare().map(drop).map_err(|error| Failure::system("no descriptors would be left for clients", error))
}
