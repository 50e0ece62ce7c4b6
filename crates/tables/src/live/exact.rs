//! Exact sets of IPv4 addresses that change in place. Every change is a sequence of aligned stores, and lookups are
//! correct after each of them.
//!
//! ```text
//! insert, a free slot in the member's segment      slot = remainder                                 the address is in
//! insert, no free slot                             overflow += the address in the last slot         nothing changes
//!                                                  overflow += the new address                      nothing changes
//!                                                  last slot = mark                                 the address is in
//! insert, the mark is there                        overflow += the address                          the address is in
//! remove from a slot                               slot = free                                      the address is out
//! remove from the overflow                         overflow -= the address                          the address is out
//!   it was the last one of its bucket              last slot = free                                 nothing changes
//! ```
//! A reader loads the slots of a bucket, then the mark, then the overflow. The address that the mark replaces is
//! already in the overflow. Addresses never move back: an address stays in one slot, or moves once from the last slot
//! to the overflow. The remainder in a slot identifies the address completely, so a free slot can be reused at once.

use std::collections::HashMap;

use crate::cells::CellsMut;
use crate::layout::exact_set::{ExactBuckets, FREE, OVERFLOWED};
use crate::layout::exact_sets::Ends;
use crate::layout::overflow;

/// The image has no room, or lookups in it have become slow. The table must be rebuilt. Nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The writer's state of one exact set image.
pub(super) struct ExactWriter {
    buckets: ExactBuckets,
    ends: Ends,
    /// Words in the overflow of each bucket that has the mark.
    overflowed: HashMap<usize, u32>,
    /// Above this number of marks, lookups are faster in a rebuilt image.
    marks_max: usize,
}

/// Up to one bucket in this many may have the mark, or twice as many as when the image was built if that is more.
pub(super) const MARKED_ONE_IN: usize = 16;

impl ExactWriter {
    pub fn new(cells: &impl CellsMut, buckets: ExactBuckets, ends: Ends) -> Self {
        let mut overflowed = HashMap::new();
        for word in buckets.overflow.all_words().map(|at| cells.u64(at)).filter(|&word| word >> 32 != 0) {
            if let (bucket, Some(_)) = buckets.geometry.split(word as u32) {
                *overflowed.entry(bucket).or_default() += 1;
            }
        }
        let marks_max = (buckets.geometry.buckets() / MARKED_ONE_IN).max(2 * overflowed.len());
        ExactWriter { buckets, ends, overflowed, marks_max }
    }

    /// Changes an address from membership in the sets `old` to the sets `new` (one bit each).
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
        let (bucket, Some(remainder)) = self.buckets.geometry.split(addr) else {
            return self.insert_overflow(cells, 1 << member, addr);
        };
        let slot = |slot| self.buckets.slot(bucket, slot);
        if let Some(free) = self.ends.segment(member).map(slot).find(|&at| cells.u16(at) == FREE) {
            cells.set_u16(free, remainder);
            return Ok(());
        }
        let last = slot(self.buckets.geometry.slots() - 1);
        let holds = cells.u16(last);
        if holds == OVERFLOWED {
            return self.insert_overflow(cells, 1 << member, addr);
        }
        if self.overflowed.len() >= self.marks_max {
            return Err(Full);
        }
        let driven_out =
            (holds != FREE).then(|| (1 << (self.ends.members - 1), self.buckets.geometry.join(bucket, holds)));
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
        let (bucket, remainder) = self.buckets.geometry.split(addr);
        if let Some(remainder) = remainder {
            let slot = |slot| self.buckets.slot(bucket, slot);
            if let Some(at) = self.ends.segment(member).map(slot).find(|&at| cells.u16(at) == remainder) {
                return cells.set_u16(at, FREE);
            }
        }
        self.remove_overflow(cells, 1 << member, addr);
        if remainder.is_some() && !self.overflowed.contains_key(&bucket) {
            cells.set_u16(self.buckets.slot(bucket, self.buckets.geometry.slots() - 1), FREE);
        }
    }

    fn insert_overflow(&mut self, cells: &impl CellsMut, bits: u32, addr: u32) -> Result<(), Full> {
        let mut free = None;
        for at in self.buckets.overflow.words(addr) {
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
        if let (bucket, Some(_)) = self.buckets.geometry.split(addr) {
            *self.overflowed.entry(bucket).or_default() += 1;
        }
        Ok(())
    }

    fn remove_overflow(&mut self, cells: &impl CellsMut, bits: u32, addr: u32) {
        let rib = |word: u64| word as u32 == addr && (word >> 32) as u32 & bits != 0;
        let Some(at) = self.buckets.overflow.words(addr).find(|&at| rib(cells.u64(at))) else { return };
        let members = (cells.u64(at) >> 32) as u32 & !bits;
        if members != 0 {
            return cells.set_u64(at, overflow::word(addr, members));
        }
        cells.set_u64(at, 0);
        if let (bucket, Some(_)) = self.buckets.geometry.split(addr)
            && let Some(words) = self.overflowed.get_mut(&bucket)
        {
            *words -= 1;
            if *words == 0 {
                self.overflowed.remove(&bucket);
            }
        }
    }
}
