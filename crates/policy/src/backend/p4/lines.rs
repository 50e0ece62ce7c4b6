//! Lines of instructions of SWX, with labels that are resolved at the end.

use super::fields::Meta;
use super::model::{Load, Place};
use std::collections::BTreeSet;

/// A label, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// An instruction: its word, where it jumps to, and its other operands.
pub(super) struct Line {
    pub(super) word: String,
    pub(super) target: Option<Label>,
    pub(super) operands: String,
    /// A comment in front of it.
    comment: Option<String>,
}

/// A line of a listing.
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) comment: Option<String>,
}

/// The lines so far.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<Line>,
    /// The line of each label, once it is bound.
    places: Vec<Option<usize>>,
    names: Vec<Option<String>>,
    comment: Option<String>,
}

impl Lines {
    /// A new label.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        self.names.push(None);
        Label(self.places.len() - 1)
    }

    /// A new label with a name.
    pub(super) fn named(&mut self, name: &str) -> Label {
        let label = self.label();
        self.names[label.0] = Some(name.to_ascii_uppercase());
        label
    }

    /// Binds a label to the next line.
    pub(super) fn bind(&mut self, label: Label) {
        self.places[label.0] = Some(self.lines.len());
    }

    /// Sets a comment in front of the next line.
    pub(super) fn note(&mut self, text: &str) {
        match &mut self.comment {
            Some(comment) => {
                comment.push('\n');
                comment.push_str(text);
            }
            None => self.comment = Some(text.to_owned()),
        }
    }

    /// A line that does not jump.
    pub(super) fn line(&mut self, text: String) {
        self.push(text, None, String::new());
    }

    /// A jump. Operands follow the label.
    pub(super) fn jump(&mut self, word: &str, to: Label, operands: &str) {
        self.push(word.to_owned(), Some(to), operands.to_owned());
    }

    fn push(&mut self, word: String, target: Option<Label>, operands: String) {
        let comment = self.comment.take();
        self.lines.push(Line { word, target, operands, comment });
    }

    /// The place with a value: its own, or a scratch place after bits were cut out.
    pub(super) fn whole(&mut self, load: &Load) -> Place {
        self.whole_in(load, &Meta::Value.place())
    }

    /// As [`Lines::whole`], for the lower half of a value whose higher half is in use.
    pub(super) fn whole_lo(&mut self, load: &Load) -> Place {
        self.whole_in(load, &Meta::ValueLo.place())
    }

    fn whole_in(&mut self, load: &Load, scratch: &Place) -> Place {
        if load.is_plain() {
            return load.place.clone();
        }
        self.cut(load, scratch);
        scratch.clone()
    }

    /// Moves a value to a place that is at least as wide as its own.
    pub(super) fn cut(&mut self, load: &Load, to: &Place) {
        if load.place != *to {
            self.line(format!("mov {} {}", to.path, load.place.path));
        }
        match load.shift {
            0 => {}
            1.. => self.line(format!("shr {} {}", to.path, load.shift)),
            _ => self.line(format!("shl {} {}", to.path, -load.shift)),
        }
        if let Some(mask) = load.mask {
            self.line(format!("and {} {mask:#x}", to.path));
        }
    }

    /// The text of all lines. Jumps to the next line and lines that no jump reaches are left out; a jump to a jump goes
    /// to its end.
    pub(super) fn finish(mut self) -> Vec<Printed> {
        self.shorten();
        self.thread();
        self.drop_idle();
        let mut names: Vec<Option<String>> = vec![None; self.lines.len() + 1];
        let targets: BTreeSet<usize> =
            self.lines.iter().filter_map(|line| line.target).map(|label| self.place(label)).collect();
        for (place, name) in self.places.iter().zip(&self.names) {
            if let (Some(place), Some(name)) = (place, name)
                && targets.contains(place)
            {
                names[*place].get_or_insert_with(|| name.clone());
            }
        }
        for index in 0..self.lines.len() {
            let Some(label) = self.lines[index].target else { continue };
            let place = self.place(label);
            assert!(place > index, "compiler bug: a jump back");
            let number = names.len();
            debug_assert!(number > place);
            names[place].get_or_insert_with(|| format!("L{}", label.0));
        }
        let text = |line: &Line| match line.target {
            None => line.word.clone(),
            Some(label) => {
                let name = names[self.place(label)].as_deref().expect("each target was named above");
                format!("{} {name} {}", line.word, line.operands).trim_end().to_owned()
            }
        };
        let printed = self.lines.iter().zip(&names).map(|(line, name)| {
            let text = text(line);
            let text = name.as_ref().map_or(text.clone(), |name| format!("{name} : {text}"));
            Printed { text, comment: line.comment.clone() }
        });
        printed.collect()
    }

    pub(super) fn place(&self, label: Label) -> usize {
        self.places[label.0].expect("compiler bug: a label without a line")
    }

    /// Leads jumps to jumps to their end, from the last to the first.
    fn thread(&mut self) {
        for index in (0..self.lines.len()).rev() {
            let Some(label) = self.lines[index].target else { continue };
            if let Some(Line { word, target: Some(further), .. }) = self.lines.get(self.place(label))
                && word == "jmp"
            {
                self.lines[index].target = Some(*further);
            }
        }
    }

    /// Drops lines that are not reached, and jumps to the line behind them.
    fn drop_idle(&mut self) {
        loop {
            let mut reached = vec![false; self.lines.len() + 1];
            reached[0] = true;
            for index in 0..self.lines.len() {
                if !reached[index] {
                    continue;
                }
                if let Some(label) = self.lines[index].target {
                    reached[self.place(label)] = true;
                }
                let word = &self.lines[index].word;
                reached[index + 1] |= word != "jmp" && !word.starts_with("tx ");
            }
            let is_idle = |index: usize| {
                let line = &self.lines[index];
                !reached[index] || (line.word == "jmp" && line.target.is_some_and(|to| self.place(to) == index + 1))
            };
            let idle: Vec<bool> = (0..self.lines.len()).map(is_idle).collect();
            if !idle.contains(&true) {
                return;
            }
            self.remove(&idle, &reached);
        }
    }

    /// A label of a line.
    pub(super) fn label_at(&mut self, line: usize) -> Label {
        let known = self.places.iter().position(|place| *place == Some(line));
        known.map_or_else(
            || {
                let label = self.label();
                self.places[label.0] = Some(line);
                label
            },
            Label,
        )
    }

    /// Removes lines. What is not `reached` loses its comment.
    pub(super) fn remove(&mut self, idle: &[bool], reached: &[bool]) {
        let mut moved = Vec::with_capacity(idle.len() + 1);
        let mut kept = Vec::new();
        let mut comment: Option<String> = None;
        for (index, mut line) in std::mem::take(&mut self.lines).into_iter().enumerate() {
            moved.push(kept.len());
            // The line behind a dropped jump gets its comment.
            if idle[index] {
                comment = if reached[index] { comment.or(line.comment) } else { None };
                continue;
            }
            line.comment = match (comment.take(), line.comment) {
                (Some(first), Some(second)) => Some(format!("{first}\n{second}")),
                (first, second) => first.or(second),
            };
            kept.push(line);
        }
        moved.push(kept.len());
        self.places.iter_mut().flatten().for_each(|place| *place = moved[*place]);
        self.lines = kept;
    }
}
