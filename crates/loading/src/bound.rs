//! Binds a policy to the state with which its code is loaded.

use crate::error::LoadError;
use crate::limit_lists;
use crate::limits;
use crate::policy::Policy;
use crate::tables;
use std::sync::Arc;
use weir_abi::each::EXCEEDER_WORDS;
use weir_abi::features::REPLAY_SEED;
use weir_abi::flow::FlowSecrets;
use weir_abi::slot::{RULES_MAX, SlotImage};
use weir_engine::Bound;
use weir_policy::ir::{Limiter, LimiterKind, Slot, SlotContents};
use weir_policy::slot_rule::SlotRule;
use weir_state::features::Features;
use weir_state::flows::FlowTable;
use weir_state::limits::LimitNeeds;
use weir_state::slot_store::{LiveSlots, SlotDeclared};
use weir_state::slots::RuleSlot;
use weir_state::tables::{LiveTables, TableStore};
use weir_state::{Memory, SharedState, StateError, UsedBy};
use weir_tables::Image;

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

    /// The images and limits for loading code. Tables and limits use `shared` state. Without it, they use their own,
    /// and only rules change tables, in the time of replayed packets.
    ///
    /// # Errors
    /// A table or list does not fit its layout, or there are not enough buckets.
    pub fn bind(&self, shared: Option<&SharedState>) -> Result<Bound, LoadError> {
        self.bind_with(shared, Memory::Process)
    }

    /// The images and limits for loading code that the kernel runs on replayed packets. As [`Policy::bind`] without
    /// shared state, except that programs in the kernel read the tables.
    ///
    /// # Errors
    /// As for [`Policy::bind`], or the kernel refuses the memory of tables.
    pub fn bind_kernel_replay(&self) -> Result<Bound, LoadError> {
        self.bind_with(None, Memory::Kernel)
    }

    /// Tables and flows of a replay are in `replayed` memory.
    fn bind_with(&self, shared: Option<&SharedState>, replayed: Memory) -> Result<Bound, LoadError> {
        let mut images = self.images_of_tables()?;
        let tables = self.bind_tables(&images, shared, replayed)?;
        let mut limits = None;
        if !self.program.limiters.is_empty() {
            let own = SharedState::new(UsedBy::OnePolicy);
            let store = shared.unwrap_or(&own).limits(self.limit_needs())?;
            let assembled = limits::assemble(&self.lists, &self.program, store, weir_state::now_ns())?;
            for (image, tickets) in images.iter_mut().zip(assembled.images) {
                *image = image.take().or(tickets.map(Arc::new));
            }
            limits = Some(assembled.limits);
        }
        let images = images.into_iter().map(|image| image.expect("a slot has tables or a list of limits"));
        let flows = self.flows(shared, replayed)?;
        let images = images.collect();
        let slots = self.bind_slots(shared, replayed)?;
        let features = self.features(shared, replayed)?;
        Ok(Bound { images, limits, tables, flows, slots, features })
    }

    /// Where features are counted: in `shared` state, or in empty sheets for a replay.
    fn features(&self, shared: Option<&SharedState>, replayed: Memory) -> Result<Option<Arc<Features>>, LoadError> {
        let Some(observe) = &self.program.observe else { return Ok(None) };
        Ok(Some(match shared {
            Some(shared) => shared.features(observe.shape())?,
            None => match replayed {
                Memory::Process => Features::of_process(observe.shape(), REPLAY_SEED),
                Memory::Kernel => Features::of_kernel(observe.shape(), REPLAY_SEED, 1)?,
            },
        }))
    }

    /// The table of flows: from `shared` state, or an empty one for a replay.
    fn flows(&self, shared: Option<&SharedState>, replayed: Memory) -> Result<Option<Arc<FlowTable>>, LoadError> {
        let Some(needs) = self.program.flow_needs() else { return Ok(None) };
        if let Some(shared) = shared {
            return Ok(Some(shared.flows(&needs)?));
        }
        let table = FlowTable::new(replayed, needs.size, FlowSecrets::REPLAY)?;
        if needs.proxied {
            table.keep_proxied()?;
        }
        Ok(Some(table))
    }

    /// The slots: from `shared` state, or for a replay new ones with the rules that were given for it.
    fn bind_slots(&self, shared: Option<&SharedState>, replayed: Memory) -> Result<LiveSlots, LoadError> {
        let declared = &self.program.rule_slots;
        if let Some(store) = shared.and_then(SharedState::slots).filter(|_| !declared.is_empty()) {
            let declared = declared.iter().map(|slot| SlotDeclared { name: slot.name.clone(), size: slot.size.into() });
            return Ok(store.bind(declared.collect())?.into());
        }
        let filled = |rules: &Vec<SlotRule>| {
            let slot = RuleSlot::new(replayed, None);
            let slot = slot.map_err(|source| StateError::Memory { count: SlotImage::WORDS, source })?;
            for rule in rules {
                slot.add(rule.record, None, RULES_MAX, 0).expect("the rules fit, and nobody reads them");
            }
            Ok(slot)
        };
        let slots: Result<_, StateError> = self.slot_rules.iter().map(filled).collect();
        Ok(LiveSlots { slots: slots?, binding: None })
    }

    fn bind_tables(
        &self,
        images: &[Option<Arc<Image>>],
        shared: Option<&SharedState>,
        replayed: Memory,
    ) -> Result<Option<LiveTables>, LoadError> {
        Ok(match shared {
            Some(shared) => match (shared.tables(), shared.additions()) {
                (Some(store), Some(additions)) => Some(tables::bind(self.tables_of(), images, store, additions)?),
                _ => None,
            },
            None if self.program.changes_tables() || self.program.counts_entries() => {
                Some(tables::bind_replayed(self.tables_of(), images, TableStore::new(replayed))?)
            }
            None => None,
        })
    }

    /// The shared state that its limits need.
    pub fn limit_needs(&self) -> LimitNeeds {
        let size = |limiter: &Limiter| match limiter.kind {
            LimiterKind::Each(each) => each.size as usize + EXCEEDER_WORDS,
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
