//! Waiting until programs that were replaced have ended everywhere.
//!
//! An XDP program runs where nothing else can be scheduled until the driver's receive loop is through. So a thread that has run on every
//! CPU since the programs were replaced knows that each of them has ended: a grace period, as RCU calls it, but tens of microseconds long
//! where the kernel's own takes tens of milliseconds. Where threads can interrupt receive loops (PREEMPT_RT), or CPUs are not ours to run on,
//! the kernel is asked to wait.

use std::{fs, io, thread};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::EngineError;
use crate::xdp::failed;

/// linux/membarrier.h: waits for all that RCU protects.
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

/// Returns when every program that was replaced before the call has ended.
pub(super) fn wait_for_programs() -> Result<(), EngineError> {
    let visited = !is_realtime() && thread::scope(|scope| scope.spawn(visit_all_cpus).join()).unwrap_or(false);
    if visited { Ok(()) } else { membarrier() }
}

fn is_realtime() -> bool {
    fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

/// Runs on each CPU in turn; whether that was possible.
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
        // Returns on that CPU.
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

fn membarrier() -> Result<(), EngineError> {
    // SAFETY: no pointers.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if status == 0 { Ok(()) } else { Err(failed("membarrier", io::Error::last_os_error().to_string())) }
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
        membarrier().expect("the kernel knows it");
        assert!(visit_all_cpus());
    }
}
