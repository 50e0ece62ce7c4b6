//! Numbers of entries, for tables that count the packets of each entry.
//!
//! Lookups in such a table return the number of the longest prefix, and not its label. The number is the index of the
//! entry's counters, and in a map also of its label. An entry keeps its number for as long as it is in the table. The
//! number of a removed entry is used again after all readers have passed: until then they may count under it.

use std::sync::Arc;

use super::change::LiveError;
use super::epochs::{Quiescence, Unlinked};
use super::step::Step;
use crate::entries::Table;

/// What lookups and packets use under the number of an entry.
pub trait NumberedMemory: Send + Sync {
    /// One more than the highest number.
    fn capacity(&self) -> usize;
    /// Makes a number ready for a new entry with a label (0 in a set): its counts are 0. No reader uses the number.
    fn begin(&self, number: u32, label: u32);
    /// Makes a number ready for an entry that had another number, whose counts it continues.
    fn carry(&self, from: u32, to: u32, label: u32);
    /// Forgets what readers have noted for the numbers of removed entries and have not counted yet. Returns the numbers
    /// for which there was something: a reader may be counting it.
    fn forget(&self, numbers: &[u32]) -> Vec<u32>;
    /// Changes the label of an entry.
    fn set_label(&self, number: u32, label: u32);
    /// Entries were removed. Readers may still use their numbers.
    fn removed(&self, _entries: u64) {}
}

/// The numbers of the entries of one table.
pub(super) struct Numbers {
    memory: Arc<dyn NumberedMemory>,
    /// Label by number. Number 0 belongs to no entry.
    labels: Vec<u32>,
    free: Vec<u32>,
    /// Numbers that readers may still use.
    gone: Unlinked<Vec<u32>>,
}

/// What steps with labels become.
#[derive(Default)]
pub(super) struct Numbered {
    /// Steps with numbers.
    pub steps: Vec<Step>,
    /// Entries that keep their number and get another label.
    pub relabelled: Vec<(u32, u32)>,
}

impl Numbers {
    /// The numbers of a table whose prefixes are numbered from 1 on, in their order. The memory knows their labels.
    pub fn of(table: &Table, memory: Arc<dyn NumberedMemory>) -> Self {
        Numbers {
            memory,
            labels: std::iter::once(0).chain(table.label_ids()).collect(),
            free: vec![],
            gone: Unlinked::default(),
        }
    }

    /// The label of the entry with a number.
    pub fn label(&self, number: u32) -> u32 {
        self.labels[number as usize]
    }

    /// The highest number that an entry may get.
    pub fn highest(&self) -> u32 {
        self.memory.capacity() as u32 - 1
    }

    /// Gives numbers to steps whose `old` is a number and whose `new` is a label. If `at_once`, an entry with another
    /// label gets another number, so that lookups see all labels change together.
    ///
    /// # Errors
    /// There are no more numbers. Then nothing has changed.
    pub fn number(&mut self, steps: impl Iterator<Item = Step>, at_once: bool) -> Result<Numbered, LiveError> {
        let mut numbered = Numbered::default();
        for step in steps {
            // Number 0 has label 0.
            match step {
                Step { old, new, .. } if self.label(old) == new => {}
                Step { new: 0, .. } => numbered.steps.push(step),
                Step { old: 1.., .. } if !at_once => numbered.relabelled.push((step.old, step.new)),
                Step { net, old, new: label } => match self.take(label, old) {
                    Some(new) => numbered.steps.push(Step { net, old, new }),
                    None => {
                        self.give_up(&numbered.steps);
                        return Err(LiveError::NoNumber { entries: self.memory.capacity() - 1 });
                    }
                },
            }
        }
        Ok(numbered)
    }

    /// A number for a new entry, or for one that had the number `before` if that is not 0.
    fn take(&mut self, label: u32, before: u32) -> Option<u32> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.labels.len() < self.memory.capacity() => {
                self.labels.push(0);
                self.labels.len() as u32 - 1
            }
            None => return None,
        };
        self.labels[number as usize] = label;
        match before {
            0 => self.memory.begin(number, label),
            _ => self.memory.carry(before, number, label),
        }
        Some(number)
    }

    /// Takes back the numbers of steps that were not made.
    pub fn give_up(&mut self, steps: &[Step]) {
        self.free.extend(steps.iter().map(|step| step.new).filter(|&number| number != 0));
    }

    /// Retires the numbers that steps have replaced.
    pub fn retire(&mut self, steps: &[Step], readers: &impl Quiescence) {
        let gone: Vec<u32> = steps.iter().map(|step| step.old).filter(|&number| number != 0).collect();
        if !gone.is_empty() {
            let removed = steps.iter().filter(|step| step.old != 0 && step.new == 0).count();
            self.memory.removed(removed as u64);
            self.gone.push(readers, gone);
        }
    }

    /// Changes labels of entries.
    pub fn relabel(&mut self, relabelled: &[(u32, u32)]) {
        for &(number, label) in relabelled {
            self.labels[number as usize] = label;
            self.memory.set_label(number, label);
        }
    }

    /// Frees the numbers that no reader uses any more. Returns whether some are left.
    pub fn reclaim(&mut self, readers: &impl Quiescence) -> bool {
        let mut again = Vec::new();
        while let Some(mut gone) = self.gone.pop(readers) {
            let noted = self.memory.forget(&gone);
            gone.retain(|number| !noted.contains(number));
            self.free.extend(gone);
            again.extend(noted);
        }
        if !again.is_empty() {
            self.gone.push(readers, again);
        }
        self.gone.len() > 0
    }
}
