//! How full the table of flows is: for the status, and a message when room gets short.
//!
//! Closing connections make room by themselves, so they do not count.

use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};
use crate::requests;
use std::time::{Duration, Instant};
use weir_control::FlowsStatus;
use weir_policy::ir::Program;
use weir_state::SharedState;

/// Interval of looks at the table, which reads all its tags.
const INTERVAL: Duration = Duration::from_secs(5);
/// Percent of the table from which on room is short.
const SHORT_PERCENT: u64 = 80;
/// Percent of the table below which it is no longer.
const ENOUGH_PERCENT: u64 = 70;

/// The room in the table of the program's flows; `None` if it does not track. `refused` are the packets that found
/// none.
pub fn room(program: &Program, shared: &SharedState, refused: u64) -> Option<FlowsStatus> {
    let table = shared.flows(&program.flow_needs()?)?;
    let [proven, embryonic, unproven, closing] = table.classes();
    let used = proven + embryonic + unproven;
    let size = table.slot_count() as u64;
    Some(FlowsStatus { size, used, closing, is_short: used * 100 >= size * SHORT_PERCENT, refused })
}

/// What was said about the room.
#[derive(Default)]
pub struct RoomWatch {
    looked: Option<Instant>,
    is_short: bool,
    refused: u64,
}

impl RoomWatch {
    /// Whether it is time to look.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.looked.is_none_or(|looked| now.duration_since(looked) >= INTERVAL);
        if is_due {
            self.looked = Some(now);
        }
        is_due
    }

    /// What is to be said now: when room becomes short, when it is enough again, and with the first refused packet
    /// since then.
    pub fn see(&mut self, room: &FlowsStatus) -> Vec<String> {
        let FlowsStatus { size, used, is_short, refused, .. } = *room;
        let mut said = Vec::new();
        if is_short && !self.is_short {
            said.push(format!("the table of flows is {} % full: {used} of {size}", used * 100 / size.max(1)));
            self.is_short = true;
        }
        if refused > self.refused && self.refused == 0 {
            said.push(format!("the table of flows is full: packets are refused (state-full): {refused} so far"));
            self.refused = refused;
        }
        if self.is_short && used * 100 < size * ENOUGH_PERCENT {
            let refused =
                if refused > 0 { format!("; {refused} packets were refused since the start") } else { String::new() };
            said.push(format!("the table of flows has room again: {used} of {size}{refused}"));
            self.is_short = false;
        }
        said
    }
}

impl<L: Loader> Part<L> for RoomWatch {
    fn step(&mut self, running: &Running<'_, L>) {
        if self.is_due(Instant::now())
            && let Some(flows) = requests::flow_room(&running.door.controller, running.door.loader.shared())
        {
            self.see(&flows).iter().for_each(|said| warning!("weir: {said}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(used: u64, refused: u64) -> FlowsStatus {
        FlowsStatus { size: 100, used, closing: 0, is_short: used >= SHORT_PERCENT, refused }
    }

    #[test]
    fn short_room_and_the_first_refusal_are_said_once() {
        let mut watch = RoomWatch::default();
        assert_eq!(watch.see(&room(79, 0)), [""; 0]);
        assert_eq!(watch.see(&room(80, 0)), ["the table of flows is 80 % full: 80 of 100"]);
        assert_eq!(watch.see(&room(75, 0)), [""; 0], "not again at each step around the threshold");
        assert_eq!(watch.see(&room(85, 0)), [""; 0]);
        let full = watch.see(&room(100, 7));
        assert_eq!(full, ["the table of flows is full: packets are refused (state-full): 7 so far"]);
        assert_eq!(watch.see(&room(100, 9000)), [""; 0]);
        let again = watch.see(&room(69, 9000));
        assert_eq!(again, ["the table of flows has room again: 69 of 100; 9000 packets were refused since the start"]);
        assert_eq!(watch.see(&room(80, 9000)).len(), 1);
    }

    #[test]
    fn looks_have_an_interval() {
        let (mut watch, now) = (RoomWatch::default(), Instant::now());
        assert!(watch.is_due(now) && !watch.is_due(now) && watch.is_due(now + INTERVAL));
    }
}
