//! Makes steps: in place where the layout allows it and there is room, else by a new image.

use std::mem;

use super::numbers::Numbered;
use super::rib::{Net, Rib};
use super::{BATCH_MIN, BATCH_ONE_IN, IMAGE_BYTES_MAX, LiveError, LiveTable, LiveWriter, Step, build, is_in, lengths};
use crate::entries::Kind;
use crate::image::{BuildError, Image};
use crate::layout::Room;
use crate::problem::PREFIXES_MAX;

impl LiveTable {
    /// Number of changes from which on a batch rebuilds the image.
    pub fn rebuilds_from(&self) -> usize {
        BATCH_MIN.max(self.rib.len() / BATCH_ONE_IN) + 1
    }

    /// Whether a rebuild would have to wait now, until programs in the kernel release the previous image.
    pub fn rebuild_waits(&self) -> bool {
        self.published.is_waiting()
    }

    /// Whether so many changes are made by a rebuild.
    pub(super) fn is_batch(&self, changes: usize) -> bool {
        changes >= self.rebuilds_from() || self.at_once && changes > 1
    }

    /// Checks the number of prefixes after `more` were added and `fewer` removed.
    pub(super) fn check_size(&self, more: usize, fewer: usize) -> Result<(), BuildError> {
        match self.rib.len() + more - fewer > PREFIXES_MAX {
            true => Err(BuildError::Limit { layout: self.layout, what: "prefixes", max: PREFIXES_MAX }),
            false => Ok(()),
        }
    }

    /// Makes steps, which are in order. Their `old` is what the contents have, their `new` a label or mask. Returns how
    /// many entries changed.
    pub(super) fn make_steps(&mut self, steps: Vec<Step>) -> Result<usize, LiveError> {
        let Some(numbers) = &mut self.numbers else {
            return self.apply(steps.into_iter().filter(Step::changes).collect());
        };
        numbers.reclaim(&self.readers);
        let Numbered { steps, relabelled } = numbers.number(steps.into_iter(), self.at_once)?;
        let applied = self.apply(steps.clone());
        let done = match &applied {
            Ok(_) => steps.len(),
            Err(LiveError::Stopped { done, .. }) => *done,
            Err(_) => 0,
        };
        let numbers = self.numbers.as_mut().expect("the table is numbered");
        numbers.retire(&steps[..done], &self.readers);
        numbers.give_up(&steps[done..]);
        let changed = applied?;
        numbers.relabel(&relabelled);
        Ok(changed + relabelled.len())
    }

    /// Makes steps, which are in order and all have an effect. Returns their number.
    pub(super) fn apply(&mut self, mut steps: Vec<Step>) -> Result<usize, LiveError> {
        self.free();
        let more = steps.iter().filter(|step| step.old == 0).count();
        let fewer = steps.iter().filter(|step| step.new == 0).count();
        self.check_size(more, fewer)?;
        // Without this, each entry of a flood would build an image for which there is no room.
        if let Some((len, error)) = &self.no_room
            && more > fewer
            && self.rib.len() + more - fewer >= *len
        {
            return Err(error.clone());
        }
        let batch = self.is_batch(steps.len());
        if let LiveWriter::ExactLeaf(writer) = &self.writer {
            steps.sort_by_key(|step| (writer.turn(step), step.net));
        }
        let mut done = 0;
        while !batch && done < steps.len() {
            let covered = self.writer.steps_covered(&steps[done..]);
            let together = &steps[done..done + covered];
            together.iter().for_each(|step| self.hold(step.net, step.new));
            let (image, labels) = (self.published.image(), self.highest_answer());
            if self.writer.change(image, &self.readers, &self.rib, together, labels).is_err() {
                together.iter().for_each(|step| self.hold(step.net, step.old));
                break;
            }
            done += covered;
        }
        if done < steps.len() {
            steps[done..].sort_by_key(|step| step.net);
            self.rebuild(&steps[done..]).map_err(|error| match done {
                0 => error,
                _ => LiveError::Stopped { done, error: Box::new(error) },
            })?;
        }
        Ok(steps.len())
    }

    /// Builds an image of the contents.
    fn build(&self, room: Room) -> Result<Image, BuildError> {
        let kind = if self.numbers.is_some() { Kind::Labels } else { self.kind };
        let image = build(self.layout, kind, self.sets, &self.rib, self.highest_answer(), room)?;
        match image.as_bytes().len() > IMAGE_BYTES_MAX {
            true => Err(BuildError::Limit { layout: self.layout, what: "bytes", max: IMAGE_BYTES_MAX }),
            false => Ok(image),
        }
    }

    /// Changes the label of a prefix in the contents.
    pub(super) fn hold(&mut self, net: Net, new: u32) {
        let old = self.rib.set(net, new);
        for (set, length) in self.lengths.iter_mut().enumerate() {
            *length += usize::from(is_in(self.sets, set, new));
            *length -= usize::from(is_in(self.sets, set, old));
        }
    }

    /// Applies steps by rebuilding the image. Applies none of them if that fails.
    pub(super) fn rebuild(&mut self, steps: &[Step]) -> Result<(), LiveError> {
        if steps.len() > self.rib.len() / BATCH_ONE_IN {
            let contents = self.rib.changed(steps.iter().map(|step| (step.net, step.new)));
            return self.rebuild_with(contents);
        }
        steps.iter().for_each(|step| self.hold(step.net, step.new));
        let published = self.publish();
        if published.is_err() {
            steps.iter().for_each(|step| self.hold(step.net, step.old));
        }
        published
    }

    /// Replaces all contents. Changes nothing if that fails.
    pub(super) fn rebuild_with(&mut self, contents: Rib) -> Result<(), LiveError> {
        let previous = mem::replace(&mut self.rib, contents);
        let published = self.publish();
        match published {
            Ok(()) => self.lengths = lengths(&self.rib, self.sets),
            Err(_) => self.rib = previous,
        }
        published
    }

    /// Builds an image of the contents and publishes it. If there is no room for the spare words that changes need, it
    /// has none.
    fn publish(&mut self) -> Result<(), LiveError> {
        self.published.prepare()?;
        let image = self.build(Room::Spare)?;
        match self.published.swap(image) {
            Err(LiveError::NoRoom { .. }) => {
                let image = self.build(Room::None)?;
                self.published.swap(image).inspect_err(|error| self.no_room = Some((self.rib.len(), error.clone())))?;
            }
            swapped => swapped?,
        }
        self.no_room = None;
        self.writer = LiveWriter::of(self.published.image(), self.layout, self.highest_answer());
        self.built_anew += 1;
        Ok(())
    }
}
