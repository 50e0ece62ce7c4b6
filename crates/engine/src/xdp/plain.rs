//! Programs without a policy, such as programs of others on the same interfaces.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, Object, ProgramMut};
use weir_abi::kernel::Mode;

use super::load::{Plan, load_object};
use super::{failed, find, map};
use crate::EngineError;
use crate::clang::BpfObject;
use crate::live::programs::attach::{Attached, Egress};

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
        let plan =
            Plan { mode: Mode::default(), lengths: &[], sizes: None, shared: &[], program: &|_| true, map: &|_| true };
        Ok(PlainPrograms { object: load_object(name, object, &plan)?, name: name.to_owned() })
    }

    /// Attaches a program to the interface with the given index. `interface` is its name, for messages.
    ///
    /// # Errors
    /// There is no such program, or it cannot be attached.
    pub fn attach(&self, program: &str, interface: &str, index: u32) -> Result<Attached, EngineError> {
        Attached::attach(interface, index, self.find(program)?.as_fd())
    }

    /// Attaches a program for packets that this host sends, in front of those that are attached already.
    ///
    /// # Errors
    /// There is no such program, or it cannot be attached.
    pub fn attach_egress(&self, program: &str, interface: &str, index: u32) -> Result<Egress, EngineError> {
        Egress::attach(interface, index, self.find(program)?.as_fd())
    }

    /// Writes entries to a map. Keys and values have the map's formats.
    ///
    /// # Errors
    /// There is no such map, or it rejects an entry.
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

    /// A counter that the programs keep in the first 8 bytes of a section.
    ///
    /// # Errors
    /// There is no such section.
    pub fn number(&self, section: &str) -> Result<u64, EngineError> {
        let memory = map(&self.object, section, size_of::<u64>())?;
        // SAFETY: `map` checked that the mapping has at least one word, and it is aligned to a page. Programs write the
        // word as a whole.
        Ok(unsafe { memory.as_ptr().cast::<u64>().read_volatile() })
    }

    /// The object in the kernel.
    pub fn object(&self) -> &Object {
        &self.object
    }

    fn find(&self, program: &str) -> Result<ProgramMut<'_>, EngineError> {
        find(&self.object, program)
    }
}
