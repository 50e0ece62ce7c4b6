//! Slots as a kind of shared state: what a policy declares, and which rules the generations share.

use std::any::Any;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_abi::slot::{RULES_MAX, STRIPES, SlotImage};
use weir_abi::{Burst, burst};
use weir_tables::live::Readers;

use crate::bound_kind::{BoundKind, StateShape, Worker, expect};
use crate::slots::{HandedRules, RuleSlot};
use crate::store::{Binding, Declared, Request, StateKind, Store};
use crate::{Memory, StateError};

/// Prefix of the names of the maps of slots, before their numbers.
const SLOT: &str = ".bss.slot";

/// What a policy says about a slot.
#[derive(Clone, Debug)]
pub struct SlotDeclared {
    /// Its name, for messages.
    pub name: String,
    /// Maximum number of rules.
    pub size: usize,
}

/// A slot in one generation.
#[derive(Clone)]
pub struct BoundSlot {
    /// Its rules, which all generations share.
    pub slot: Arc<RuleSlot>,
    /// Maximum number of rules.
    pub size: usize,
}

/// The slots that a generation uses.
pub type SlotBinding = Binding<RuleSlots>;

impl SlotBinding {
    /// The rules of each slot, in the order of their declarations.
    pub fn slots(&self) -> impl Iterator<Item = &Arc<RuleSlot>> {
        self.objects().map(|bound| &bound.slot)
    }
}

/// Slots as a kind of shared state.
pub struct RuleSlots {
    memory: Memory,
    /// `None` if no code reads rules while they change.
    readers: Option<Readers>,
    /// Slots of the program before this one in its process, by name, until generations have taken them.
    handed: Vec<(String, Arc<RuleSlot>)>,
}

impl StateKind for RuleSlots {
    type Declaration = SlotDeclared;
    type Object = BoundSlot;

    /// Slots differ in their size only, which `bind` checks.
    fn fits(_: &SlotDeclared, _: &BoundSlot) -> bool {
        true
    }

    fn bind(
        &mut self,
        requests: Vec<Request<'_, Self>>,
        _: &mut dyn Iterator<Item = &BoundSlot>,
        _: u64,
    ) -> Result<Vec<BoundSlot>, StateError> {
        let bind = |Request { declaration: SlotDeclared { name, size }, earlier, .. }: Request<'_, Self>| {
            let handed = || self.handed.iter().find(|(known, _)| *known == name).map(|(_, slot)| slot);
            let slot = match earlier.first().map(|bound| &bound.slot).or_else(handed) {
                Some(slot) => slot.clone(),
                None => RuleSlot::new(self.memory, self.readers.clone())
                    .map_err(|source| StateError::Memory { count: SlotImage::WORDS, source })?,
            };
            match slot.count() {
                rules if rules > size => Err(StateError::Slot { name, rules, size }),
                _ => Ok(BoundSlot { slot, size }),
            }
        };
        requests.into_iter().map(bind).collect()
    }
}

impl BoundKind for SlotBinding {
    fn check(&self, expected: &StateShape) -> Result<(), String> {
        expect("slots", self.slots().count(), expected.slots)
    }

    fn maps(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let slots = self.slots().enumerate();
        slots.filter_map(|(number, slot)| Some((format!("{SLOT}{number}"), slot.map()?))).collect()
    }

    fn point(&self, worker: Worker, burst: &mut Burst) -> io::Result<Box<dyn Any>> {
        let slots: Vec<*mut SlotImage> = self.slots().map(|slot| slot.as_ptr()).collect();
        if !slots.is_empty() {
            burst.slots = burst::Slots { slots: slots.as_ptr(), stripe: (worker.number % STRIPES) as u64 };
        }
        Ok(Box::new(slots))
    }

    fn needs_times(&self) -> bool {
        self.slots().next().is_some()
    }

    fn fill(&self, now_ns: u64) {
        self.slots().for_each(|slot| slot.fill(now_ns));
    }
}

/// The slots of all generations.
pub struct SlotStore(Store<RuleSlots>);

impl SlotStore {
    /// A store for slots in some memory, whose readers are in `readers`, if any read while rules change.
    pub fn new(memory: Memory, readers: Option<Readers>) -> Self {
        SlotStore(Store::new(RuleSlots { memory, readers, handed: Vec::new() }))
    }

    /// The slots of all loaded generations, with their names.
    pub(crate) fn all(&self) -> Vec<(String, Arc<RuleSlot>)> {
        let mut all: Vec<(String, Arc<RuleSlot>)> = Vec::new();
        for binding in self.0.loaded() {
            for (name, bound) in binding.named() {
                if !all.iter().any(|(_, known)| Arc::ptr_eq(known, &bound.slot)) {
                    all.push((name.to_owned(), bound.slot.clone()));
                }
            }
        }
        all
    }

    /// Lets the first generations have slots that were handed over.
    ///
    /// # Errors
    /// One is damaged, or there is not enough memory.
    pub(crate) fn continue_with(
        &self,
        given: Vec<(String, Option<OwnedFd>, HandedRules)>,
        now_ns: u64,
    ) -> io::Result<()> {
        self.0.maintain(|kind, _| {
            for (name, map, rules) in given {
                let slot = RuleSlot::handed(map, rules, kind.memory, kind.readers.clone(), now_ns)?;
                kind.handed.push((name, slot));
            }
            Ok(())
        })
    }

    /// Forgets the slots that were handed over and that no generation has taken.
    pub(crate) fn end_handover(&self) {
        self.0.maintain(|kind, _| kind.handed.clear());
    }

    /// Binds a generation to the slots that it declares.
    ///
    /// # Errors
    /// There is no memory, or a slot has more rules than the generation reserves.
    pub fn bind(&self, declared: Vec<SlotDeclared>) -> Result<Arc<SlotBinding>, StateError> {
        let named = declared.into_iter().map(|declaration| Declared { name: declaration.name.clone(), declaration });
        self.0.bind(named.collect(), 0)
    }

    /// The fewest rules that a loaded generation reserves in a slot.
    pub fn room(&self, slot: &Arc<RuleSlot>) -> usize {
        self.0.with_objects(|loaded| {
            let same = loaded.filter(|bound| Arc::ptr_eq(&bound.slot, slot));
            same.map(|bound| bound.size).min().unwrap_or(RULES_MAX)
        })
    }

    /// Whether a rule has a timeout.
    pub fn can_expire(&self) -> bool {
        self.0.with_objects(|loaded| loaded.fold(false, |can, bound| can | bound.slot.can_expire()))
    }

    /// Removes rules whose time is over. Never waits: a later call removes the rules of slots that are being changed.
    pub fn expire(&self, now_ns: u64) {
        self.0.with_objects(|loaded| loaded.for_each(|bound| _ = bound.slot.expire(now_ns)));
    }

    /// Sets buckets in the past to the present, before they wrap around.
    pub fn refresh(&self, now_ns: u64) {
        self.0.with_objects(|loaded| loaded.for_each(|bound| bound.slot.refresh(now_ns)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::slot::SlotRule;

    fn store() -> SlotStore {
        SlotStore::new(Memory::Process, Some(Readers::new()))
    }

    fn declared(name: &str, size: usize) -> Vec<SlotDeclared> {
        vec![SlotDeclared { name: name.to_owned(), size }]
    }

    fn numbers(slot: &RuleSlot) -> Vec<u32> {
        slot.list().iter().map(|rule| rule.record.number).collect()
    }

    #[test]
    fn rules_outlive_generations_and_too_small_slots_are_refused() {
        let store = store();
        let first = store.bind(declared("attacks", 4)).expect("there is memory");
        let slot = &first.object(0).slot;
        (0..3).for_each(|_| _ = slot.add(SlotRule::ANY, None, store.room(slot), 0).expect("there is room"));
        let refused = store.bind(declared("attacks", 2)).err().map(|error| error.to_string());
        let message = "slot attacks: it has 3 rules, and the policy reserves 2; remove rules first";
        assert_eq!(refused.as_deref(), Some(message));
        let second = store.bind(declared("attacks", 3)).expect("it has room");
        assert_eq!(numbers(&second.object(0).slot), [1, 2, 3]);
        assert_eq!(store.room(slot), 3, "the smaller of both counts");
        let other = store.bind(declared("others", 1)).expect("there is memory");
        assert_eq!(other.object(0).slot.count(), 0);
        drop((first, second));
        assert_eq!(store.bind(declared("attacks", 1)).expect("it is new").object(0).slot.count(), 0);
    }
}
