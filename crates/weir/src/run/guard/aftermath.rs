//! What is to be done when Weir has ended: by itself if it was told to end, by its guard if not.

use super::word::Word;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};
use weir_engine::EngineError;
use weir_engine::live::Interfaces;
use weir_engine::live::bypass::Bypass;
use weir_engine::live::link::LinkSwitch;
use weir_policy::ir::OnExit;

/// How long the kernel may take to let go of what a process had attached.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(1);

/// What is to be done.
pub(super) struct Aftermath {
    bypass: Bypass,
    /// Why there can be no bypass, if there cannot.
    no_bypass: Option<String>,
    /// `None`: the link stays as it is.
    on_exit: Option<OnExit>,
    /// Whether everything passes already.
    open: bool,
    /// Interfaces to be put up.
    down: BTreeSet<String>,
}

impl Aftermath {
    /// Nothing yet.
    pub fn new(interfaces: &Interfaces) -> Self {
        let bypass = Bypass::between(interfaces);
        Aftermath { bypass, no_bypass: None, on_exit: None, open: false, down: BTreeSet::new() }
    }

    /// That the link is as it was before. `on_exit` is what the first policy will want.
    pub fn found(interfaces: &Interfaces, on_exit: OnExit) -> Result<Self, Failure> {
        let mut aftermath = Self::new(interfaces);
        match aftermath.bypass.stands() {
            Ok(true) => aftermath.on_exit = Some(OnExit::Forward),
            Ok(false) => {}
            Err(foreign @ EngineError::ForeignXdp { .. }) if on_exit == OnExit::Forward => return Err(foreign.into()),
            // An engine that needs the place will say so itself.
            Err(EngineError::ForeignXdp { .. }) => {}
            // Ports of an engine that does without the kernel.
            Err(error) => aftermath.no_bypass = Some(error.to_string()),
        }
        Ok(aftermath)
    }

    /// Returns whether that is new.
    pub fn heed(&mut self, word: &Word) -> bool {
        match word {
            Word::Forward => self.on_exit.replace(OnExit::Forward) != Some(OnExit::Forward),
            Word::Block => self.on_exit.replace(OnExit::Block) != Some(OnExit::Block),
            Word::TakenDown(interface) => self.down.insert(interface.clone()),
            Word::PutUp(interface) => self.down.remove(interface),
            Word::Goodbye => true,
        }
    }

    /// All that was heeded.
    pub fn words(&self) -> Vec<Word> {
        let down = self.down.iter().map(|interface| Word::TakenDown(interface.clone()));
        self.on_exit.map(Word::from).into_iter().chain(down).collect()
    }

    /// Interfaces to be put up.
    pub fn down(&self) -> Vec<String> {
        self.down.iter().cloned().collect()
    }

    /// Why everything shall pass, and cannot.
    pub fn cannot_forward(&self) -> Option<&str> {
        self.no_bypass.as_deref().filter(|_| self.on_exit == Some(OnExit::Forward))
    }

    /// Nothing passes by any more.
    pub fn lift_bypass(&self) -> Result<(), Failure> {
        self.bypass.lift().map(drop).map_err(Failure::from)
    }

    /// Lets everything pass, if that is how it ends. Engines with a program of their own on the interfaces have to let go of them first.
    pub fn open_early(&mut self) {
        if self.on_exit == Some(OnExit::Forward) && self.no_bypass.is_none() {
            // What fails now is tried again in the end.
            self.open = self.forward().is_ok();
        }
    }

    /// Does it.
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
                // What Weir had attached goes some moments after its process.
                Err(EngineError::ForeignXdp { .. }) if start.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => return Err(Failure::Runtime(format!("on-exit forward: {error}"))),
                Ok(generic) => {
                    for interface in generic {
                        eprintln!(
                            "weir: the bypass of {interface} runs in the kernel, not in the driver, which is slower"
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
        let mut aftermath = Aftermath::found(&interfaces, OnExit::Forward).expect("nobody's program stands there");
        assert_eq!((aftermath.words(), aftermath.cannot_forward()), (vec![], None));
        assert!(aftermath.heed(&Word::Forward) && !aftermath.heed(&Word::Forward));
        assert!(aftermath.cannot_forward().expect("there is a reason").contains("interface weir-none"));
        assert!(aftermath.heed(&Word::TakenDown("weir-none".to_owned())));
        assert_eq!(aftermath.words(), [Word::Forward, Word::TakenDown("weir-none".to_owned())]);
        aftermath.open_early();
        let missing = aftermath.carry_out().expect_err("it cannot be put up").to_string();
        assert!(missing.contains("weir-none"), "{missing}");
        assert!(aftermath.heed(&Word::PutUp("weir-none".to_owned())) && aftermath.heed(&Word::Block));
        assert!(aftermath.carry_out().is_ok() && aftermath.cannot_forward().is_none());
    }
}
