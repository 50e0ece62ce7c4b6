//! The verifier's cost of programs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::Object;
use libbpf_rs::libbpf_sys::{bpf_obj_get_info_by_fd, bpf_prog_info};

use super::load::{failed, part_of, program_name};
use crate::EngineError;

/// The verifier's cost of a chain, and the size of its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifierCost {
    /// Name of the chain.
    pub chain: String,
    /// Number of parts of its rules; 0 if they are in one program.
    pub parts: usize,
    /// Number of instructions that the verifier processed, over all paths. The kernel's limit is a million per program.
    pub verified_insns: u32,
    /// Number of instructions of all its programs.
    pub insns: u32,
    /// Size of the machine code in bytes.
    pub jited_bytes: u32,
}

/// The verifier's cost of a chain, in one program or in several parts.
pub(super) fn cost(object: &Object, chain: &str) -> Result<VerifierCost, EngineError> {
    let mut cost = VerifierCost { chain: chain.to_owned(), ..VerifierCost::default() };
    let whole = program_name(chain);
    for program in object.progs() {
        let name = program.name().to_string_lossy();
        let is_part = part_of(&name).is_some_and(|(_, of)| of == chain);
        if !is_part && name != whole {
            continue;
        }
        let info = program_info(&name, program.as_fd())?;
        cost.parts += usize::from(is_part);
        cost.verified_insns += info.verified_insns;
        cost.insns += info.xlated_prog_len / 8;
        cost.jited_bytes += info.jited_prog_len;
    }
    if cost.insns == 0 {
        return Err(failed(&whole, "no such program".to_owned()));
    }
    Ok(cost)
}

fn program_info(name: &str, program: BorrowedFd<'_>) -> Result<bpf_prog_info, EngineError> {
    let mut info = bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `bytes` bytes of `info`. Its pointers are null, so it writes nothing else.
    let failure = unsafe { bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut bytes) };
    if failure != 0 {
        return Err(failed(name, format!("no program info: {}", io::Error::last_os_error())));
    }
    Ok(info)
}
