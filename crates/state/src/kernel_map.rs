//! Memory that programs in the kernel and this process share.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::{BPF_F_MMAPABLE, bpf_map_create_opts};
use libbpf_rs::{MapHandle, MapType};
use memmap2::{MmapOptions, MmapRaw};

/// An array map with values of `bytes` bytes, all zeros, and their memory: one after the other, each at a multiple of
/// 8.
///
/// # Errors
/// The kernel refuses the map or its memory.
pub fn mapped_array(name: &str, bytes: usize, values: u32) -> io::Result<(MapHandle, MmapRaw)> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: BPF_F_MMAPABLE,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some(name), 4, bytes as u32, values, &options)
        // libbpf stores the error number in errno, and libbpf-rs does not return it.
        .map_err(|_| io::Error::last_os_error())?;
    let length = bytes.next_multiple_of(8) * values as usize;
    let memory = MmapOptions::new().len(length).map_raw(map.as_fd().as_raw_fd())?;
    Ok((map, memory))
}

/// Number of CPUs that have memory of their own in the kernel: the most that the machine can have, rounded up to a
/// power of two.
///
/// # Errors
/// The kernel does not say how many there are.
pub fn cpus() -> io::Result<usize> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(cpus.next_power_of_two())
}
