//! How many files Weir may have open: sockets, rings, maps and programs of the kernel are all files.

use crate::failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use std::{fs, thread};

/// What Weir asks for at most; none of its engines needs more.
const WANTED: u64 = 1 << 16;
/// What it takes to run a policy between two interfaces, to load others beside it and to answer clients.
const NEEDED: u64 = 64;
/// What a new generation leaves free, for clients and for what the next change takes.
const SPARE: usize = 16;
const SPARE_TRIES: u32 = 10;
const SPARE_PAUSE: Duration = Duration::from_millis(100);
const REMEDY: &str = "`ulimit -n`, `LimitNOFILE=` of systemd";

/// Takes as many as the system allows: usual limits are for programs that wait with select(2).
///
/// # Errors
/// They are too few for anything.
pub(super) fn raise() -> Result<(), Failure> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if current.is_some_and(|current| current < wanted) {
        // What there is may do. If not, it is said when it is known.
        let _stays = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < NEEDED => Err(Failure::Runtime(format!(
            "this process may have {limit} files open and needs at least {NEEDED} ({REMEDY})"
        ))),
        _ => Ok(()),
    }
}

/// Names this limit in a failure that it caused.
pub(super) fn explain(failure: Failure) -> Failure {
    match (failure, getrlimit(Resource::Nofile).current) {
        (Failure::NoDescriptors(text), Some(limit)) => Failure::NoDescriptors(format!(
            "{text}: this process may have {limit} files open, which are too few ({REMEDY})"
        )),
        (failure, _) => failure,
    }
}

/// Checks that [`SPARE`] more files can be opened. Clients that are about to go give theirs back meanwhile.
///
/// # Errors
/// They cannot.
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
