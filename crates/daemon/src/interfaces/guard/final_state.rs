//! The final state of the link after Weir has ended. Weir itself sets it at a normal end; otherwise its guard does.

use super::message::Message;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::EngineError;
use weir_engine::live::Interfaces;
use weir_engine::live::os::link::LinkSwitch;
use weir_engine::live::programs::bypass::Bypass;
use weir_policy::ir::OnExit;

/// Longest wait until the kernel has detached the programs of an ended process.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of checking that.
const PAUSE: Duration = Duration::from_millis(1);

/// The final state of the link.
pub(super) struct FinalState {
    bypass: Bypass,
    /// Why a bypass is impossible, if it is.
    no_bypass: Option<String>,
    /// `None`: the link is not changed.
    on_exit: Option<OnExit>,
    /// Whether the bypass is active already.
    open: bool,
    /// Interfaces that Weir has taken down and that must be put up.
    down: BTreeSet<String>,
}

impl FinalState {
    /// No change of the link.
    pub fn new(interfaces: &Interfaces) -> Self {
        let bypass = Bypass::between(interfaces);
        FinalState { bypass, no_bypass: None, on_exit: None, open: false, down: BTreeSet::new() }
    }

    /// The current state of the link as the final state. `on_exit` is the setting of the first policy.
    pub fn found(interfaces: &Interfaces, on_exit: OnExit) -> Result<Self, Failure> {
        let mut final_state = Self::new(interfaces);
        match final_state.bypass.stands() {
            Ok(true) => final_state.on_exit = Some(OnExit::Forward),
            Ok(false) => {}
            Err(foreign @ EngineError::ForeignXdp { .. }) if on_exit == OnExit::Forward => return Err(foreign.into()),
            // If the engine needs to attach a program, it reports the foreign one itself.
            Err(EngineError::ForeignXdp { .. }) => {}
            // The interfaces belong to an engine without the kernel.
            Err(error) => final_state.no_bypass = Some(error.to_string()),
        }
        Ok(final_state)
    }

    /// The final state that the program before this one in its process has described by messages. Its programs may be
    /// on the interfaces.
    pub fn continued(interfaces: &Interfaces, messages: &[Message]) -> Self {
        let mut final_state = Self::new(interfaces);
        match final_state.bypass.stands() {
            Ok(_) | Err(EngineError::ForeignXdp { .. }) => {}
            Err(error) => final_state.no_bypass = Some(error.to_string()),
        }
        messages.iter().for_each(|message| _ = final_state.apply(message));
        final_state
    }

    /// Applies a message. Returns whether it changed anything.
    pub fn apply(&mut self, message: &Message) -> bool {
        match message {
            Message::Forward => self.on_exit.replace(OnExit::Forward) != Some(OnExit::Forward),
            Message::Block => self.on_exit.replace(OnExit::Block) != Some(OnExit::Block),
            Message::TakenDown(interface) => self.down.insert(interface.clone()),
            Message::PutUp(interface) => self.down.remove(interface),
            Message::Goodbye => true,
        }
    }

    /// Messages that describe the whole state.
    pub fn messages(&self) -> Vec<Message> {
        let down = self.down.iter().map(|interface| Message::TakenDown(interface.clone()));
        self.on_exit.map(Message::from).into_iter().chain(down).collect()
    }

    /// Interfaces that Weir has taken down and that must be put up.
    pub fn down(&self) -> Vec<String> {
        self.down.iter().cloned().collect()
    }

    /// Why a bypass is impossible, if it is.
    pub fn no_bypass(&self) -> Option<&str> {
        self.no_bypass.as_deref()
    }

    /// Why the link cannot forward, if it should.
    pub fn cannot_forward(&self) -> Option<&str> {
        self.no_bypass.as_deref().filter(|_| self.on_exit == Some(OnExit::Forward))
    }

    /// Removes the bypass.
    pub fn lift_bypass(&self) -> Result<(), Failure> {
        self.bypass.lift().map(drop).map_err(Failure::from)
    }

    /// Starts the bypass early, if `on-exit` is `forward`. Engines must have detached their programs from the
    /// interfaces.
    pub fn open_early(&mut self) {
        if self.on_exit == Some(OnExit::Forward) && self.no_bypass.is_none() {
            // A failure is ignored, because [`FinalState::carry_out`] tries again.
            self.open = self.forward().is_ok();
        }
    }

    /// Sets the final state of the link.
    pub fn carry_out(&self) -> Result<(), Failure> {
        let bypassed = match (self.on_exit, &self.no_bypass) {
            (Some(OnExit::Forward), None) if !self.open => self.forward(),
            (Some(OnExit::Block), _) => self.lift_bypass(),
            (Some(OnExit::Forward) | None, _) => Ok(()),
        };
        let mut put_up = Ok(());
        for interface in &self.down {
            put_up = put_up.and(LinkSwitch::new(interface).put_up());
        }
        bypassed.and(put_up.map_err(Failure::from))
    }

    fn forward(&self) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            match self.bypass.raise() {
                // The kernel detaches the programs of Weir a moment after its process has ended.
                Err(EngineError::ForeignXdp { .. }) if start.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => return Err(Failure::Runtime(format!("on-exit forward: {error}"))),
                Ok(generic) => {
                    for interface in generic {
                        warning!(
                            "weir: the bypass of {interface} runs in generic mode, not in the driver, which is slower"
                        );
                    }
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_the_kernel_does_not_know_have_no_bypass() {
        let of = |name: &str| vec![name.to_owned()];
        let interfaces = Interfaces { lower: of("weir-none"), upper: of("weir-nor-this"), divert: None };
        let mut final_state = FinalState::found(&interfaces, OnExit::Forward).expect("no program is attached");
        assert_eq!((final_state.messages(), final_state.cannot_forward()), (vec![], None));
        assert!(final_state.apply(&Message::Forward) && !final_state.apply(&Message::Forward));
        assert!(final_state.cannot_forward().expect("there is a reason").contains("interface weir-none"));
        assert!(final_state.apply(&Message::TakenDown("weir-none".to_owned())));
        assert_eq!(final_state.messages(), [Message::Forward, Message::TakenDown("weir-none".to_owned())]);
        final_state.open_early();
        let missing = final_state.carry_out().expect_err("it cannot be put up").to_string();
        assert!(missing.contains("weir-none"), "{missing}");
        assert!(final_state.apply(&Message::PutUp("weir-none".to_owned())) && final_state.apply(&Message::Block));
        assert!(final_state.carry_out().is_ok() && final_state.cannot_forward().is_none());
    }
}
