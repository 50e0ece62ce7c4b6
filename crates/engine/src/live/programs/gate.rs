//! Gates: what blocks the interfaces of a host from the moment at which Weir ends (`on-exit block`).
//!
//! ```text
//!   wire --- XDP ---- gate (tcx, ingress) ---- host             while Weir runs, its array has a program, and the gate
//!   wire <------------------ tcx, egress: gate, Weir's ---- host        passes every packet on
//! ```
//! A gate is a program of six instructions at both tcx hooks of an interface. It jumps to the only program of an
//! array, which lets the packet go on, and drops the packet if the array is empty. No process holds the gate, so it
//! stays. But only Weir has a descriptor of the array, and the kernel empties an array of programs when its last
//! descriptor is closed, however the process ends. Gates are found again by their name.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null;

use libbpf_rs::libbpf_sys::{
    BPF_F_BEFORE, BPF_MAP_TYPE_PROG_ARRAY, BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_EGRESS, BPF_TCX_INGRESS, bpf_attach_type,
    bpf_map_delete_elem, bpf_map_get_info_by_fd, bpf_map_info, bpf_prog_attach_opts, bpf_prog_detach_opts,
    bpf_prog_get_fd_by_id, bpf_prog_query_opts,
};

use crate::EngineError;
use crate::live::os::descriptor::owned;
use crate::live::os::link::LinkSwitch;
use crate::live::programs::redirect;
use crate::live::programs::resident;

/// The kernel's names of the gate, and of the program in its array.
const NAME: &CStr = c"weir_gate";
const NAME_OPEN: &CStr = c"weir_gate_open";
/// Both hooks of an interface.
const HOOKS: [bpf_attach_type; 2] = [BPF_TCX_INGRESS, BPF_TCX_EGRESS];
/// Most programs at a hook: `BPF_MPROG_MAX` in the kernel.
const PROGRAMS_MAX: usize = 64;

/// linux/bpf.h
const TAIL_CALL: u64 = 12;
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;

/// An open gate at interfaces. When it is dropped, or the process ends, the gate is shut and stays.
pub struct Gate {
    array: OwnedFd,
}

impl Gate {
    /// Attaches an open gate to the interfaces, in place of gates that are there.
    ///
    /// # Errors
    /// An interface does not exist, or the process lacks the right to attach programs. No new gate is left then.
    pub fn install(interfaces: &[String]) -> Result<Self, EngineError> {
        let loading = |source: io::Error| {
            EngineError::Xdp { object: "gate".to_owned(), problem: source.to_string() }.caused_by(&source)
        };
        let array = redirect::map(BPF_MAP_TYPE_PROG_ARRAY, c"weir_gate", 1).map_err(loading)?;
        let open = redirect::load(BPF_PROG_TYPE_SCHED_CLS, NAME_OPEN, &open_code(), 0).map_err(loading)?;
        redirect::set(&array, 0, open.as_raw_fd() as u32).map_err(loading)?;
        let program =
            redirect::load(BPF_PROG_TYPE_SCHED_CLS, NAME, &gate_code(array.as_raw_fd()), 0).map_err(loading)?;
        let mut attached: Vec<(u32, bpf_attach_type)> = Vec::new();
        for interface in interfaces {
            let index = LinkSwitch::new(interface).index()?;
            for hook in HOOKS {
                let old = standing(index, hook).map_err(|source| failed(interface, source))?;
                if let Err(source) = attach(index, hook, &program) {
                    attached.iter().for_each(|&(index, hook)| _ = detach(index, hook, &program));
                    return Err(failed(interface, source));
                }
                attached.push((index, hook));
                for old in old {
                    detach(index, hook, &old).map_err(|source| failed(interface, source))?;
                }
            }
        }
        Ok(Gate { array })
    }

    /// An open gate whose array was handed over by the program before this one in its process.
    ///
    /// # Errors
    /// It is no such array.
    pub fn handed(array: OwnedFd) -> io::Result<Self> {
        let mut info = bpf_map_info::default();
        let mut bytes = size_of::<bpf_map_info>() as u32;
        // SAFETY: `info` is writable for `bytes`. It is all zeros, so the kernel writes through no pointer in it.
        result(unsafe { bpf_map_get_info_by_fd(array.as_raw_fd(), &raw mut info, &raw mut bytes) })?;
        let is_named = info.name.iter().map(|&c| c as u8).take_while(|&c| c != 0).eq(NAME.to_bytes().iter().copied());
        match is_named && info.type_ == BPF_MAP_TYPE_PROG_ARRAY {
            true => Ok(Gate { array }),
            false => Err(io::Error::other("the descriptor that was handed over is no gate")),
        }
    }

    /// Its array. The gate is open as long as a descriptor of it is.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.array.as_fd()
    }

    /// Shuts the gate at once: from now on nothing passes.
    pub fn shut(&self) {
        let key = 0u32;
        // SAFETY: the key is a word, as the array was created for. An array that is empty already stays empty.
        unsafe { bpf_map_delete_elem(self.array.as_raw_fd(), (&raw const key).cast()) };
    }
}

/// Removes the gates of interfaces. Returns whether there were any. An interface that does not exist has none.
///
/// # Errors
/// The first error. All other interfaces are still processed.
pub fn remove(interfaces: &[String]) -> Result<bool, EngineError> {
    let (mut found, mut result) = (false, Ok(()));
    for interface in interfaces {
        let Ok(index) = LinkSwitch::new(interface).index() else { continue };
        for hook in HOOKS {
            let removed = standing(index, hook).and_then(|gates| {
                found |= !gates.is_empty();
                gates.iter().try_for_each(|gate| detach(index, hook, gate))
            });
            result = result.and(removed.map_err(|source| failed(interface, source)));
        }
    }
    result.map(|()| found)
}

/// The gates at a hook.
fn standing(index: u32, hook: bpf_attach_type) -> io::Result<Vec<OwnedFd>> {
    let mut ids = [0u32; PROGRAMS_MAX];
    let mut query = bpf_prog_query_opts {
        sz: size_of::<bpf_prog_query_opts>() as _,
        prog_ids: ids.as_mut_ptr(),
        ..bpf_prog_query_opts::default()
    };
    query.__bindgen_anon_1.count = PROGRAMS_MAX as u32;
    // SAFETY: the options contain their own size. `prog_ids` has room for `count` words.
    let error = unsafe { bpf_prog_query_opts(index as c_int, hook, &raw mut query) };
    match -error {
        0 => {}
        // Nothing was ever attached there.
        libc::ENOENT => return Ok(Vec::new()),
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    // SAFETY: the kernel has set the member.
    let count = unsafe { query.__bindgen_anon_1.count } as usize;
    let ids: BTreeSet<u32> = ids.into_iter().take(count).collect();
    let mut gates = Vec::new();
    for id in ids {
        // SAFETY: the call takes no pointers. A program that was detached meanwhile has no descriptor.
        let Ok(program) = owned(unsafe { bpf_prog_get_fd_by_id(id) }) else { continue };
        if resident::name_of(&program)?.as_c_str() == NAME {
            gates.push(program);
        }
    }
    Ok(gates)
}

/// Attaches a program in front of all others. No process holds it.
fn attach(index: u32, hook: bpf_attach_type, program: &OwnedFd) -> io::Result<()> {
    let options = bpf_prog_attach_opts {
        sz: size_of::<bpf_prog_attach_opts>() as _,
        flags: BPF_F_BEFORE,
        ..bpf_prog_attach_opts::default()
    };
    // SAFETY: the options contain their own size.
    result(unsafe { bpf_prog_attach_opts(program.as_raw_fd(), index as c_int, hook, &raw const options) })
}

fn detach(index: u32, hook: bpf_attach_type, program: &OwnedFd) -> io::Result<()> {
    // SAFETY: no options are passed.
    match result(unsafe { bpf_prog_detach_opts(program.as_raw_fd(), index as c_int, hook, null()) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        detached => detached,
    }
}

/// ```text
/// r2 = array
/// r3 = 0
/// call bpf_tail_call      jumps, if the array has a program
/// r0 = TCX_DROP
/// exit
/// ```
/// An instruction is `opcode | dst << 8 | src << 12 | offset << 16 | immediate << 32`.
fn gate_code(array: c_int) -> [u64; 6] {
    const PSEUDO_MAP_FD: u64 = 1;
    [
        0x18 | 2 << 8 | PSEUDO_MAP_FD << 12 | (array as u64) << 32,
        0,
        0xb7 | 3 << 8,
        0x85 | TAIL_CALL << 32,
        0xb7 | (TCX_DROP as u64) << 32,
        0x95,
    ]
}

/// ```text
/// r0 = TCX_NEXT
/// exit
/// ```
fn open_code() -> [u64; 2] {
    [0xb7 | (TCX_NEXT as u32 as u64) << 32, 0x95]
}

fn result(error: c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}

fn failed(interface: &str, source: io::Error) -> EngineError {
    EngineError::Interface { interface: interface.to_owned(), source }
}
