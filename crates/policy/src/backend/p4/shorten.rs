//! Shortens the paths through the lines of a program, without a change of what it does.
//!
//! The parser says what it found in metadata, and the steps behind it ask. Along one path much of it is known: a packet
//! with UDP ports is neither ARP nor malformed. Three passes use that. Jumps go forward, so one walk over the lines sees
//! every line after all lines that lead to it.
//!
//! * Answers: what an object answered is read in its mailbox, as long as the object is not called again.
//! * Known values: a jump whose condition is known, or that leads to one, goes where the condition leads.
//! * Unread values: an assignment of metadata that no line behind it reads is dropped.

use super::lines::{Line, Lines};
use std::collections::{BTreeMap, BTreeSet};

/// Most values of a place that are followed.
const VALUES_MAX: usize = 4;

/// What is known at a line: the values that metadata can have, and the fields of mailboxes that it is a copy of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    values: BTreeMap<String, BTreeSet<u64>>,
    copies: BTreeMap<String, String>,
}

impl Known {
    fn forget(&mut self, place: &str) {
        self.values.remove(place);
        self.copies.remove(place);
    }

    /// What is known if either path was taken.
    fn join(&mut self, other: &Known) {
        self.copies.retain(|place, from| other.copies.get(place) == Some(from));
        let values = std::mem::take(&mut self.values);
        for (place, mut known) in values {
            let Some(also) = other.values.get(&place) else { continue };
            known.extend(also);
            if known.len() <= VALUES_MAX {
                self.values.insert(place, known);
            }
        }
    }

    /// What is known after a line, besides the outcome of a jump.
    fn pass(&mut self, line: &Line) {
        let words: Vec<&str> = line.word.split(' ').collect();
        match words[..] {
            ["mov", to, from] if to.starts_with("m.") => {
                self.forget(to);
                if let Some(number) = number(from) {
                    self.values.insert(to.to_owned(), [number].into());
                } else if from.starts_with("e.") {
                    self.copies.insert(to.to_owned(), from.to_owned());
                }
            }
            ["extern", call] => {
                let mailbox = call.trim_end_matches("run");
                self.copies.retain(|_, from| !from.starts_with(mailbox));
            }
            [_, to, ..] => {
                self.forget(to);
                self.copies.retain(|_, from| from != to);
            }
            _ => {}
        }
    }
}

/// A constant operand.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The condition of a jump that compares metadata with a number: its place and which values jump.
fn condition(line: &Line) -> Option<(&str, impl Fn(u64) -> bool + use<>)> {
    let jumps: fn(u64, u64) -> bool = match line.word.as_str() {
        "jmpeq" => |value, number| value == number,
        "jmpneq" => |value, number| value != number,
        "jmplt" => |value, number| value < number,
        "jmpgt" => |value, number| value > number,
        _ => return None,
    };
    let (place, with) = line.operands.split_once(' ')?;
    let with = number(with)?;
    place.starts_with("m.").then_some((place, move |value| jumps(value, with)))
}

/// What is known behind a conditional jump that is taken or not; `None` if that cannot happen.
fn outcome(line: &Line, known: &Known, taken: bool) -> Option<Known> {
    let mut known = known.clone();
    let Some((place, jumps)) = condition(line) else { return Some(known) };
    if let Some(values) = known.values.get_mut(place) {
        values.retain(|&value| jumps(value) == taken);
        return (!values.is_empty()).then_some(known);
    }
    if (line.word == "jmpeq") == taken && matches!(line.word.as_str(), "jmpeq" | "jmpneq") {
        let with = line.operands.split_once(' ').and_then(|(_, with)| number(with))?;
        known.values.insert(place.to_owned(), [with].into());
    }
    Some(known)
}

fn merge(into: &mut Option<Known>, known: Option<Known>) {
    match (&mut *into, known) {
        (_, None) => {}
        (Some(before), Some(known)) => before.join(&known),
        (None, known) => *into = known,
    }
}

/// Whether control leaves a line only by its jump, or ends there.
fn ends(line: &Line) -> bool {
    line.word == "jmp" || line.word.starts_with("tx ")
}

impl Lines {
    /// Runs all passes, until they find nothing more.
    pub(super) fn shorten(&mut self) {
        while self.follow() {}
        while self.drop_unread() {}
    }

    /// Reads answers in mailboxes and leads jumps by what is known. Returns whether any jump leads elsewhere now.
    fn follow(&mut self) -> bool {
        let mut at: Vec<Option<Known>> = vec![None; self.lines.len() + 1];
        at[0] = Some(Known::default());
        let mut changed = false;
        for index in 0..self.lines.len() {
            let Some(mut known) = at[index].take() else { continue };
            self.lines[index].read_answers(&known);
            let Some(label) = self.lines[index].target else {
                let line = &self.lines[index];
                known.pass(line);
                if !ends(line) {
                    merge(&mut at[index + 1], Some(known));
                }
                continue;
            };
            let (before, line) = (self.place(label), &self.lines[index]);
            let taken = outcome(line, &known, true);
            let (not_taken, is_known) = match ends(line) {
                true => (None, false),
                false => (outcome(line, &known, false), condition(line).is_some()),
            };
            // A jump that is never taken leads to the next line.
            let to = taken.as_ref().map_or(index + 1, |known| self.leads(before, known));
            if is_known && (taken.is_none() || not_taken.is_none()) {
                self.lines[index].word = "jmp".to_owned();
                self.lines[index].operands.clear();
                changed = true;
            }
            if to != before {
                self.lines[index].target = Some(self.label_at(to));
                changed = true;
            }
            merge(&mut at[to], taken.or_else(|| not_taken.clone()));
            merge(&mut at[index + 1], not_taken);
        }
        changed
    }

    /// The line to which jumps lead from another one.
    fn leads(&self, mut index: usize, known: &Known) -> usize {
        while let Some(line) = self.lines.get(index) {
            let Some(label) = line.target else { break };
            let jumps = line.word == "jmp" || outcome(line, known, false).is_none();
            let stays = condition(line).is_some() && outcome(line, known, true).is_none();
            match (jumps, stays) {
                (true, _) => index = self.place(label),
                (_, true) => index += 1,
                _ => break,
            }
        }
        index
    }

    /// Drops assignments of metadata that no line reads. Returns whether there were any.
    fn drop_unread(&mut self) -> bool {
        let mut reads: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); self.lines.len() + 1];
        let mut unread = vec![false; self.lines.len()];
        for index in (0..self.lines.len()).rev() {
            let line = &self.lines[index];
            let mut live = if ends(line) { BTreeSet::new() } else { reads[index + 1].clone() };
            live.extend(line.target.iter().flat_map(|&label| reads[self.place(label)].iter().copied()));
            unread[index] = line.assigns().is_some_and(|to| !live.contains(to));
            if !unread[index] {
                live.extend(line.reads().filter(|place| place.starts_with("m.")));
                if let Some(to) = line.assigns().filter(|_| line.word.starts_with("mov ")) {
                    live.remove(to);
                }
            }
            reads[index] = live;
        }
        let found = unread.contains(&true);
        if found {
            self.remove(&unread, &vec![true; self.lines.len()]);
        }
        found
    }
}

impl Line {
    /// The metadata that the line assigns, with no other effect.
    fn assigns(&self) -> Option<&str> {
        let (word, operands) = self.word.split_once(' ')?;
        let is_assignment = matches!(word, "mov" | "add" | "sub" | "and" | "or" | "shl" | "shr");
        let to = operands.split(' ').next()?;
        (is_assignment && to.starts_with("m.")).then_some(to)
    }

    /// The operands that are read. What an assignment changes is not.
    fn reads(&self) -> impl Iterator<Item = &str> {
        let skipped = if self.word.starts_with("rx ") || self.assigns().is_some() { 2 } else { 1 };
        self.word.split(' ').skip(skipped).chain(self.operands.split(' '))
    }

    /// Reads copies of answers in the mailboxes.
    fn read_answers(&mut self, known: &Known) {
        let original = |operand: &str| known.copies.get(operand).cloned().unwrap_or_else(|| operand.to_owned());
        if self.target.is_some() {
            self.operands = self.operands.split(' ').map(original).collect::<Vec<_>>().join(" ");
        } else if let ["mov", to, from] = self.word.split(' ').collect::<Vec<_>>()[..] {
            self.word = format!("mov {to} {}", original(from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines as text, shortened.
    fn shortened(program: &[&str]) -> Vec<String> {
        let mut lines = Lines::default();
        let end = lines.named("end");
        let ask = lines.named("ask");
        for line in program {
            match *line {
                "ask:" => lines.bind(ask),
                "end:" => lines.bind(end),
                _ => match line.split(' ').collect::<Vec<_>>()[..] {
                    [word, "ASK", ref operands @ ..] => lines.jump(word, ask, &operands.join(" ")),
                    [word, "END", ref operands @ ..] => lines.jump(word, end, &operands.join(" ")),
                    _ => lines.line((*line).to_owned()),
                },
            }
        }
        lines.finish().into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn what_is_known_on_a_path_is_not_asked() {
        let program = [
            "rx m.port",
            "mov m.x 0x0",
            "jmpeq ASK h.a.b 0x7",
            "mov m.x 0x1",
            "ask:",
            "jmpeq END m.x 0x0",
            "mov h.a.b 0x2",
            "end:",
            "tx 0",
        ];
        assert_eq!(shortened(&program), ["rx m.port", "jmpeq END h.a.b 0x7", "mov h.a.b 0x2", "END : tx 0"]);
    }

    #[test]
    fn a_value_that_depends_on_the_path_is_asked() {
        let program = [
            "rx m.port",
            "mov m.x 0x0",
            "jmpeq ASK h.a.b 0x7",
            "mov m.x h.a.b",
            "ask:",
            "extern e.o.run",
            "jmpeq END m.x 0x0",
            "mov h.a.b 0x2",
            "end:",
            "tx 0",
        ];
        let expected = program.iter().filter(|line| !line.ends_with(':'));
        let named = |line: &&str| match *line {
            "extern e.o.run" => "ASK : extern e.o.run".to_owned(),
            "tx 0" => "END : tx 0".to_owned(),
            line => line.to_owned(),
        };
        assert_eq!(shortened(&program), expected.map(named).collect::<Vec<_>>());
    }

    #[test]
    fn answers_are_read_where_they_are_until_the_object_is_called_again() {
        let program = [
            "rx m.port",
            "extern e.o.run",
            "mov m.f e.o.found",
            "jmpeq END m.f 0x0",
            "extern e.o.run",
            "mov h.a.b m.f",
            "end:",
            "tx 0",
        ];
        let expected = [
            "rx m.port",
            "extern e.o.run",
            "mov m.f e.o.found",
            "jmpeq END e.o.found 0x0",
            "extern e.o.run",
            "mov h.a.b m.f",
            "END : tx 0",
        ];
        assert_eq!(shortened(&program), expected);
    }
}
