//! The processor's time stamp counter (TSC).
//!
//! It ticks at a constant rate, independent of the core's clock. All cycles that Weir reports are TSC cycles, as in the
//! papers.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Duration of the calibration against the system's clock, once per process.
const CALIBRATION: Duration = Duration::from_millis(50);

/// The current value of the counter, after all preceding loads have finished.
#[cfg(target_arch = "x86_64")]
pub fn now() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both instructions are part of x86-64 and touch no memory.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Nanoseconds since the first call, on machines without a known time stamp counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks of [`now`] per second.
pub fn frequency_hz() -> f64 {
    static FREQUENCY_HZ: OnceLock<f64> = OnceLock::new();
    *FREQUENCY_HZ.get_or_init(|| {
        let (start, start_ticks) = (Instant::now(), now());
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (ticks, elapsed) = (now() - start_ticks, start.elapsed());
        ticks as f64 / elapsed.as_secs_f64()
    })
}
