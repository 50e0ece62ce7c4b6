//! Descriptors that a program keeps open for the next program in its process (execve(2)).

use std::collections::BTreeSet;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Descriptors that stay open for the next program. Dropped, they are closed at the next exec again.
#[derive(Default)]
pub struct Kept {
    numbers: Vec<RawFd>,
    /// Those that nothing else owns.
    own: Vec<OwnedFd>,
}

impl Kept {
    /// Keeps a descriptor open. Returns its number. Its owner must outlive this.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn keep(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<i32> {
        fcntl_setfd(descriptor, FdFlags::empty())?;
        self.numbers.push(descriptor.as_raw_fd());
        Ok(descriptor.as_raw_fd())
    }

    /// Keeps a descriptor open that was opened for the next program. Returns its number.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn own(&mut self, descriptor: OwnedFd) -> io::Result<i32> {
        let number = self.keep(descriptor.as_fd())?;
        self.own.push(descriptor);
        Ok(number)
    }

    /// The numbers of all of them.
    pub fn numbers(&self) -> &[RawFd] {
        &self.numbers
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for &number in &self.numbers {
            // SAFETY: the owner of the descriptor outlives this.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            // The descriptor is open, so this does not fail.
            let _set = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
        }
    }
}

/// Descriptors that the program before this one has kept open. Those that nobody takes are closed.
#[derive(Default)]
pub struct Inherited(BTreeSet<RawFd>);

impl Inherited {
    /// The descriptors with these numbers. To be called before the process opens others: an open descriptor that would
    /// close at an exec was not kept, so it is refused. The others close at the next exec.
    ///
    /// # Errors
    /// A number is not of a descriptor that was kept, or is given twice.
    pub fn receive(numbers: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        let mut received = Inherited::default();
        for number in numbers {
            let refused = |why: &str| io::Error::other(format!("descriptor {number}: {why}"));
            // Standard input and output belong to others.
            if number <= libc::STDERR_FILENO {
                return Err(refused("it cannot be inherited"));
            }
            // SAFETY: the descriptor is used only for this query, which fails if it is not open.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            match fcntl_getfd(descriptor) {
                Ok(flags) if flags.contains(FdFlags::CLOEXEC) => return Err(refused("it was not handed over")),
                Ok(_) => fcntl_setfd(descriptor, FdFlags::CLOEXEC)?,
                Err(errno) => return Err(refused(&io::Error::from(errno).to_string())),
            }
            if !received.0.insert(number) {
                return Err(refused("it is handed over twice"));
            }
        }
        Ok(received)
    }

    /// Takes a descriptor, once.
    ///
    /// # Errors
    /// It is not among them.
    pub fn take(&mut self, number: i32) -> io::Result<OwnedFd> {
        match self.0.remove(&number) {
            // SAFETY: it is open, as `receive` has checked. It was opened by the program before this one and belongs
            // to nothing here, and it is taken once.
            true => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
            false => Err(io::Error::other(format!("descriptor {number} was not handed over"))),
        }
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        let left: Vec<RawFd> = self.0.iter().copied().collect();
        left.into_iter().for_each(|number| drop(self.take(number)));
    }
}

/// Signals that are ignored until this is dropped. The next program inherits that.
pub struct Ignored(Vec<(i32, libc::sigaction)>);

impl Ignored {
    /// Ignores signals that would end the next program before it catches them.
    pub fn until_dropped(signals: &[i32]) -> Self {
        let ignore = |&signal: &i32| {
            // SAFETY: zeros are a valid value of this plain structure: no flags, an empty mask.
            let (mut ignore, mut before): (libc::sigaction, libc::sigaction) = unsafe { (zeroed(), zeroed()) };
            ignore.sa_sigaction = libc::SIG_IGN;
            // SAFETY: no handler is installed, and both structures outlive the call. An invalid number is refused.
            let error = unsafe { libc::sigaction(signal, &raw const ignore, &raw mut before) };
            (error == 0).then_some((signal, before))
        };
        Ignored(signals.iter().filter_map(ignore).collect())
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            // SAFETY: what was there before is installed again.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}
