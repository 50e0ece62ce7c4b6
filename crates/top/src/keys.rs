//! What keys do.

use crate::input::{Command, Key, Question};
use crate::model::{Model, Overlay};

/// The maximum length of a filter.
const FILTER_MAX: usize = 64;
/// Lines that a page key moves.
const PAGE: usize = 10;

impl Model {
    /// Handles a key. Returns a command that the operator has confirmed.
    pub(crate) fn press(&mut self, key: Key) -> Option<Command> {
        if key == Key::Interrupt {
            self.is_done = true;
            return None;
        }
        self.message = None;
        match self.overlay.take() {
            Some(Overlay::Ask(question)) => return self.answer(key, &question),
            Some(Overlay::Filter) => self.edit_filter(key),
            Some(Overlay::Help) => {}
            Some(Overlay::Explain { attack, scroll }) => self.explain(key, attack, scroll),
            None => self.command(key),
        }
        None
    }

    fn answer(&mut self, key: Key, question: &Question) -> Option<Command> {
        if matches!(key, Key::Char('y' | 'Y')) {
            return Some(question.command);
        }
        self.say("nothing was changed");
        None
    }

    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Enter => return,
            Key::Escape => return self.filter.clear(),
            Key::Backspace => _ = self.filter.pop(),
            Key::Char(c) if self.filter.chars().count() < FILTER_MAX && !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.selected = None;
        self.overlay = Some(Overlay::Filter);
    }

    fn explain(&mut self, key: Key, attack: u32, scroll: usize) {
        let scroll = match key {
            Key::Up | Key::Char('k') => scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => scroll + 1,
            Key::PageUp => scroll.saturating_sub(PAGE),
            Key::PageDown | Key::Char(' ') => scroll + PAGE,
            Key::Char('a' | 'd') => return self.command(key),
            _ => return,
        };
        self.overlay = Some(Overlay::Explain { attack, scroll });
    }

    fn command(&mut self, key: Key) {
        match key {
            Key::Char('q') => self.is_done = true,
            Key::Char('?' | 'h') => self.overlay = Some(Overlay::Help),
            Key::Char('/') => self.overlay = Some(Overlay::Filter),
            Key::Escape => self.filter.clear(),
            Key::Char('s') => self.order = self.order.next(),
            Key::Char('p') => self.pause(),
            Key::Up | Key::Char('k') => self.select(-1),
            Key::Down | Key::Char('j') => self.select(1),
            Key::PageUp => self.select(-(PAGE as isize)),
            Key::PageDown => self.select(PAGE as isize),
            Key::Enter | Key::Char('e') => match self.selected_attack() {
                Some(attack) => self.overlay = Some(Overlay::Explain { attack, scroll: 0 }),
                None => self.say("there is no attack to explain"),
            },
            Key::Char('a') => match self.selected_attack() {
                Some(attack) if !self.has_waiting(attack) => {
                    self.say(&format!("nothing waits against attack {attack}"))
                }
                _ => self.ask_about_attack(Command::Accept),
            },
            Key::Char('d') => self.ask_about_attack(Command::Dismiss),
            Key::Char('c') => match self.is_on_trial() {
                true => self.ask(Command::Confirm),
                false => self.say("no policy is on trial"),
            },
            Key::Char('r') => match self.rollback_target() {
                Some(_) => self.ask(Command::Rollback),
                None => self.say("there is no policy to roll back to"),
            },
            _ => {}
        }
    }

    fn ask_about_attack(&mut self, command: fn(u32) -> Command) {
        match self.selected_attack() {
            Some(attack) => self.ask(command(attack)),
            None => self.say("there is no attack"),
        }
    }

    fn ask(&mut self, command: Command) {
        if self.setup.is_recording {
            return self.say("a recording cannot be changed");
        }
        let target = self.rollback_target();
        self.overlay = Some(Overlay::Ask(Question::before(command, target.as_deref())));
    }
}
