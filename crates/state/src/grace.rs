//! Waits until programs in the kernel that run now have ended on all CPUs: replaced programs, and those that use
//! replaced parts of tables or sheets. This is a grace period in terms of RCU.
//!
//! While an XDP program runs, nothing else can be scheduled on its CPU until the end of the driver's receive loop. So
//! when a thread has run on every CPU, each program has ended. That takes tens of microseconds, and the kernel's own
//! period takes tens of milliseconds. The kernel's is used if threads can preempt receive loops (PREEMPT_RT), or if
//! this process may not use all CPUs. It is also used if a thread of higher priority occupies a CPU.
//!
//! The kernel waits for running programs before it returns from changing a map of maps (`maybe_wait_bpf_programs`,
//! kernel/bpf/syscall.c). Unlike membarrier(2), it does so with `nohz_full=` as well, and without `CONFIG_MEMBARRIER`.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use std::{fs, io, thread};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rustix::thread::{CpuSet, sched_setaffinity};

/// How long a thread may take to run on every CPU.
const VISIT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait if the kernel's wait fails. A receive loop takes milliseconds.
const PAUSE: Duration = Duration::from_secs(1);

/// The resources for waiting. They are allocated in advance, so that waiting needs no memory or descriptor.
pub struct Grace {
    inner: MapHandle,
    outer: MapHandle,
}

impl Grace {
    /// Creates the maps.
    ///
    /// # Errors
    /// The process lacks the right to create maps, or there is no memory.
    pub fn prepare() -> io::Result<Self> {
        let create = |kind, options: &bpf_map_create_opts| {
            MapHandle::create(kind, Some("weir_grace"), 4, 4, 1, options)
                // libbpf stores the error number in errno, and libbpf-rs does not return it.
                .map_err(|_| io::Error::last_os_error())
        };
        let sized = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
        let inner = create(MapType::Array, &sized)?;
        let of_inner = bpf_map_create_opts { inner_map_fd: inner.as_fd().as_raw_fd() as u32, ..sized };
        let outer = create(MapType::ArrayOfMaps, &of_inner)?;
        Ok(Grace { inner, outer })
    }

    /// Returns when every program that ran before the call has ended. It runs on each CPU if it can.
    pub fn wait(&self) {
        let visited = !is_realtime() && visit_in_time();
        if !visited {
            // It has waited in any case.
            let _how = self.wait_undisturbing();
        }
    }

    /// As [`Grace::wait`], by the kernel's own grace period only. It takes tens of milliseconds and disturbs no CPU.
    ///
    /// # Errors
    /// The kernel does not wait. A second has passed instead, which is longer than any receive loop.
    pub fn wait_undisturbing(&self) -> io::Result<()> {
        self.wait_in_kernel().map_err(|error| {
            thread::sleep(PAUSE);
            io::Error::other(error.to_string())
        })
    }

    /// Waits by the kernel's grace period.
    fn wait_in_kernel(&self) -> libbpf_rs::Result<()> {
        let inner = (self.inner.as_fd().as_raw_fd() as u32).to_ne_bytes();
        self.outer.update(&0u32.to_ne_bytes(), &inner, MapFlags::ANY)
    }
}

/// Whether a thread ran on every CPU in time. A late thread is abandoned.
fn visit_in_time() -> bool {
    let (done, is_done) = sync_channel(1);
    let visit = move || _ = done.send(visit_all_cpus());
    let started = thread::Builder::new().name("weir-grace".to_owned()).spawn(visit);
    started.is_ok() && is_done.recv_timeout(VISIT_TIMEOUT).unwrap_or(false)
}

fn is_realtime() -> bool {
    fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

/// Runs on each CPU in turn. Returns whether that was possible.
fn visit_all_cpus() -> bool {
    let Some(cpus) = fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(|text| cpus(&text)) else {
        return false;
    };
    cpus.iter().all(|&cpu| {
        if cpu >= CpuSet::MAX_CPU {
            return false;
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        // This returns on that CPU.
        sched_setaffinity(None, &only).is_ok()
    })
}

/// `0-3,8`
fn cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_in_ranges() {
        assert_eq!(cpus("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpus("0\n"), Some(vec![0]));
        assert_eq!(cpus("\n"), None);
    }

    #[test]
    fn both_ways_come_to_an_end() {
        let grace = Grace::prepare().expect("there is a right to make maps");
        for _ in 0..3 {
            grace.wait_in_kernel().expect("the kernel waits");
        }
        assert!(visit_in_time());
        grace.wait();
    }
}
