//! What comes from the operator: keys, and the commands that a question stands before.

/// A key, apart from the terminal that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Ctrl-C.
    Interrupt,
}

/// A request to a running Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Carries out the actions against an attack that wait.
    Accept(u32),
    /// Ends the actions against an attack.
    Dismiss(u32),
    /// Ends the trial and keeps the policy.
    Confirm,
    /// Rolls back.
    Rollback,
}

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
