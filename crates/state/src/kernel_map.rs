//! Memory that programs in the kernel and this process share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    BPF_F_MMAPABLE, BPF_MAP_TYPE_ARRAY, bpf_map_create_opts, bpf_map_get_fd_by_id, bpf_map_get_info_by_fd, bpf_map_info,
};
use libbpf_rs::{MapHandle, MapType};
use memmap2::{MmapOptions, MmapRaw};

/// An array map with values of `bytes` bytes, all zeros, and their memory: one after the other, each at a multiple of
/// 8.
///
/// # Errors
/// The kernel refuses the map or its memory.
pub fn mapped_array(name: &str, bytes: usize, values: u32) -> io::Result<(OwnedFd, MmapRaw)> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: BPF_F_MMAPABLE,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some(name), 4, bytes as u32, values, &options)
        // libbpf stores the error number in errno, and libbpf-rs does not return it.
        .map_err(|_| io::Error::last_os_error())?;
    let map = map.as_fd().try_clone_to_owned()?;
    let memory = memory(&map, bytes, values)?;
    Ok((map, memory))
}

fn memory(map: &OwnedFd, bytes: usize, values: u32) -> io::Result<MmapRaw> {
    MmapOptions::new().len(bytes.next_multiple_of(8) * values as usize).map_raw(map.as_raw_fd())
}

/// The memory of an array map that was made by [`mapped_array`] with these values, and handed over since.
///
/// # Errors
/// It is another map, or the kernel refuses its memory.
pub(crate) fn handed_array(map: &OwnedFd, name: &str, bytes: usize, values: u32) -> io::Result<MmapRaw> {
    let info = info(map.as_fd())?;
    let is_named = info.name.iter().map(|&c| c as u8).take_while(|&c| c != 0).eq(name.bytes());
    let is_mapped = info.map_flags & BPF_F_MMAPABLE != 0 && info.type_ == BPF_MAP_TYPE_ARRAY;
    let is_large = (info.key_size, info.value_size as usize, info.max_entries) == (4, bytes, values);
    match is_named && is_mapped && is_large {
        true => memory(map, bytes, values),
        false => Err(io::Error::other(format!(
            "descriptor {} is not the map {name} of {values} times {bytes} bytes",
            map.as_raw_fd()
        ))),
    }
}

/// The memory of an array map with one value of `bytes` bytes, which was handed over. libbpf has named it.
///
/// # Errors
/// It is another map, or the kernel refuses its memory.
pub fn handed_section(map: &OwnedFd, bytes: usize) -> io::Result<MmapRaw> {
    let info = info(map.as_fd())?;
    let is_mapped = info.map_flags & BPF_F_MMAPABLE != 0 && info.type_ == BPF_MAP_TYPE_ARRAY;
    match is_mapped && (info.key_size, info.value_size as usize, info.max_entries) == (4, bytes, 1) {
        true => memory(map, bytes, 1),
        false => Err(io::Error::other(format!("descriptor {} is not a section of {bytes} bytes", map.as_raw_fd()))),
    }
}

fn info(map: BorrowedFd<'_>) -> io::Result<bpf_map_info> {
    let mut info = bpf_map_info::default();
    let mut length = size_of::<bpf_map_info>() as u32;
    // SAFETY: `info` is writable for `length` bytes. It is all zeros, so the kernel writes through no pointer in it.
    match unsafe { bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length) } {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number of a map in the kernel.
///
/// # Errors
/// It is no map.
pub fn map_number(map: BorrowedFd<'_>) -> io::Result<u32> {
    info(map).map(|info| info.id)
}

/// The map with a number, and the length of its values in bytes.
///
/// # Errors
/// There is no such map, or the process lacks the right to open it by its number.
pub fn map_of_number(number: u32) -> io::Result<(OwnedFd, usize)> {
    // SAFETY: the call has no pointers.
    let descriptor = unsafe { bpf_map_get_fd_by_id(number) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, for nothing else.
    let map = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let bytes = info(map.as_fd())?.value_size as usize;
    Ok((map, bytes))
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
