//! Tracking in memory: segments of established connections at random, beside the bare access to the same table
//! (`bare.c`), and the same policy without tracking.

use super::filters::policy;
use super::segments::Segment;
use crate::row::Row;
use std::sync::Arc;
use weir_abi::{BURST_MAX, Verdict};
use weir_command::failure::Failure;
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::traffic::SplitMix;
use weir_engine::{Bound, Filter, NativeFilter, tsc};
use weir_instruments::ring;
use weir_state::BoundState;
use weir_state::flow_store::FlowBinding;
use weir_state::flows::FlowTable;

/// The bare access.
const BARE: &str = include_str!("bare.c");
/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
/// Share of the table's slots that connections take.
const FILLED_PERCENT: u64 = 80;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Numbers of connections.
    pub connections: &'static [u32],
    /// Number of packets of a turn.
    pub packets: usize,
    /// Number of turns of each filter.
    pub rounds: usize,
}

/// Measures all numbers of connections.
///
/// # Errors
/// Files cannot be written, or there is no clang.
pub fn rows(effort: Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for &connections in effort.connections {
        rows.extend(established(connections, effort)?);
    }
    Ok(rows)
}

/// The filters that take turns, all with the same flows.
struct Filters {
    tracking: NativeFilter,
    bare: NativeFilter,
    stateless: NativeFilter,
    table: Arc<FlowTable>,
}

impl Filters {
    fn load(connections: u32) -> Result<Self, Failure> {
        let size = (u64::from(connections) * 100).div_ceil(FILLED_PERCENT);
        let settings = format!("tracking {{ size {size} }}\n");
        let tracked = policy(&format!(
            "{settings}upstream {{ ct state established accept; accept }}\ndownstream {{ accept }}\n"
        ))?;
        let tracking = tracked.native()?;
        let table = tracking.flow_table().expect("the policy tracks").clone();
        let shape = weir_engine::ProgramShape { chains: vec!["upstream".to_owned()], ..tracked.shape() };
        let object = Clang::find()?.native("bare", BARE, Cpu::Native)?.object;
        let state = BoundState { flows: FlowBinding::alone(table.clone()), ..BoundState::default() };
        let bare = NativeFilter::load("bare", &object, &shape, Bound { state, ..Bound::default() })?;
        let stateless = policy("upstream { tcp flags ack accept; drop }\ndownstream { accept }\n")?.native()?;
        Ok(Filters { tracking, bare, stateless, table })
    }

    /// Opens connections from the first to the last one.
    fn open(&mut self, connections: u32, ring: &mut FrameSet) -> Result<(), Failure> {
        let mut verdicts = [Verdict(0); BURST_MAX];
        for first in (0..connections).step_by(BURST_MAX) {
            for segment in [Segment::SYN, Segment::SYN_ACK, Segment::ACK] {
                for (index, connection) in (first..connections.min(first + BURST_MAX as u32)).enumerate() {
                    segment.write(ring.frame_mut(index), connection);
                }
                let chain = usize::from(segment.from_server);
                self.tracking.decide(chain, &ring.burst(0), &mut verdicts)?;
            }
        }
        Ok(())
    }
}

/// Segments of established connections.
fn established(connections: u32, effort: Effort) -> Result<Vec<Row>, Failure> {
    let mut filters = Filters::load(connections)?;
    let mut ring = Segment::ring(RING);
    filters.open(connections, &mut ring)?;
    let mut flows = 0;
    filters.table.each(&mut |_, _| flows += 1);
    let mut random = SplitMix::new(17);
    let mut turns: [Vec<f64>; 3] = Default::default();
    // The first round warms up: pages of the table, and the core's clock.
    for round in 0..=effort.rounds {
        let Filters { tracking, bare, stateless, .. } = &mut filters;
        for (filter, turns) in [tracking, bare, stateless].into_iter().zip(&mut turns) {
            let write = |packet: &mut [u8]| Segment::ACK.write(packet, random.below(connections.into()) as u32);
            let cycles = ring::measure(filter, 0, &mut ring, effort.packets, write)?;
            if round > 0 {
                turns.push(cycles);
            }
        }
    }
    let row = Row::default()
        .of("part", "memory")
        .of("engine", "native")
        .of("traffic", "established")
        .of("connections", &connections.to_string());
    let row = row.number("flows", f64::from(flows));
    let ratio: Vec<f64> = turns[0].iter().zip(&turns[1]).map(|(tracked, bare)| tracked / bare).collect();
    let names = ["tracking", "bare access", "stateless"];
    let mut rows = Vec::new();
    for (name, turns) in names.into_iter().zip(turns) {
        let cycles = Spread::of(turns).expect("each had its turns");
        let row = row.clone().of("policy", name).spread("cycles_per_packet", cycles);
        rows.push(row.spread("ns_per_packet", cycles.scaled(1e9 / tsc::frequency_hz())));
    }
    rows[0] = rows[0].clone().spread("ratio_to_bare", Spread::of(ratio).expect("each had its turns"));
    Ok(rows)
}
