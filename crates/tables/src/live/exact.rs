//! Exact sets of IPv4, changed in place: every change is one aligned store after another, and after each of them every lookup
//! is right.
//!
//! ```text
//! insert, a free slot in the member's segment      slot = remainder                                 the address is in
//! insert, no free slot                             overflow += whom the last slot holds             nothing changes
//!                                                  overflow += the address                          nothing changes
//!                                                  last slot = mark                                 the address is in
//! insert, the mark is there                        overflow += the address                          the address is in
//! remove from a slot                               slot = free                                      the address is out
//! remove from the overflow                         overflow -= the address                          the address is out
//!   it was the last one of its bucket              last slot = free                                 nothing changes
//! ```
//! A reader takes a bucket's slots, then the mark, then the overflow. Whom the mark drives out of the last slot is in the
//! overflow before that. Nobody moves back: a key that stays is in one slot for good, or goes from the last slot to the
//! overflow once. A slot tells a remainder from all others by itself, so a free one can be used again at once.

use std::collections::HashMap;

use crate::cells::CellsMut;
use crate::layout::exact_set::{FREE, OVERFLOWED, Place};
use crate::layout::exact_sets::Ends;
use crate::layout::overflow;

/// There is no room, or the image has become slow: the table has to be built anew. Nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What the writer knows of a set's image.
pub(super) struct ExactWriter {
    place: Place,
    ends: Ends,
    /// Words in the overflow of each bucket that has the mark.
    overflowed: HashMap<usize, u32>,
    /// With more marks than this, lookups are faster in a new image.
    marks_max: usize,
}

/// Of so many buckets one may have the mark, or twice as many as when the image was built.
pub(super) const MARKED_ONE_IN: usize = 16;

impl ExactWriter {
    pub fn new(cells: &impl CellsMut, place: Place, ends: Ends) -> Self {
        let mut overflowed = HashMap::new();
        for word in place.overflow.all_words().map(|at| cells.u64(at)).filter(|&word| word >> 32 != 0) {
            if let (bucket, Some(_)) = place.geometry.split(word as u32) {
                *overflowed.entry(bucket).or_default() += 1;
            }
        }
        let marks_max = (place.geometry.buckets() / MARKED_ONE_IN).max(2 * overflowed.len());
        ExactWriter { place, ends, overflowed, marks_max }
    }

    /// Makes an address one of the members in `new` (a bit each), of which those in `old` hold it now.
    pub fn change(&mut self, cells: &impl CellsMut, addr: u32, old: u32, new: u32) -> Result<(), Full> {
        let each = |mask: u32| (0..u32::BITS).filter(move |member| mask >> member & 1 != 0);
        let comes = new & !old;
        for member in each(comes) {
            if self.insert(cells, member, addr).is_err() {
                each(comes).take_while(|&done| done < member).for_each(|done| self.remove(cells, done, addr));
                return Err(Full);
            }
        }
        each(old & !new).for_each(|member| self.remove(cells, member, addr));
        Ok(())
    }

    /// Inserts an address that the member does not hold.
    pub fn insert(&mut self, cells: &impl CellsMut, member: u32, addr: u32) -> Result<(), Full> {
        let (bucket, Some(remainder)) = self.place.geometry.split(addr) else {
            return self.insert_overflow(cells, 1 << member, addr);
        };
        let slot = |slot| self.place.slot(bucket, slot);
        if let Some(free) = self.ends.segment(member).map(slot).find(|&at| cells.u16(at) == FREE) {
            cells.set_u16(free, remainder);
            return Ok(());
        }
        let last = slot(self.place.geometry.slots() - 1);
        let holds = cells.u16(last);
        if holds == OVERFLOWED {
            return self.insert_overflow(cells, 1 << member, addr);
        }
        if self.overflowed.len() >= self.marks_max {
            return Err(Full);
        }
        let driven_out =
            (holds != FREE).then(|| (1 << (self.ends.members - 1), self.place.geometry.join(bucket, holds)));
        if let Some((bits, driven_out)) = driven_out {
            self.insert_overflow(cells, bits, driven_out)?;
        }
        if let Err(full) = self.insert_overflow(cells, 1 << member, addr) {
            if let Some((bits, driven_out)) = driven_out {
                self.remove_overflow(cells, bits, driven_out);
            }
            return Err(full);
        }
        cells.set_u16(last, OVERFLOWED);
        Ok(())
    }

    /// Removes an address that the member holds.
    pub fn remove(&mut self, cells: &impl CellsMut, member: u32, addr: u32) {
        let (bucket, remainder) = self.place.geometry.split(addr);
        if let Some(remainder) = remainder {
            let slot = |slot| self.place.slot(bucket, slot);
            if let Some(at) = self.ends.segment(member).map(slot).find(|&at| cells.u16(at) == remainder) {
                return cells.set_u16(at, FREE);
            }
        }
        self.remove_overflow(cells, 1 << member, addr);
        if remainder.is_some() && !self.overflowed.contains_key(&bucket) {
            cells.set_u16(self.place.slot(bucket, self.place.geometry.slots() - 1), FREE);
        }
    }

    fn insert_overflow(&mut self, cells: &impl CellsMut, bits: u32, addr: u32) -> Result<(), Full> {
        let mut free = None;
        for at in self.place.overflow.words(addr) {
            let word = cells.u64(at);
            let members = (word >> 32) as u32;
            if members == 0 {
                free = free.or(Some(at));
            } else if word as u32 == addr {
                cells.set_u64(at, overflow::word(addr, members | bits));
                return Ok(());
            }
        }
        cells.set_u64(free.ok_or(Full)?, overflow::word(addr, bits));
        if let (bucket, Some(_)) = self.place.geometry.split(addr) {
            *self.overflowed.entry(bucket).or_default() += 1;
        }
        Ok(())
    }

    fn remove_overflow(&mut self, cells: &impl CellsMut, bits: u32, addr: u32) {
        let held = |word: u64| word as u32 == addr && (word >> 32) as u32 & bits != 0;
        let Some(at) = self.place.overflow.words(addr).find(|&at| held(cells.u64(at))) else { return };
        let members = (cells.u64(at) >> 32) as u32 & !bits;
        if members != 0 {
            return cells.set_u64(at, overflow::word(addr, members));
        }
        cells.set_u64(at, 0);
        if let (bucket, Some(_)) = self.place.geometry.split(addr)
            && let Some(words) = self.overflowed.get_mut(&bucket)
        {
            *words -= 1;
            if *words == 0 {
                self.overflowed.remove(&bucket);
            }
        }
    }
}
