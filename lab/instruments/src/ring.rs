//! Measures the cost of filters on packets that change, in cycles per packet.

use weir_abi::{BURST_MAX, Verdict};
use weir_engine::frame_set::FrameSet;
use weir_engine::{EngineError, Filter, FrameBurst, tsc};

use crate::quiet::Stretches;

/// Number of packets of a stretch.
const STRETCH: usize = 2048;

/// Measures a filter on a ring of frames that change, as in the receive ring of a network card. `write` writes each
/// frame before it is decided; this time is not measured. Returns TSC cycles per packet for `packets` packets or more,
/// after as many to warm up. Stretches of a shared core do not count ([`crate::quiet`]).
///
/// # Errors
/// The filter fails.
///
/// # Panics
/// If the ring is empty or `packets` is 0.
pub fn measure(
    filter: &mut dyn Filter,
    chain: usize,
    ring: &mut FrameSet,
    packets: usize,
    write: impl FnMut(&mut [u8]),
) -> Result<f64, EngineError> {
    measure_by(|burst, verdicts| filter.decide(chain, burst, verdicts), ring, packets, write)
}

/// Like [`measure`], with any function that decides a burst.
///
/// # Errors
/// The function fails.
///
/// # Panics
/// If the ring is empty or `packets` is 0.
pub fn measure_by(
    mut decide: impl FnMut(&FrameBurst<'_>, &mut [Verdict]) -> Result<(), EngineError>,
    ring: &mut FrameSet,
    packets: usize,
    mut write: impl FnMut(&mut [u8]),
) -> Result<f64, EngineError> {
    assert!(!ring.is_empty() && packets > 0, "nothing to measure");
    let mut verdicts = [Verdict(0); BURST_MAX];
    let bursts = ring.len().div_ceil(BURST_MAX);
    let mut next = 0;
    // Decides as many bursts as have that many packets. Returns their cycles, and their number of packets.
    let mut stretch = |packets: usize| {
        let (mut cycles, mut decided) = (0, 0);
        while decided < packets {
            let first = next * BURST_MAX;
            (first..ring.len().min(first + BURST_MAX)).for_each(|index| write(ring.frame_mut(index)));
            // Workers give a burst one time.
            let burst = ring.burst(next);
            let burst = burst.received_at(burst.now_ns());
            let start = tsc::now();
            decide(&burst, &mut verdicts)?;
            cycles += tsc::now() - start;
            decided += burst.len();
            next = (next + 1) % bursts;
        }
        std::hint::black_box(&verdicts);
        Ok::<_, EngineError>((cycles as f64, decided))
    };
    stretch(packets)?;
    let mut stretches = Stretches::begin(packets);
    while !stretches.is_enough() {
        let (cycles, decided) = stretch(packets.min(STRETCH))?;
        stretches.end(cycles, decided);
    }
    Ok(stretches.cost_per_packet())
}
