//! What the program alone takes to drop a packet of 1K and of 128K sources: without a driver, and while the core is not
//! shared ([`weir_instruments::quiet`]), so it says what the caches of a processor do to the rows of `growth`.

use super::blockers::{ALONE, policy_text};
use super::drops::Effort;
use super::growth::COUNTS;
use super::sources::Traffic;
use crate::data::list;
use crate::row::Row;
use crate::stream;
use std::fs;
use std::path::Path;
use weir_abi::{Reason, Target};
use weir_command::failure::Failure;
use weir_engine::Bound;
use weir_engine::measure::Spread;
use weir_engine::traffic;
use weir_engine::{Filter as _, XdpFilter};
use weir_loading::load;
use weir_state::{SharedState, UsedBy};

/// The hosts whose programs are measured.
const NAMES: [&str; 4] = ["weir-host", "weir-host-set", ALONE, "weir-host-list"];

/// The program of a host that blocks some sources. The tables live as long as it does.
struct Blocking {
    filter: XdpFilter,
    _tables: (SharedState, Bound),
}

/// Measures the named hosts that are Weir without a card.
///
/// # Errors
/// A policy cannot be compiled or loaded, or its program does not drop every packet.
pub fn rows(names: &[&'static str], attackers: &[u32], effort: Effort) -> Result<Vec<Row>, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let counts = COUNTS.map(|count| count.min(attackers.len()));
    let mut rows = Vec::new();
    for name in names.iter().copied().filter(|name| NAMES.contains(name)) {
        let [few, many] = counts.map(|count| Blocking::load(name, folder.path(), &attackers[..count], counts[1]));
        let mut programs = [few?, many?];
        for traffic in Traffic::ALL {
            let packets = counts.map(|count| traffic.packets(&attackers[..count]));
            let mut turns = [Vec::new(), Vec::new()];
            for _ in 0..effort.rounds {
                for ((program, packets), turns) in programs.iter_mut().zip(&packets).zip(&mut turns) {
                    turns.push(program.turn(packets)?);
                }
            }
            let row = Row::default().of("part", "program").of("traffic", traffic.name()).of("blocker", name);
            rows.push(to_row(row, turns));
        }
    }
    Ok(rows)
}

fn to_row(row: Row, [few, many]: [Vec<f64>; 2]) -> Row {
    let more = many.iter().zip(&few).map(|(many, few)| many - few).collect();
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("there were turns");
    row.spread("program_ns_1k", spread(few))
        .spread("program_ns_128k", spread(many))
        .spread("program_more_ns", spread(more))
}

impl Blocking {
    /// The program of a host with room for `room` sources, which blocks these.
    fn load(name: &str, folder: &Path, sources: &[u32], room: usize) -> Result<Self, Failure> {
        let (path, blocked) = (folder.join("program.weir"), folder.join("blocked.txt"));
        // A table that changes starts with the same file as a list.
        let text = policy_text(name, room).replace("dynamic;", "dynamic; file \"blocked.txt\";");
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
        fs::write(&blocked, list(sources)).map_err(|error| Failure::file(&blocked, error))?;
        let policy = load(&path)?;
        let shared = SharedState::new(UsedBy::Kernel { limits_room: None });
        let (artifact, data) = (policy.artifact()?, policy.bind(Some(&shared))?);
        let filter = stream::load(artifact.source(Target::Bpf), &artifact.shape, &data)?;
        Ok(Blocking { filter, _tables: (shared, data) })
    }

    /// Nanoseconds per packet.
    fn turn(&mut self, sources: &[u32]) -> Result<f64, Failure> {
        let before = self.decided();
        // Warms up the caches.
        stream::decide(&mut self.filter, 0, &traffic::packets_from(&[0]).burst(0), 0, sources)?;
        let cost = stream::cost(&mut self.filter, 0, sources)?;
        let (all, dropped) = self.decided();
        if all == before.0 || all - before.0 != dropped - before.1 {
            return Err(Failure::Runtime(format!(
                "weir: of {} packets {} were dropped",
                all - before.0,
                dropped - before.1
            )));
        }
        Ok(cost)
    }

    /// The packets so far, and those that the rule has dropped.
    fn decided(&self) -> (u64, u64) {
        let counters = self.filter.counters();
        let all = counters.iter().map(|counter| counter.packets).sum();
        (all, counters[usize::from(Reason::rule(0).0)].packets)
    }
}

#[cfg(test)]
mod tests {
    use super::to_row;
    use crate::row::Row;

    #[test]
    fn differences_are_of_one_round() {
        let row = to_row(Row::default(), [vec![10.0, 20.0, 12.0], vec![14.0, 24.0, 16.0]]);
        assert_eq!((row.get("program_ns_1k"), row.get("program_ns_128k")), (Some(12.0), Some(16.0)));
        assert_eq!((row.get("program_more_ns_min"), row.get("program_more_ns_max")), (Some(4.0), Some(4.0)));
    }
}
