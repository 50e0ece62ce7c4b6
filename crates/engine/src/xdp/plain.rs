//! XDP programs that are no policy: what packets are made with, and what policies are measured against.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, Object, ProgramMut};
use weir_abi::kernel::Mode;

use super::load::{Plan, load_object, map};
use super::{failed, find, stream};
use crate::EngineError;
use crate::clang::BpfObject;
use crate::live::attach::Attached;

/// A BPF object in the kernel.
pub struct PlainPrograms {
    object: Object,
    name: String,
}

impl PlainPrograms {
    /// Loads an object; `name` is for messages.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn load(name: &str, object: &BpfObject) -> Result<Self, EngineError> {
        let plan = Plan { mode: Mode::default(), lengths: &[], shared: &[], program: &|_| true, map: &|_| true };
        Ok(PlainPrograms { object: load_object(name, object, &plan)?, name: name.to_owned() })
    }

    /// Attaches a program to the interface of that index; `interface` is its name, for messages.
    ///
    /// # Errors
    /// There is no such program, or it cannot be attached.
    pub fn attach(&self, program: &str, interface: &str, index: u32) -> Result<Attached, EngineError> {
        Attached::attach(interface, index, self.find(program)?.as_fd())
    }

    /// Puts entries into a map: keys and values as the map has them.
    ///
    /// # Errors
    /// There is no such map, or it does not take them.
    pub fn fill<'a>(
        &self,
        map: &str,
        entries: impl IntoIterator<Item = (impl AsRef<[u8]> + 'a, impl AsRef<[u8]> + 'a)>,
    ) -> Result<(), EngineError> {
        let found = self.object.maps().find(|one| one.name() == map);
        let found = found.ok_or_else(|| failed(&self.name, format!("no map {map}")))?;
        entries.into_iter().try_for_each(|(key, value)| {
            let put = found.update(key.as_ref(), value.as_ref(), MapFlags::ANY);
            put.map_err(|error| failed(&self.name, format!("map {map}: {error}")))
        })
    }

    /// A number that the programs keep at the start of a section.
    ///
    /// # Errors
    /// There is no such section.
    pub fn number(&self, section: &str) -> Result<u64, EngineError> {
        let memory = map(&self.object, section, size_of::<u64>())?;
        // SAFETY: the mapping holds a word (checked by `map`) and starts at a page; programs write it meanwhile, whole.
        Ok(unsafe { memory.as_ptr().cast::<u64>().read_volatile() })
    }

    /// Gives the packets of datapath/engine/stream.h their sources, repeated until the list is full.
    pub(super) fn fill_stream(&self, sources: &[u32]) -> Result<(), EngineError> {
        let all: Vec<u32> = sources.iter().copied().cycle().take(stream::SOURCES_MAX).collect();
        stream::fill(&self.object, &all)
    }

    pub(super) fn find(&self, program: &str) -> Result<ProgramMut<'_>, EngineError> {
        find(&self.object, program)
    }
}
