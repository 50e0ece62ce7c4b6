//! What the screen asks before it changes something.

use crate::keys::Command;

/// A question that `y` answers with yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The text.
    pub text: String,
    /// What is done then.
    pub command: Command,
}

impl Question {
    /// The question before a command.
    pub fn before(command: Command, trial: Option<&str>) -> Self {
        let text = match command {
            Command::Accept(attack) => format!("Carry out what waits against attack {attack}?"),
            Command::Dismiss(attack) => {
                format!("End the actions against attack {attack} for good?")
            }
            Command::Confirm => "Keep the policy that is on trial?".to_owned(),
            Command::Rollback => format!("Roll back to {}?", trial.unwrap_or("the previous policy")),
        };
        Question { text, command }
    }
}
