//! Failures at the limit of descriptors: this process may not have more files open (`RLIMIT_NOFILE`).

use std::io;

use libbpf_rs::ErrorKind;

/// Whether a call failed because this process may not have more files open.
pub fn limit_reached(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// Whether the last failed call of libbpf on this thread failed because this process may not have more files open.
/// libbpf stores the error number in errno, and libbpf-rs does not return it.
pub(crate) fn limit_reached_in_libbpf(error: &libbpf_rs::Error) -> bool {
    error.kind() == ErrorKind::Other && limit_reached(&io::Error::last_os_error())
}
