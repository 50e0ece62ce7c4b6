//! An interface whose other end is this process (Documentation/networking/tuntap.rst). A test can read from it as
//! slowly as it likes, or not at all.

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::EngineError;

const DEVICE: &str = "/dev/net/tun";
/// The longest frame that [`Tap::read`] returns whole.
const FRAME_BYTES: usize = 1 << 16;

/// The process's end. Dropping it removes the interface.
pub struct Tap {
    file: File,
    interface: String,
}

impl Tap {
    /// Creates the interface, which is down at first. The kernel puts a free number in place of `%d` in the name.
    ///
    /// # Errors
    /// An interface of that name exists, the process lacks the right to create one (CAP_NET_ADMIN), or the kernel does
    /// not support them.
    pub fn create(interface: &str) -> Result<Self, EngineError> {
        let failed = |source| EngineError::Interface { interface: interface.to_owned(), source };
        if interface.len() >= libc::IFNAMSIZ {
            return Err(failed(io::Error::from(ErrorKind::InvalidInput)));
        }
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let file = file.map_err(|source| EngineError::Io { path: Path::new(DEVICE).to_owned(), source })?;
        // SAFETY: zeros are a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from as _;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as _;
        // SAFETY: the request has a zero-terminated name and flags, as TUNSETIFF requires.
        let error: c_int = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        match error {
            0 => {
                // TUNSETIFF returns the name that the interface has.
                let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte as u8));
                Ok(Tap { file, interface: name.collect() })
            }
            _ => Err(failed(io::Error::last_os_error())),
        }
    }

    /// The name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The next frame that was sent out of the interface; `None` if there is none now.
    ///
    /// # Errors
    /// The interface failed.
    pub fn read(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        let mut frame = vec![0; FRAME_BYTES];
        let length = self.read_into(&mut frame)?;
        Ok(length.map(|length| {
            frame.truncate(length);
            frame
        }))
    }

    /// Reads the next frame into a buffer, as far as it fits. Returns the bytes that were read; `None` if there is no
    /// frame now.
    ///
    /// # Errors
    /// The interface failed.
    pub fn read_into(&self, frame: &mut [u8]) -> Result<Option<usize>, EngineError> {
        match (&self.file).read(frame) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(source) => Err(EngineError::Interface { interface: self.interface.clone(), source }),
        }
    }

    /// Makes the interface receive a frame.
    ///
    /// # Errors
    /// The interface is down or has no room.
    pub fn write(&mut self, frame: &[u8]) -> Result<(), EngineError> {
        let written = self.file.write(frame);
        written.map(|_| ()).map_err(|source| EngineError::Interface { interface: self.interface.clone(), source })
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
