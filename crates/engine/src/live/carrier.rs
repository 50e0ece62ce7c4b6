//! Whether an interface can send.
//!
//! The kernel's flags follow a wire that goes dead or comes back up to a second late (its link watch). The driver knows at once, but answers only
//! under the kernel's lock on all interfaces. So it is asked where the flags cannot be right, or when a packet was refused, and its answer is
//! believed for a while.

use std::time::{Duration, Instant};

use crate::EngineError;
use crate::live::device::Device;

/// Whether packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// They can.
    Up,
    /// It was taken down, or there is nobody at the other end.
    Down,
}

/// How long a driver is believed that its wire is in use: that long a full queue may hide that it is dead.
const UP_AGE: Duration = Duration::from_millis(100);
/// How long an interface is taken to be down without another look: packets for one that is up again are dropped no longer than this.
pub(crate) const DOWN_AGE: Duration = Duration::from_millis(20);

/// What is known of an interface's wire.
#[derive(Default)]
pub(crate) struct Carrier {
    /// What the driver said last, and when.
    said: Option<(State, Instant)>,
    /// When it last said after a refusal that the wire is in use. What it said before a refusal is too old to explain it.
    used: Option<Instant>,
}

impl Carrier {
    /// The state of the interface. A wire that goes dead may be noticed a second later; one that comes back is at once, but for [`DOWN_AGE`].
    ///
    /// # Errors
    /// It was removed.
    pub fn look(&mut self, device: &Device) -> Result<State, EngineError> {
        let state = by_flags(device.present_flags()?);
        match state {
            Some(State::Up) if !self.is_known_dead() => Ok(State::Up),
            Some(State::Down) => Ok(State::Down),
            _ => Ok(self.ask(device, State::Down)),
        }
    }

    /// The state of the interface that refused a packet just now.
    ///
    /// # Errors
    /// It was removed.
    pub fn after_refusal(&mut self, device: &Device) -> Result<State, EngineError> {
        match by_flags(device.present_flags()?) {
            Some(State::Down) => Ok(State::Down),
            _ if self.used.is_some_and(|at| at.elapsed() < UP_AGE) => Ok(State::Up),
            state => {
                self.said = self.said.filter(|(said, _)| *said == State::Down);
                let state = self.ask(device, state.unwrap_or(State::Down));
                self.used = (state == State::Up).then(Instant::now);
                Ok(state)
            }
        }
    }

    /// Whether the driver said a moment ago that the wire is dead.
    fn is_known_dead(&self) -> bool {
        self.said.is_some_and(|(state, at)| state == State::Down && at.elapsed() < DOWN_AGE)
    }

    /// What the driver says; not all can be asked.
    fn ask(&mut self, device: &Device, otherwise: State) -> State {
        if let Some((state, at)) = self.said
            && at.elapsed() < if state == State::Up { UP_AGE } else { DOWN_AGE }
        {
            return state;
        }
        let state = match device.carrier() {
            Ok(true) => State::Up,
            Ok(false) => State::Down,
            Err(_) => otherwise,
        };
        self.said = Some((state, Instant::now()));
        state
    }
}

/// What flags say: an interface that was taken down is down. One that is not running may have begun to run a moment ago.
fn by_flags(flags: i32) -> Option<State> {
    match (flags & libc::IFF_UP != 0, flags & libc::IFF_RUNNING != 0) {
        (false, _) => Some(State::Down),
        (true, true) => Some(State::Up),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_believed_where_they_cannot_be_late() {
        assert_eq!(by_flags(libc::IFF_RUNNING), Some(State::Down));
        assert_eq!(by_flags(libc::IFF_UP | libc::IFF_RUNNING), Some(State::Up));
        assert_eq!(by_flags(libc::IFF_UP), None);
    }

    #[test]
    fn a_dead_wire_is_asked_again_soon() {
        let device = Device::open("lo").expect("every machine has it");
        let mut carrier = Carrier { said: Some((State::Down, Instant::now())), used: None };
        assert_eq!(carrier.after_refusal(&device).ok(), Some(State::Down));
        std::thread::sleep(DOWN_AGE);
        // Who asks for the flags alone, and who asks the driver.
        let expected = if device.carrier().unwrap_or(true) { State::Up } else { State::Down };
        assert_eq!((carrier.look(&device).ok(), carrier.after_refusal(&device).ok()), (Some(expected), Some(expected)));
    }
}
