//! The data with which code is loaded: images of tables, and limits.

use crate::error::LoadError;
use crate::limits;
use crate::policy::Policy;
use crate::tables;
use std::sync::Arc;
use weir_engine::ProgramData;
use weir_policy::ir::{Limiter, LimiterKind};
use weir_policy::pass::choose_layouts::Planned;
use weir_state::limits::{Counted, LimitNeeds, Limits};
use weir_state::tables::{LiveTables, TableStore};
use weir_state::{Memory, SharedState};
use weir_tables::Image;

/// The data with which code is loaded.
pub struct Data {
    /// Images in slot order.
    pub images: Vec<Arc<Image>>,
    /// The limits, if there are any.
    pub limits: Option<Limits>,
    /// The tables that can change. `images` has their images at the time of loading.
    pub tables: Option<LiveTables>,
}

impl Data {
    /// The data for programs in the kernel.
    pub fn for_kernel(&self) -> ProgramData<'_> {
        ProgramData { images: &self.images, limits: self.limits.as_ref(), tables: self.tables.as_ref() }
    }

    /// The counts of limiters, if any limiter counts.
    pub fn counted(&self) -> Option<Counted> {
        self.limits.as_ref().and_then(|limits| limits.counted.clone())
    }
}

impl Policy {
    /// The images of the tables, which the first call builds.
    ///
    /// # Errors
    /// A table does not fit its layout.
    pub fn images(&self) -> Result<&[Arc<Image>], LoadError> {
        if let Some(images) = self.images.get() {
            return Ok(images);
        }
        let text = self.text().expect("a bundle comes with its images");
        let built: Vec<Result<Image, LoadError>> = std::thread::scope(|scope| {
            let build = |image: &Planned| text.build(image);
            let threads: Vec<_> =
                text.lowered.plan.images.iter().map(|image| scope.spawn(move || build(image))).collect();
            threads.into_iter().map(|thread| thread.join().expect("building a table does not panic")).collect()
        });
        let images = built.into_iter().map(|image| image.map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(self.images.get_or_init(|| images))
    }

    /// The images and limits for loading code. Tables and limits use `shared` state. Without it, they use their own, and
    /// only rules change tables, in the time of replayed packets.
    ///
    /// # Errors
    /// A table or list does not fit its layout, or there are not enough buckets.
    pub fn data(&self, shared: Option<&SharedState>) -> Result<Data, LoadError> {
        self.data_with(shared, TableStore::for_threads)
    }

    /// The images and limits for loading code that the kernel runs on replayed packets. As [`Policy::data`] without
    /// shared state, except that programs in the kernel read the tables.
    ///
    /// # Errors
    /// As for [`Policy::data`], or the kernel refuses the memory of tables.
    pub fn kernel_replay_data(&self) -> Result<Data, LoadError> {
        self.data_with(None, TableStore::for_kernel)
    }

    /// Tables of a replay are in the store that `replayed` makes.
    fn data_with(&self, shared: Option<&SharedState>, replayed: fn() -> TableStore) -> Result<Data, LoadError> {
        let Some(text) = self.text() else {
            return Ok(Data { images: self.images()?.to_vec(), limits: None, tables: None });
        };
        let tables = match shared {
            Some(shared) => match (shared.tables(), shared.additions()) {
                (Some(store), Some(additions)) => {
                    Some(tables::bind(text, &self.program, self.images()?, store, additions)?)
                }
                _ => None,
            },
            None if self.program.changes_tables() => {
                Some(tables::bind_replayed(text, &self.program, self.images()?, replayed())?)
            }
            None => None,
        };
        if self.program.limiters.is_empty() {
            return Ok(Data { images: self.images()?.to_vec(), limits: None, tables });
        }
        let own = SharedState::new(Memory::OnePolicy);
        let store = shared.unwrap_or(&own).limits(self.limit_needs())?;
        let assembled = limits::assemble(text, &self.program, store, weir_state::now_ns())?;
        let of_tables = self.images()?.iter().cloned();
        let images = assembled.images.into_iter().zip(of_tables).map(|(tickets, of_table)| match tickets {
            Some(image) => Arc::new(image),
            None => of_table,
        });
        Ok(Data { images: images.collect(), limits: Some(assembled.limits), tables })
    }

    /// The shared state that its limits need. Nothing is needed for a bundle.
    pub fn limit_needs(&self) -> LimitNeeds {
        let size = |limiter: &Limiter| match limiter.kind {
            LimiterKind::Each(each) => each.size as usize,
            LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } | LimiterKind::Labels => 0,
        };
        LimitNeeds {
            buckets: self.text().map_or(0, |text| 1 + limits::buckets(text, &self.program)),
            largest_address_table: self.program.limiters.iter().map(size).max().unwrap_or(0),
        }
    }
}
