//! What happens to the screen.

use crate::Snapshot;
use crate::input::{Command, Key};
use crate::model::Model;
use std::time::Duration;

/// What happens to the screen.
#[derive(Clone, Debug)]
pub enum Event {
    /// A snapshot has come.
    Snapshot(Box<Snapshot>),
    /// A key was pressed.
    Key(Key),
    /// Weir has answered a command, or refused it.
    Answered(Result<String, String>),
    /// The recording is over.
    EndOfRecording,
    /// Time has passed.
    Tick,
}

impl Model {
    /// Takes an event at a time of any monotonic clock. Returns a command for Weir that the operator has confirmed.
    pub fn update(&mut self, event: Event, now: Duration) -> Option<Command> {
        self.set_time(now);
        match event {
            Event::Snapshot(snapshot) => self.take(*snapshot),
            Event::Key(key) => return self.press(key),
            Event::Answered(Ok(text)) => self.say(&text),
            Event::Answered(Err(problem)) => self.tell(&problem, true),
            Event::EndOfRecording => self.is_over = true,
            Event::Tick => {}
        }
        None
    }
}
