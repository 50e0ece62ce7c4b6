//! Failures for want of descriptors: this process may not have more files open.

use std::io;

use libbpf_rs::ErrorKind;

/// Whether a call failed because this process may not have more files open.
pub fn were_wanting(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// Whether the call of libbpf that has just failed on this thread did so because this process may not have more files
/// open. libbpf stores the error number in errno; libbpf-rs does not give it.
pub(crate) fn were_wanting_to_libbpf(error: &libbpf_rs::Error) -> bool {
    error.kind() == ErrorKind::Other && were_wanting(&io::Error::last_os_error())
}
