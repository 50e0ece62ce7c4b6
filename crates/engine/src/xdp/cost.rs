//! What the verifier spent on programs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::Object;
use libbpf_rs::libbpf_sys::{bpf_obj_get_info_by_fd, bpf_prog_info};

use super::load::{failed, part_of, program_name};
use crate::EngineError;

/// What the verifier spent on a program, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifierCost {
    /// The chain.
    pub chain: String,
    /// Programs that its rules are divided into; 0 if they are not.
    pub parts: usize,
    /// Instructions that the verifier walked, over all paths; the kernel's limit is a million a program.
    pub verified_insns: u32,
    /// Instructions of all its programs.
    pub insns: u32,
    /// Bytes of machine code.
    pub jited_bytes: u32,
}

/// What the verifier spent on a chain: on its program, and on its parts if it has any.
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
    // SAFETY: the kernel writes at most `bytes` bytes of `info`; its pointers are null, so it writes nothing else.
    let failure = unsafe { bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut bytes) };
    if failure != 0 {
        return Err(failed(name, format!("no program info: {}", io::Error::last_os_error())));
    }
    Ok(info)
}
