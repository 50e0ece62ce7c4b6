//! Binds a policy to the state with which its code is loaded.

use crate::error::LoadError;
use crate::limit_lists;
use crate::limits;
use crate::policy::Policy;
use crate::tables;
use std::sync::Arc;
use weir_abi::each::EXCEEDER_WORDS;
use weir_abi::slot::RULES_MAX;
use weir_engine::Bound;
use weir_policy::ir::{Limiter, LimiterKind, RuleSlot, Slot, SlotContents};
use weir_state::limits::LimitNeeds;
use weir_state::slot_store::{SlotBinding, SlotDeclared};
use weir_state::{BoundState, Memory, SharedState, UsedBy};
use weir_tables::Image;

/// Which tables of a policy are bound to shared state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundTables {
    /// None: they are constant.
    None,
    /// Those that can change.
    All,
}

impl Policy {
    /// The images of all slots, to report on them. Each is built once. Images of lists have labels that count up:
    /// [`Policy::bind`] builds the images with tickets, which depend on the buckets.
    ///
    /// # Errors
    /// A table or list does not fit its layout.
    pub fn images(&self) -> Result<Vec<Arc<Image>>, LoadError> {
        let images = self.build(|_| true)?;
        Ok(images.into_iter().map(|image| image.expect("all of them were built")).collect())
    }

    /// The images of tables, by slot; `None` for lists of limits.
    fn images_of_tables(&self) -> Result<Vec<Option<Arc<Image>>>, LoadError> {
        self.build(|slot| matches!(slot.contents, SlotContents::Tables(_)))
    }

    /// The images of the wanted slots. Builds the missing ones, each in a thread of its own.
    fn build(&self, wanted: impl Fn(&Slot) -> bool) -> Result<Vec<Option<Arc<Image>>>, LoadError> {
        let slots = || self.program.slots.iter().zip(&self.images).enumerate();
        let missing =
            slots().filter(|(_, (slot, image))| wanted(slot) && image.get().is_none()).map(|(index, _)| index);
        let build = |index: usize| {
            let slot = &self.program.slots[index];
            let image = match &slot.contents {
                SlotContents::Limits(list) => {
                    let built = limit_lists::named(&self.lists, list).prefixes().build(slot.family, slot.layout);
                    built.map_err(|error| LoadError::Image { object: format!("limits {list}"), error })
                }
                SlotContents::Tables(_) => self.tables().build(slot),
            };
            image.map(|image| (index, Arc::new(image)))
        };
        let built: Vec<Result<_, LoadError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = missing.map(|slot| scope.spawn(move || build(slot))).collect();
            threads.into_iter().map(|thread| thread.join().expect("building a table does not panic")).collect()
        });
        for built in built {
            let (slot, image) = built?;
            // If another thread was faster, its image is used.
            let _other = self.images[slot].set(image);
        }
        Ok(slots().map(|(_, (slot, image))| if wanted(slot) { image.get().cloned() } else { None }).collect())
    }

    /// The images and the state for loading code. Without `shared`, the state is a replay's: only rules change
    /// tables, in the time of replayed packets.
    ///
    /// # Errors
    /// A table or list does not fit its layout, or there is not enough memory.
    pub fn bind(&self, shared: Option<&SharedState>) -> Result<Bound, LoadError> {
        match shared {
            Some(shared) => self.bind_to(shared, self.bound_tables(shared)),
            None => {
                let shared = SharedState::new(UsedBy::Replay(Memory::Process));
                self.bind_to(&shared, self.bound_tables(&shared))
            }
        }
    }

    /// The images and the state for loading code that the kernel runs on replayed packets.
    ///
    /// # Errors
    /// As for [`Policy::bind`], or the kernel refuses the memory of tables.
    pub fn bind_kernel_replay(&self) -> Result<Bound, LoadError> {
        let shared = SharedState::new(UsedBy::Replay(Memory::Kernel));
        self.bind_to(&shared, self.bound_tables(&shared))
    }

    /// Whether its tables are bound to shared state. In a replay, others change no table.
    fn bound_tables(&self, shared: &SharedState) -> BoundTables {
        let changes = self.program.changes_tables() || self.program.counts_entries() || !shared.is_replay();
        if changes { BoundTables::All } else { BoundTables::None }
    }

    pub(crate) fn bind_to(&self, shared: &SharedState, bound: BoundTables) -> Result<Bound, LoadError> {
        let mut state = BoundState::default();
        let mut images = self.images_of_tables()?;
        state.tables = match bound {
            BoundTables::None => None,
            BoundTables::All => Some(tables::bind(self.tables_of(), &images, shared)?),
        };
        if !self.program.limiters.is_empty() {
            let store = shared.limits(self.limit_needs())?;
            let assembled = limits::assemble(&self.lists, &self.program, store, weir_state::now_ns())?;
            for (image, tickets) in images.iter_mut().zip(assembled.images) {
                *image = image.take().or(tickets.map(Arc::new));
            }
            state.limits = Some(assembled.limits);
        }
        let images = images.into_iter().map(|image| image.expect("a slot has tables or a list of limits"));
        state.flows = shared.bind_flows(self.program.flow_needs())?;
        state.slots = self.bind_slots(shared)?;
        state.features = shared.bind_features(self.program.observe.as_ref().map(|observe| observe.shape()))?;
        Ok(Bound { images: images.collect(), state, ..Bound::default() })
    }

    /// The slots. In a replay they have the rules that were given for it.
    fn bind_slots(&self, shared: &SharedState) -> Result<Arc<SlotBinding>, LoadError> {
        let declared = |slot: &RuleSlot| SlotDeclared { name: slot.name.clone(), size: slot.size.into() };
        let bound = shared.slots().bind(self.program.rule_slots.iter().map(declared).collect())?;
        let replayed = bound.slots().zip(&self.slot_rules).filter(|_| shared.is_replay());
        for (slot, rule) in replayed.flat_map(|(slot, rules)| rules.iter().map(move |rule| (slot, rule))) {
            slot.add(rule.record, None, RULES_MAX, 0).expect("the rules fit, and nobody reads them");
        }
        Ok(bound)
    }

    /// The shared state that its limits need.
    pub fn limit_needs(&self) -> LimitNeeds {
        let size = |limiter: &Limiter| match limiter.kind {
            LimiterKind::Each(each) => each.words() + EXCEEDER_WORDS,
            LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } | LimiterKind::Labels => 0,
        };
        LimitNeeds {
            buckets: 1 + limits::buckets(&self.lists, &self.program),
            largest_address_table: self.program.limiters.iter().map(size).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_image_is_built_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.weir");
        let policy = "table t { type ipv4; elements = { 192.0.2.0/24 } }\n\
            limits l { elements = { 10.0.0.0/8 : 1kpps, 2001:db8::/32 : 2kpps } }\n\
            upstream { ip saddr @t drop; ip saddr limit @l; ip6 saddr limit @l; accept }\ndownstream { accept }\n";
        fs::write(&path, policy).expect("a file");
        let policy = crate::load(&path).expect("it is right");
        let bound = policy.bind(None).expect("it can be built");
        let of_table = |slot: &Slot| matches!(slot.contents, SlotContents::Tables(_));
        assert_eq!(policy.program.slots.iter().map(of_table).collect::<Vec<_>>(), [true, false, false]);
        let built: Vec<bool> = policy.images.iter().map(|image| image.get().is_some()).collect();
        assert_eq!(built, [true, false, false], "an image of a list is built with tickets only");
        let again = policy.bind(None).expect("it can be built");
        assert!(Arc::ptr_eq(&bound.images[0], &again.images[0]), "a table's image is used again");
        assert_eq!(policy.images().expect("they can be built").len(), 3);
        assert!(Arc::ptr_eq(&bound.images[0], &policy.images().expect("they are built")[0]));
    }
}
