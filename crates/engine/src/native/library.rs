//! The shared object of a program: loaded from memory, and checked before its functions are called.

use std::error::Error;
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use libloading::os::unix::Library;
use rustix::fs::{MemfdFlags, memfd_create};
use weir_abi::ABI_VERSION;

use crate::sealed::AnsweredFn;
use crate::{EngineError, ProgramShape};

/// Checks that the object was compiled for this version of the ABI.
pub(super) fn check_version(name: &str, library: &Library) -> Result<(), EngineError> {
    // SAFETY: only the address of the symbol is used here.
    let symbol = unsafe { library.get::<*const c_void>(b"weir_abi_version") };
    let symbol = symbol.map_err(|_| EngineError::Native {
        object: name.to_owned(),
        problem: "has no symbol weir_abi_version".to_owned(),
    })?;
    // SAFETY: objects of every ABI version export `const uint32_t weir_abi_version`.
    let found = unsafe { symbol.into_raw().cast::<u32>().read() };
    if found != ABI_VERSION {
        return Err(EngineError::AbiVersion { object: name.to_owned(), found, expected: ABI_VERSION });
    }
    Ok(())
}

/// An executable file in memory. Each call returns another file, so that dlopen cannot confuse it with a previous one.
pub(super) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    // Kernels before 6.3 reject the flag. Their files are always executable.
    let file = memfd_create(c"weir", MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(c"weir", MemfdFlags::CLOEXEC))?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// The function that compares seals, if the program reads answers.
pub(super) fn front(name: &str, library: &Library, program: &ProgramShape) -> Result<Option<AnsweredFn>, EngineError> {
    if program.answered.is_none() {
        return Ok(None);
    }
    // SAFETY: the ABI version was checked, and in this version `weir_answered` has this type.
    let function = unsafe { library.get::<AnsweredFn>(b"weir_answered") };
    let missing =
        |_| EngineError::Native { object: name.to_owned(), problem: "has no function weir_answered".to_owned() };
    function.map(|function| Some(*function)).map_err(missing)
}

/// The message of the dynamic loader, which is the source of the error.
pub(super) fn loader_message(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
