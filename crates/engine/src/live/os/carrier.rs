//! Determines whether an interface can send.
//!
//! The kernel's flags follow the state of a link up to a second late (its link watch). The driver knows at once, but
//! answers only under the kernel's lock of all interfaces. So the driver is asked only if the flags can be out of date
//! or a packet was refused. Its answer is cached for a while.

use std::time::{Duration, Instant};

use crate::EngineError;
use crate::live::os::device::Device;

/// Whether packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Packets can be sent.
    Up,
    /// The interface is down, or its link is.
    Down,
}

/// How long the answer "up" is cached. For that long, a full queue may hide a dead link.
const UP_AGE: Duration = Duration::from_millis(100);
/// How long an interface is treated as down without another check. Packets are dropped for at most this long after it
/// is up again.
pub(crate) const DOWN_AGE: Duration = Duration::from_millis(20);

/// What is known about the link of an interface.
#[derive(Default)]
pub(crate) struct Carrier {
    /// The driver's last answer, and when it gave it.
    answer: Option<(State, Instant)>,
    /// When the driver last answered "up" after a refusal. Earlier answers do not explain a refusal.
    used: Option<Instant>,
}

impl Carrier {
    /// The state of the interface. A dead link may be noticed a second late; a link that comes back is noticed within
    /// [`DOWN_AGE`].
    ///
    /// # Errors
    /// The interface was removed.
    pub fn look(&mut self, device: &Device) -> Result<State, EngineError> {
        let state = by_flags(device.present_flags()?);
        match state {
            Some(State::Up) if !self.is_known_dead() => Ok(State::Up),
            Some(State::Down) => Ok(State::Down),
            _ => Ok(self.ask(device, State::Down)),
        }
    }

    /// The state of an interface that has just refused a packet.
    ///
    /// # Errors
    /// The interface was removed.
    pub fn after_refusal(&mut self, device: &Device) -> Result<State, EngineError> {
        match by_flags(device.present_flags()?) {
            Some(State::Down) => Ok(State::Down),
            _ if self.used.is_some_and(|at| at.elapsed() < UP_AGE) => Ok(State::Up),
            state => {
                self.answer = self.answer.filter(|(answer, _)| *answer == State::Down);
                let state = self.ask(device, state.unwrap_or(State::Down));
                self.used = (state == State::Up).then(Instant::now);
                Ok(state)
            }
        }
    }

    /// Whether the driver recently answered "down".
    fn is_known_dead(&self) -> bool {
        self.answer.is_some_and(|(state, at)| state == State::Down && at.elapsed() < DOWN_AGE)
    }

    /// The driver's answer, or `otherwise` if it gives none.
    fn ask(&mut self, device: &Device, otherwise: State) -> State {
        if let Some((state, at)) = self.answer
            && at.elapsed() < if state == State::Up { UP_AGE } else { DOWN_AGE }
        {
            return state;
        }
        let state = match device.carrier() {
            Ok(true) => State::Up,
            Ok(false) => State::Down,
            Err(_) => otherwise,
        };
        self.answer = Some((state, Instant::now()));
        state
    }
}

/// The state by flags alone. An interface that is not up is down. One that is not running may have started a moment
/// ago, so this returns `None`.
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
        let mut carrier = Carrier { answer: Some((State::Down, Instant::now())), used: None };
        assert_eq!(carrier.after_refusal(&device).ok(), Some(State::Down));
        std::thread::sleep(DOWN_AGE);
        // Compares the answers by flags alone with the driver's.
        let expected = if device.carrier().unwrap_or(true) { State::Up } else { State::Down };
        assert_eq!((carrier.look(&device).ok(), carrier.after_refusal(&device).ok()), (Some(expected), Some(expected)));
    }
}
