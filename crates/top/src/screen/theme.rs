//! Colours, and what takes their place where there are none.

use ratatui::style::{Color, Modifier, Style};

/// What a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing special.
    Plain,
    /// A name or a number that is looked for.
    Bold,
    /// What matters less.
    Dim,
    /// All is well.
    Good,
    /// Attention.
    Warn,
    /// Something is wrong.
    Bad,
    /// The first line, and questions.
    Bar,
}

/// Which styles are used.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Whether colours are used.
    pub has_colour: bool,
}

impl Theme {
    /// The style of a role.
    pub fn style(self, role: Role) -> Style {
        let plain = Style::new();
        if !self.has_colour {
            return match role {
                Role::Plain | Role::Dim | Role::Good => plain,
                Role::Bold | Role::Warn | Role::Bad => plain.add_modifier(Modifier::BOLD),
                Role::Bar => plain.add_modifier(Modifier::REVERSED),
            };
        }
        match role {
            Role::Plain => plain,
            Role::Bold => plain.add_modifier(Modifier::BOLD),
            Role::Dim => plain.fg(Color::DarkGray),
            Role::Good => plain.fg(Color::Green),
            Role::Warn => plain.fg(Color::Yellow),
            Role::Bad => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
            Role::Bar => plain.fg(Color::White).bg(Color::Blue).add_modifier(Modifier::BOLD),
        }
    }
}
